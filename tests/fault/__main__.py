"""`python -m tests.fault --seed 7 --steps 2000 [--replicas 2]`: exit status 1 on a violation."""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from tests.cluster.environment import (
    binaries,
    client,
    components,
    control_plane,
    kubectl,
    processes,
)
from tests.fault.fleet import Fleet
from tests.fault.run import Report, Run
from tests.fault.shrinking import shrink
from tests.fault.steps import WORKLOAD_SHARE, Step, make_steps, named_like

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RERUNS = 16
"""How many shorter lists are tried at most after a violation."""


def say(line: str) -> None:
    print(line, flush=True)


async def run(arguments: argparse.Namespace) -> int:
    injections = named_like(arguments.only or [])
    if not injections:
        raise SystemExit(f"no injection is called like {', '.join(arguments.only)}")
    steps = make_steps(
        arguments.seed, arguments.steps, injections, workload_share=arguments.workload
    )
    with processes.Run(binaries.ROOT / "build" / "fault-logs") as owner:
        programs = binaries.find_binaries(say)
        say(
            f"seed {arguments.seed}, {len(steps)} steps, {arguments.replicas} replicas, Kubernetes "
            f"{binaries.kubernetes_version()}, logs in {owner.directory}"
        )
        cluster = control_plane.ControlPlane(owner, programs)
        await cluster.start()
        await components.KubeControllerManager(cluster).start()
        await components.Kubelets(cluster).start()
        tool = kubectl.Kubectl(programs.kubectl, cluster, owner.directory / "kubectl-cache")
        fleet = Fleet(cluster, tool, replicas=arguments.replicas, name="fault")
        async with fleet.installed(), client.open_client(cluster.kubeconfig()) as api:

            async def attempt(tried: list[Step]) -> Report:
                return await Run(
                    api, cluster, fleet, say, prints_steps=arguments.verbose
                ).carry_out(tried)

            report = await attempt(steps)
            say(f"happened: {', '.join(f'{n} {what}' for what, n in sorted(report.used.items()))}")
            if not report.violations:
                say(
                    f"no violation in {len(report.observations)} changes; {len(report.bound)} pods were "
                    f"bound, {report.refused} could not be created, somebody served for "
                    f"{report.served:.0%} of the time; {report.upgrades} upgrades of nodes began, "
                    f"which took at most {report.most_away} away at once"
                )
                return 0
            await _explain(report, steps, attempt, reruns=arguments.reruns)
        return 1


async def _explain(
    report: Report,
    steps: list[Step],
    attempt: "Callable[[list[Step]], Awaitable[Report]]",
    *,
    reruns: int,
) -> None:
    rule = report.violations[0].rule
    say(f"VIOLATION {report.violations[0]}")
    for more in report.violations[1:5]:
        say(f"      and {more}")

    async def violates(tried: list[Step]) -> bool:
        again = await attempt(tried)
        found = any(violation.rule == rule for violation in again.violations)
        say(f"{len(tried)} steps: {'violates too' if found else 'nothing of the kind'}")
        return found

    smallest = await shrink(steps[: report.reached], violates, reruns=reruns)
    if smallest is None:
        say("it did not come again; this is what was seen:")
        say(report.story())
        return
    say(f"smallest list that violates, {len(smallest)} steps:")
    for step in smallest:
        say(f"  {step}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--reruns", type=int, default=RERUNS)
    parser.add_argument("--verbose", action="store_true", help="print every step")
    parser.add_argument(
        "--only",
        action="append",
        metavar="TEXT",
        help="only injections with TEXT in their name: `--only watch`, `--only kill --only SIG`",
    )
    parser.add_argument(
        "--workload",
        type=float,
        default=WORKLOAD_SHARE,
        metavar="SHARE",
        help="of the steps that are no injection",
    )
    sys.exit(asyncio.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()
