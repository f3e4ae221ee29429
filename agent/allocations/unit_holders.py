"""`agent.allocations.unit_holders`: pods that have units, until their last process is gone; told to the node's plugins.

    the pods' watch, the processes of the node ─> pods.json, and which pods `agent.allocations.reporter` goes on reporting

A pod that is deleted by force is gone for the API server and for kubelet at once, and its containers run on for
seconds, or for as long as a driver keeps a process in the kernel. What it has is given to no other pod: the
books keep it while it is reported, and the plugins while it is in the file. The processes are looked at only
while a pod that has just ended may have some.
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
from api.nodefiles.pods import TOUCH_EVERY_S, NodePodsFile, NodePodUnits
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from agent.kubelet.pods import NodePod, NodePods
    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock

    Find = Callable[[Collection[PodUid]], set[PodUid]]
    """Returns those of the pods that have processes; may take long."""

TASK: Final = "agent.occupants"
SOURCE_FILE: Final = "pods file"
SOURCE_LEFT: Final = "pods left"
LOOK_EVERY_S: Final = 0.1
"""While a pod that is over may have processes."""
FOLLOW_EVERY_S: Final = 1.0
"""What pods were given may change without the watch."""
CLEAN_LOOKS: Final = 2
"""In a row: a container may be about to start when its pod is deleted."""
TOLD_AFTER_S: Final = 30.0

_log = structlog.get_logger()


@final
@dataclass(slots=True)
class _Left:
    """A pod that is over, and may have processes."""

    shown: NodePodUnits
    since: float
    clean_looks: int = 0


@final
class UnitHolders:
    """Follows the pods of the node; `run` does the work."""

    def __init__(  # noqa: PLR0913  # its surroundings; each is set alone by tests
        self,
        pods: "NodePods",
        find: "Find",
        *,
        synced: asyncio.Event,
        path: "Path",
        clock: "Clock",
        problems: "ProblemRegistry",
        is_of_a_pool: "Callable[[str], bool]",
    ) -> None:
        """Take the parts.

        Args:
            pods: the pods of this node.
            find: looks at the processes of the node, in a thread.
            synced: set once the first list of the pods is there; before, nothing is told.
            path: the file.
            clock: for pauses.
            problems: told where the file cannot be written, and of pods whose processes stay.
            is_of_a_pool: says whether a resource is a pool's.
        """
        self.given: Callable[[PodUid], Collection[str]] = lambda _: ()
        """Returns what kubelet gave to a pod, nothing where that is not known."""
        self.on_over: Callable[[], None] = lambda: None
        """Called where the last process of a pod is gone."""
        self._pods = pods
        self._find = find
        self._synced = synced
        self._path = path
        self._clock = clock
        self._problems = problems
        self._is_of_a_pool = is_of_a_pool
        self._alive: dict[PodUid, NodePod] = {}
        self._left: dict[PodUid, _Left] = {}
        self._content = b""
        self._touched_at = float("-inf")
        TASK_FAILURES.labels(TASK)

    def left(self) -> "Collection[PodUid]":
        """Return the pods that are over and may have processes, as of now; to be read at once."""
        self._follow()
        return self._left.keys()

    async def run(self) -> NoReturn:
        """Look and write until cancelled."""
        await self._synced.wait()
        self._recall()
        while True:
            changed = self._pods.changed
            self._follow()
            self._write()
            if self._left:
                await self._look()
                self._write()
            within_s = LOOK_EVERY_S if self._left else FOLLOW_EVERY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await changed.wait()

    def _follow(self) -> None:
        """Take over which pods there are."""
        alive = {pod.uid: pod for pod in self._pods.all() if self._has_units(pod)}
        for uid, pod in self._alive.items():
            if uid not in alive:
                self._left[uid] = _Left(self._shown(pod), self._clock.monotonic())
        for uid in alive.keys() & self._left.keys():
            del self._left[uid]
        self._alive = alive

    def _has_units(self, pod: "NodePod") -> bool:
        return not pod.is_ended and any(
            self._is_of_a_pool(resource) for one in pod.containers for resource in one.counts
        )

    def _shown(self, pod: "NodePod") -> NodePodUnits:
        given = self.given(pod.uid)
        assigned = (unit for units in (pod.assigned or {}).values() for unit in units)
        return NodePodUnits(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            units=sorted(set(given or assigned)),
            is_given=bool(given),
        )

    def _recall(self) -> None:
        """Take up the pods that an agent before us has told of, and that are over by now."""
        content = read_bytes(self._path)
        try:
            said = msgspec.json.decode(content or b"", type=NodePodsFile)
        except (ValueError, RecursionError):
            return
        for one in said.pods:
            if self._pods.get(PodUid(one.uid)) is None:
                self._left[PodUid(one.uid)] = _Left(one, self._clock.monotonic())

    async def _look(self) -> None:
        """Look at the processes of pods that are over; forget those that have none any more."""
        try:
            found = await asyncio.to_thread(self._find, tuple(self._left))
        except OSError as error:
            TASK_FAILURES.labels(TASK).inc()
            _log.warning("processes not seen", error=str(error))
            found = set()
        was_over = False
        for uid, left in list(self._left.items()):
            left.clean_looks = 0 if uid in found else left.clean_looks + 1
            if uid in found:
                left.shown = msgspec.structs.replace(left.shown, is_over=True)
            if left.clean_looks >= CLEAN_LOOKS:
                del self._left[uid]
                was_over = True
        if was_over:
            self.on_over()
        self._tell()

    def _tell(self) -> None:
        since = self._clock.monotonic() - TOLD_AFTER_S
        long = sorted(
            f"{left.shown.namespace}/{left.shown.name} ({', '.join(left.shown.units)})"
            for left in self._left.values()
            if left.since <= since
        )
        if long:
            text = f"pods are gone, and their processes keep their devices: {'; '.join(long)}"
            self._problems.set(SOURCE_LEFT, AgentDegraded.PROCESSES_LEFT, text)
        else:
            self._problems.clear(SOURCE_LEFT)

    def _write(self) -> None:
        pods = [self._shown(pod) for pod in self._alive.values()]
        pods += (left.shown for left in self._left.values())
        content = msgspec.json.encode(
            NodePodsFile(version="v1", pods=sorted(pods, key=lambda one: one.uid))
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
