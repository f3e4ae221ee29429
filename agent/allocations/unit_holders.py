"""Follows the pods that have units until their last process has ended, and lists them for the node's plugins.

    pod watch, processes of the node ─> pods.json, and the pods that `agent.allocations.reporter` keeps reporting

A pod that is deleted by force is gone for the API server and for kubelet at once. Its containers run on for
seconds, or for as long as a driver keeps a process in the kernel. No other pod gets its units meanwhile: the
allocation state keeps them while they are reported, and the plugins while they are in the file. The processes
are checked only while a pod that has just ended may have some.
"""

import asyncio
import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, final

import msgspec
import structlog

from agent.files import read_bytes, replace_file
from api.names import PodUid
from api.nodefiles.node_pods_file import TOUCH_EVERY_S, NodePodsFile, NodePodUnits
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from agent.kubelet.node_pods import NodePod, NodePods
    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock

    Find = Callable[[Collection[PodUid]], set[PodUid]]
    """Returns the pods of these that have processes; may take long."""

TASK: Final = "agent.occupants"
SOURCE_FILE: Final = "pods file"
SOURCE_TERMINATED: Final = "terminated pods"
CHECK_EVERY_S: Final = 0.1
"""Seconds between two checks while a terminated pod may have processes."""
FOLLOW_EVERY_S: Final = 1.0
"""The allocated units of a pod may change without a watch event."""
CLEAN_CHECKS: Final = 2
"""Clean checks in a row: a container may be about to start when its pod is deleted."""
STUCK_AFTER_S: Final = 30.0

_log = structlog.get_logger()


@final
@dataclass(slots=True)
class _Terminated:
    """A terminated pod that may have processes."""

    published: NodePodUnits
    since: float
    clean_checks: int = 0


@final
class UnitHolders:
    """The pods that hold units; `run` does the work."""

    def __init__(  # noqa: PLR0913  # its dependencies; tests set each alone
        self,
        pods: "NodePods",
        find: "Find",
        *,
        synced: asyncio.Event,
        path: "Path",
        clock: "Clock",
        problems: "ProblemRegistry",
        is_of_a_pool: "Callable[[str], bool]",
        allocated_units: "Callable[[PodUid], Collection[str]]" = lambda _: (),
        on_processes_ended: "Callable[[], None]" = lambda: None,
    ) -> None:
        """Wire the parts.

        Args:
            pods: the pods of this node.
            find: finds the pods with processes; runs in a thread.
            synced: set once the pod informer is synced; nothing is written before.
            path: of the file.
            clock: monotonic, for ages.
            problems: collects write errors, and pods whose processes do not end.
            is_of_a_pool: returns whether a resource is a pool's.
            allocated_units: returns the units that kubelet allocated to a pod; empty where they are not known.
            on_processes_ended: called when the last process of a terminated pod has ended.
        """
        self._pods = pods
        self._find = find
        self._synced = synced
        self._path = path
        self._clock = clock
        self._problems = problems
        self._is_of_a_pool = is_of_a_pool
        self._allocated_units = allocated_units
        self._on_processes_ended = on_processes_ended
        self._alive: dict[PodUid, NodePod] = {}
        self._terminated: dict[PodUid, _Terminated] = {}
        self._content = b""
        self._touched_at = float("-inf")
        TASK_FAILURES.labels(TASK)

    def terminated(self) -> "Collection[PodUid]":
        """Return the terminated pods that may have processes; a view, to be read at once."""
        self._follow()
        return self._terminated.keys()

    async def run(self) -> NoReturn:
        """Check and write until cancelled."""
        await self._synced.wait()
        self._take_over()
        while True:
            changed = self._pods.changed
            self._follow()
            self._write()
            if self._terminated:
                await self._check_processes()
                self._write()
            within_s = CHECK_EVERY_S if self._terminated else FOLLOW_EVERY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await changed.wait()

    def _follow(self) -> None:
        """Read the pods; those that are gone may have processes."""
        alive = {pod.uid: pod for pod in self._pods.all() if self._has_units(pod)}
        for uid, pod in self._alive.items():
            if uid not in alive:
                self._terminated[uid] = _Terminated(self._published(pod), self._clock.monotonic())
        for uid in alive.keys() & self._terminated.keys():
            del self._terminated[uid]
        self._alive = alive

    def _has_units(self, pod: "NodePod") -> bool:
        return not pod.is_ended and any(
            self._is_of_a_pool(resource)
            for container in pod.containers
            for resource in container.counts
        )

    def _published(self, pod: "NodePod") -> NodePodUnits:
        allocated = self._allocated_units(pod.uid)
        assigned = (unit for units in (pod.assigned or {}).values() for unit in units)
        return NodePodUnits(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            units=sorted(set(allocated or assigned)),
            is_given=bool(allocated),
        )

    def _take_over(self) -> None:
        """Take over the pods of an earlier agent's file that have terminated since."""
        content = read_bytes(self._path)
        try:
            file = msgspec.json.decode(content or b"", type=NodePodsFile)
        except (ValueError, RecursionError):
            return
        for item in file.pods:
            pod = self._pods.get(PodUid(item.uid))
            if pod is None or pod.is_ended:
                self._terminated[PodUid(item.uid)] = _Terminated(item, self._clock.monotonic())

    async def _check_processes(self) -> None:
        """Check the processes of terminated pods; drop the pods that have none any more."""
        try:
            found = await asyncio.to_thread(self._find, tuple(self._terminated))
        except OSError as error:
            TASK_FAILURES.labels(TASK).inc()
            _log.warning("processes cannot be read", error=str(error))
            found = set()
        has_ended = False
        for uid, pod in list(self._terminated.items()):
            pod.clean_checks = 0 if uid in found else pod.clean_checks + 1
            if uid in found:
                pod.published = msgspec.structs.replace(pod.published, is_over=True)
            if pod.clean_checks >= CLEAN_CHECKS:
                del self._terminated[uid]
                has_ended = True
        if has_ended:
            self._on_processes_ended()
        self._report_stuck()

    def _report_stuck(self) -> None:
        since = self._clock.monotonic() - STUCK_AFTER_S
        long = sorted(
            f"{pod.published.namespace}/{pod.published.name} ({', '.join(pod.published.units)})"
            for pod in self._terminated.values()
            if pod.since <= since
        )
        if long:
            text = f"processes of deleted pods still use their devices: {'; '.join(long)}"
            self._problems.set(SOURCE_TERMINATED, AgentDegraded.PROCESSES_LEFT, text)
        else:
            self._problems.clear(SOURCE_TERMINATED)

    def _write(self) -> None:
        pods = [self._published(pod) for pod in self._alive.values()]
        pods += (pod.published for pod in self._terminated.values())
        content = msgspec.json.encode(
            NodePodsFile(version="v1", pods=sorted(pods, key=lambda item: item.uid))
        )
        now = self._clock.monotonic()
        if content == self._content and now - self._touched_at < TOUCH_EVERY_S:
            return
        try:
            if not replace_file(self._path, content):
                os.utime(self._path)
        except OSError as error:
            TASK_FAILURES.labels(TASK).inc()
            text = f"{self._path} cannot be written: {error.strerror or error}"
            self._problems.set(SOURCE_FILE, AgentDegraded.NOT_PUBLISHED, text)
        else:
            self._content, self._touched_at = content, now
            self._problems.clear(SOURCE_FILE)
