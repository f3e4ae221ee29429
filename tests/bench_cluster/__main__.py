"""`python -m tests.bench_cluster [--quick]`."""

import argparse
import sys

import uvloop

from tests.bench import page, report
from tests.bench_cluster import contenders, measuring, stage

SIZES = (
    measuring.Size(nodes=100, cards=8, pods=700),
    measuring.Size(nodes=1_000, cards=4, pods=2_000),
    measuring.Size(nodes=1_000, cards=4, pods=600, all_wait=True),
)
QUICK = (measuring.Size(nodes=20, cards=4, pods=40),)


async def run(*, quick: bool, rounds: int) -> int:
    async with stage.open_stage(_say) as opened:
        echo = contenders.Echo(opened)
        everyone: tuple[contenders.Contender, ...] = (
            contenders.Plain(opened),
            echo,
            *(
                contenders.Ours(opened, name=f"ours, {how}", settings={"placement": how})
                for how in ("Scored", "Nominated")
            ),
        )
        results = []
        for size in QUICK if quick else SIZES:
            if size.nodes > len(opened.cards):
                _say(f"{size}: creating nodes and devices")
                await opened.grow(size.nodes, size.cards)
            turns = await measuring.measure(opened, everyone, size, rounds=rounds, progress=_say)
            results += measuring.results_of(size, turns, echo.name)
    for result in results:
        _say(
            f"{result.case}: {result.rate_per_s:.0f} pods/s, {result.ratio:.2f} x echo, "
            f"scheduling {result.scheduling_ms:.2f} ms, scheduler CPU {result.scheduler_cpu_ms:.2f} ms"
        )
    if not quick:
        report.write("cluster", results)
        page.write()
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench_cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: small, nothing written")
    parser.add_argument("--rounds", type=int, default=None, help="turns of each (2; 1 if quick)")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 2)
    return uvloop.run(run(quick=options.quick, rounds=rounds))


if __name__ == "__main__":
    sys.exit(main())
