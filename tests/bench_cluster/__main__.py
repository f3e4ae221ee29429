"""`python -m tests.bench_cluster [--quick] [--rounds N] [--nodes N]`."""

import argparse
import sys
from typing import TYPE_CHECKING

import uvloop

from tests.bench import page, report
from tests.bench_cluster import cluster, measuring, setups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.report import Result

SIZES = (
    measuring.Size(nodes=100, devices=8, pods=700),
    measuring.Size(nodes=1_000, devices=4, pods=2_000),
    measuring.Size(nodes=1_000, devices=4, pods=600, all_wait=True),
)
QUICK = (measuring.Size(nodes=20, devices=4, pods=40),)


async def run(sizes: "Sequence[measuring.Size]", *, rounds: int) -> "list[Result]":
    async with cluster.open_cluster(_say) as opened:
        echo, idle = setups.Echo(opened), setups.Echo(opened, webhooks=True)
        everyone: tuple[setups.Setup, ...] = (
            setups.Plain(opened),
            echo,
            idle,
            *(
                setups.Ours(opened, name=f"ours, {how}", settings={"placement": how})
                for how in ("Scored", "Nominated")
            ),
        )
        results = []
        for size in sizes:
            if size.nodes > len(opened.gpus):
                _say(f"{size}: creating nodes and devices")
                await opened.grow(size.nodes, size.devices)
            turns = await measuring.measure(opened, everyone, size, rounds=rounds, progress=_say)
            results += measuring.results_of(size, turns, echo=echo.name, idle=idle.name)
    for result in results:
        _say(
            f"{result.case}: {result.rate_per_s:.0f} pods/s, {result.ratio:.2f} x echo, "
            f"{result.ratio_to_limit:.2f} x limit, CPU ms a pod: "
            f"API server {result.apiserver_cpu_ms:.2f}, all {result.cpu_ms:.2f}"
        )
    return results


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench_cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: small, nothing written")
    parser.add_argument("--rounds", type=int, default=None, help="turns of each (2; 1 if quick)")
    parser.add_argument(
        "--nodes", type=int, default=None, help="only the sizes of so many nodes; nothing written"
    )
    options = parser.parse_args()
    choices = QUICK if options.quick else SIZES
    sizes = [size for size in choices if options.nodes in {None, size.nodes}]
    if not sizes:
        parser.error(f"--nodes: one of {sorted({size.nodes for size in choices})}")
    rounds = options.rounds or (1 if options.quick else 2)
    results = uvloop.run(run(sizes, rounds=rounds))
    if tuple(sizes) == SIZES:
        report.write("cluster", results)
        page.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
