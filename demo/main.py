"""`gpu-control-plane demo`: the main job on an embedded cluster, narrated and checked.

API server, registry, kube-scheduler, DaemonSet controller, kubelet and the nodes' agents are fakes in this process
(`simulator`); detector and validator run their real reports and files (`demo.node_programs`), and the roles of agents
that serve kernel caches are the real ones (`demo.node_caches`).
The server is the real one, in a process of its own, called over HTTPS with its own certificates, by
the same handlers as in production. Every claim is checked; the exit status tells whether all of
them hold.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from demo.chapters import changes as demo_changes
from demo.chapters import device_assignment, driver_rollout, operand_switch, placement, waiting_pod
from demo.chapters import pods as demo_pods
from demo.chapters.accounting import accounts
from demo.chapters.autoscaling import from_zero_and_back
from demo.chapters.bare_node import bare_node
from demo.chapters.kernel_caches import kernel_caches
from demo.cluster import BackgroundTasks, DemoCluster
from demo.demo_folder import demo_folder
from demo.ending import ended, say
from demo.objects import FLEET
from demo.policy_objects import FLEET as SOFTWARE_FLEET
from demo.run import DemoRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from demo.fleet import Fleet

    Chapter = Callable[[DemoRun], Awaitable[None]]
    Part = tuple[Fleet, Sequence[Chapter]]

LIMIT_S: Final = 600.0
"""Time limit, in seconds, of a part: ten times its duration, for a machine that is busy with other work."""

CHAPTERS: "Final[tuple[Chapter, ...]]" = (
    bare_node,
    device_assignment.discovery,
    operand_switch.switched_on,
    operand_switch.switched_off,
    device_assignment.manual_assignment,
    device_assignment.assignment_by_product,
    demo_pods.whole_devices,
    demo_pods.time_slices,
    demo_pods.refusals,
    demo_pods.exhaustion,
    demo_pods.expiry,
    demo_changes.fault,
    demo_changes.reslicing,
    placement.aligned_set,
    placement.what_if,
    placement.fractions,
    accounts,
    kernel_caches,
    waiting_pod.fragmented,
    from_zero_and_back,
    waiting_pod.why,
)
SOFTWARE_CHAPTERS: "Final[tuple[Chapter, ...]]" = (
    driver_rollout.one_policy,
    driver_rollout.new_driver_version,
)
PARTS: "Final[tuple[Part, ...]]" = ((FLEET, CHAPTERS), (SOFTWARE_FLEET, SOFTWARE_CHAPTERS))
"""Each in a cluster of its own: a server with `node_software` runs no operands of its own. The first is told as it runs,
the other ones, which run concurrent it, before its last chapter: an upgrade of drivers mostly waits."""


async def run_demo(log_file: Path | None, parts: "Sequence[Part]" = PARTS) -> int:
    """Run all chapters; return 0 if every claim holds."""
    with demo_folder() as name:
        folder = Path(name)
        (fleet, chapters), *others = parts
        log = log_file or folder / "server.log"
        concurrent = [
            _ConcurrentPart(part, folder / f"beside-{number}") for number, part in enumerate(others)
        ]
        failed = 0

        async def run_others(_: DemoRun) -> None:
            nonlocal failed
            for item in concurrent:
                failed = failed or await ended(item.report(), item.log)

        with_others = (*chapters[:-1], run_others, chapters[-1])
        async with BackgroundTasks() as group:
            for item in concurrent:
                group.spawn(item.run(), "a part of the demo")
            _introduce()
            status = await ended(
                _run(with_others, fleet, folder / "first", log=log, report=say), log
            )
            status = status or failed
    if status == 0:
        say("\nEvery claim above was checked.")
    return status


def _introduce() -> None:
    say("In memory: an API server, a registry, a scheduler, Karpenter, kubelets, node agents.")
    say("In a process of its own: the real GPU control plane, called over HTTPS as by Kubernetes.")
    say("The demo needs nothing else, and takes some forty seconds.")


async def _run(
    chapters: "Sequence[Chapter]",
    fleet: "Fleet",
    folder: Path,
    *,
    log: Path,
    report: "Callable[[str], None]",
) -> None:
    await asyncio.to_thread(folder.mkdir)
    async with asyncio.timeout(LIMIT_S), DemoCluster(folder, log, fleet) as cluster:
        run = DemoRun(cluster, report)
        for chapter in chapters:
            await chapter(run)


@final
class _ConcurrentPart:
    """A part that runs concurrent the first one."""

    def __init__(self, part: "Part", folder: Path) -> None:
        self.log = folder.with_suffix(".log")
        self._part = part
        self._folder = folder
        self._lines: list[str] = []
        self._error: Exception | None = None
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        fleet, chapters = self._part
        try:
            await _run(chapters, fleet, self._folder, log=self.log, report=self._lines.append)
        except Exception as error:  # noqa: BLE001  # `report` raises it
            self._error = error
        finally:
            self._is_over.set()

    async def report(self) -> None:
        """Print what it said once it is over, and raise what ended it."""
        await self._is_over.wait()
        for line in self._lines:
            say(line)
        if self._error is not None:
            raise self._error
