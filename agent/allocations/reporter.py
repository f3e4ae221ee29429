"""`agent.allocations.entries`: what kubelet gave to the containers of this node, told to the API server.

    the pods' watch ─> kubelet's Get, a pod at a time ─> status.allocations of the node's GPUNodeInventory

kubelet is asked by `Get` and never by `List`, which may make it give a device twice (`agent.kubelet.pod_resources`).
The list is written whole, by server-side apply under a field manager of its own, where it is another than
what is there; an agent that restarts takes over what is there and writes nothing. What is known is kept
while kubelet or the API server does not answer.

kubelet answers by name, and a pod may have the name of one before it. So the answer counts for the pod that
the watch shows under the name before the call and after it; and one that contradicts what is known of that
name is heard twice, a second apart, since the watch and kubelet change at different moments.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeVar, final

import structlog

from agent.allocations.entries import body_of, entries_of, fitting, in_order, is_complete
from agent.allocations.poll_schedule import PollSchedule
from agent.errors import KubeletUnavailableError
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.names import RESOURCE_PREFIX, PodUid
from kube.backoff import Backoff
from kube.errors import ApiError, KubeError, NotFound, one_line
from kube.resources import GPU_NODE_INVENTORIES
from telemetry.agent_metrics import PUBLISHED
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection

    from agent.allocations.entries import Entries
    from agent.kubelet.pods import NodePod, NodePods
    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock
    from api.kinds.gpunodeinventory import ContainerDevices
    from api.kubelet.podresources import PodUnits
    from api.names import NodeName
    from kube.resources import Resource

FIELD_MANAGER: Final = "gpu-control-plane/agent-allocations"
TASK: Final = "agent.allocations"
SOURCE_KUBELET: Final = "allocations.kubelet"
SOURCE_WRITING: Final = "allocations"
"""Of our two problems."""
GATHER_S: Final = 0.1
"""Pods are bound in bursts."""
FEW_PODS: Final = 100
"""Of which a write is 30 KB; where there are more, it is waited for longer by as much."""
CONFIRM_S: Final = 1.0
SOON_S: Final = 0.001
"""What is due so soon is due now."""
LOOK_S: Final = 1.0
"""Between two looks whether kubelet is another."""
VERIFY_S: Final = 600.0
"""Between two reads of what is written: somebody may have taken it away, or the object be another."""

_log = structlog.get_logger()

T = TypeVar("T")


class Kubelet(Protocol):
    """What is asked of kubelet; `agent.kubelet.pod_resources.PodResources`."""

    async def get(self, namespace: str, name: str) -> "PodUnits | None":
        """Return what a pod has, None where kubelet does not know it; bounded in time.

        Raises:
            KubeletUnavailable: no answer that makes sense.
        """


class Inventories(Protocol):
    """What is asked of the API server; `kube.client.KubeClient`."""

    async def get(self, resource: "Resource", type_: type[T], name: str) -> T:
        """Return the object."""

    async def apply(
        self, resource: "Resource", body: object, *, field_manager: str, subresource: str
    ) -> object:
        """Apply on the server's side, with force."""


@final
class AllocationReporter:
    """Asks kubelet and writes what it says."""

    def __init__(  # noqa: PLR0913  # its surroundings; each is set alone by tests
        self,
        pods: "NodePods",
        kubelet: Kubelet,
        client: Inventories,
        *,
        synced: asyncio.Event,
        clock: "Clock",
        node: "NodeName",
        problems: "ProblemRegistry",
        is_of_a_pool: "Callable[[str], bool]" = lambda resource: resource.startswith(
            RESOURCE_PREFIX
        ),
        incarnation: "Callable[[], object]" = lambda: None,
        left: "Callable[[], Collection[PodUid]]" = tuple,
        rng: "random.Random | None" = None,
    ) -> None:
        """Take the parts; `run` does the work.

        Args:
            pods: the pods of this node.
            kubelet: whom to ask.
            client: where to write.
            synced: set once the first list of the pods is there; before, nothing is asked or written.
            clock: for pauses.
            node: whose inventory is written.
            problems: told where kubelet or the API server does not do its part.
            is_of_a_pool: says whether a resource is a pool's.
            incarnation: returns another value for another kubelet, as `agent.files.file_identity` does.
            left: returns the pods that are over, and that may have their units still (`agent.allocations.unit_holders`).
            rng: the source of chance of retries.
        """
        self._pods = pods
        self._kubelet = kubelet
        self._client = client
        self._synced = synced
        self._clock = clock
        self._node = node
        self._problems = problems
        self._is_of_a_pool = is_of_a_pool
        self._incarnation = incarnation
        self._left = left
        self._schedule = PollSchedule()
        self._known: dict[PodUid, Entries] = {}
        self._unconfirmed: dict[PodUid, Entries] = {}
        self._heard: set[PodUid] = set()
        # Of the pods that there are, those of which kubelet spoke at least once.
        self._names: dict[tuple[str, str], PodUid] = {}
        # namespace and name -> the pod that was last asked about under it
        self._changed = asyncio.Event()
        self._written: Entries | None = None
        """What is there; None where that is to be read."""
        self._has_taken_over = False
        self._was_cut = False
        self._asking_backoff = Backoff(base_s=0.5, cap_s=5.0, rng=rng)
        self._writing_backoff = Backoff(base_s=0.5, cap_s=30.0, rng=rng)
        TASK_FAILURES.labels(TASK)

    def units_in_use(self) -> set[str] | None:
        """Return the units that kubelet has given to live pods; None before it spoke of each of them."""
        if not self._synced.is_set() or self._there().keys() - self._heard:
            return None
        return {
            unit for entries in self._known.values() for entry in entries for unit in entry.units
        }

    def given(self, uid: PodUid) -> set[str]:
        """Return the units that kubelet has given to a pod, as far as is known."""
        return {unit for entry in self._known.get(uid, ()) for unit in entry.units}

    def follow(self) -> None:
        """Look again at which pods there are, and which are over."""
        if self._synced.is_set():
            self._follow_pods()

    async def run(self) -> NoReturn:
        """Ask and write until cancelled."""
        await self._synced.wait()
        self._follow_pods()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ask_on(), name=f"{TASK}/asking")
            group.create_task(self._write_on(), name=f"{TASK}/writing")
        raise AssertionError("a task group of endless tasks ended")

    # --- asking --------------------------------------------------------------------------------

    async def _ask_on(self) -> NoReturn:
        kubelet = self._incarnation()
        followed: asyncio.Event | None = None
        while True:
            changed = self._pods.changed
            if changed is not followed:
                followed = changed
                self._follow_pods()
            present = self._incarnation()
            if present is not None and present != kubelet:
                kubelet = present
                self._schedule.doubt_all(self._clock.monotonic())
            due = self._schedule.next()
            wait_s = due[0] - self._clock.monotonic() if due is not None else LOOK_S
            if due is None or wait_s > SOON_S:
                await _set_within(changed, min(wait_s, LOOK_S))
                continue
            try:
                await self._ask(due[1])
            except KubeletUnavailableError as error:
                TASK_FAILURES.labels(TASK).inc()
                self._problems.set(SOURCE_KUBELET, AgentDegraded.KUBELET_SILENT, str(error))
                await asyncio.sleep(self._asking_backoff.fail())
            else:
                self._asking_backoff.succeed()
                self._problems.clear(SOURCE_KUBELET)

    def _there(self) -> "dict[PodUid, NodePod]":
        """Return the pods that are asked about."""
        return {
            pod.uid: pod
            for pod in self._pods.all()
            if not pod.is_ended and any(map(self._is_of_a_pool, _resources(pod)))
        }

    def _follow_pods(self) -> None:
        """Take over which pods there are; what is known of those that are over is not said any more."""
        there = self._there()
        self._heard &= there.keys()
        for uid in self._schedule.keep(there.keys(), self._clock.monotonic()):
            self._unconfirmed.pop(uid, None)
        gone = self._known.keys() - there.keys() - set(self._left())
        for uid in gone:
            del self._known[uid]
        if gone:
            self._changed.set()
        if len(self._names) > 2 * len(there) + 100:
            names = {(pod.namespace, pod.name) for pod in there.values()}
            self._names = {name: uid for name, uid in self._names.items() if name in names}

    async def _ask(self, uid: PodUid) -> None:
        pod = self._pods.get(uid)
        self._schedule.asked(uid, self._clock.monotonic())
        if pod is None or self._pods.find(pod.namespace, pod.name) is not pod:
            # Another pod has the name by now, and kubelet would speak of that one.
            self._schedule.retry(uid, self._clock.monotonic())
            return
        answer = await self._kubelet.get(pod.namespace, pod.name)
        now = self._clock.monotonic()
        after = self._pods.find(pod.namespace, pod.name)
        if after is None or after.uid != uid:
            self._schedule.retry(uid, now)
            return
        self._heard.add(uid)
        known = self._known.get(uid, ())
        entries = known
        if answer is not None:
            entries = entries_of(pod, answer, known, is_of_a_pool=self._is_of_a_pool)
        if entries != known and self._is_to_be_confirmed(pod, entries):
            self._schedule.confirm(uid, now, CONFIRM_S)
            return
        self._unconfirmed.pop(uid, None)
        if entries:
            self._names[pod.namespace, pod.name] = uid
        if entries != known:
            self._known[uid] = entries
            self._changed.set()
            _log.info("allocated", pod=pod.ref, uid=uid, units=[one.units for one in entries])
        if is_complete(pod, entries, is_of_a_pool=self._is_of_a_pool):
            self._schedule.settle(uid, now)
        else:
            self._schedule.retry(uid, now)

    def _is_to_be_confirmed(self, pod: "NodePod", entries: "Entries") -> bool:
        """Say whether the answer may be about another pod of this name, and was not heard before."""
        before = {(one.container, one.resource): one for one in self._known.get(pod.uid, ())}
        contradicts = any(
            before.get((one.container, one.resource), one).units != one.units for one in entries
        )
        had_other = self._names.get((pod.namespace, pod.name), pod.uid) != pod.uid
        if not contradicts and not had_other:
            return False
        is_heard = self._unconfirmed.get(pod.uid) == entries
        self._unconfirmed[pod.uid] = entries
        return not is_heard

    # --- writing -------------------------------------------------------------------------------

    async def _write_on(self) -> NoReturn:
        while True:
            try:
                await self._settle()
            except KubeError as error:
                await asyncio.sleep(self._failed(error))
                continue
            self._writing_backoff.succeed()
            self._problems.clear(SOURCE_WRITING)
            if await _set_within(self._changed, VERIFY_S):
                await asyncio.sleep(GATHER_S * max(1.0, len(self._known) / FEW_PODS))
            else:
                self._written = None

    async def _settle(self) -> None:
        """Read what is there where that is not known, and write where something else is to be said."""
        if self._written is None:
            shown = await self._client.get(GPU_NODE_INVENTORIES, GPUNodeInventory, self._node)
            self._written = tuple(shown.status.allocations or ())
            if not self._has_taken_over:
                self._take_over(self._written)
        self._changed.clear()
        wanted = self._wanted()
        if wanted == self._written:
            return
        # Whether a write that fails was carried out is not known: it is read then.
        self._written = None
        await self._client.apply(
            GPU_NODE_INVENTORIES,
            body_of(self._node, wanted),
            field_manager=FIELD_MANAGER,
            subresource="status",
        )
        self._written = wanted
        PUBLISHED.labels("allocations", "written").inc()

    def _take_over(self, shown: "Entries") -> None:
        """Know what an agent before us has said of pods that kubelet has not been asked about yet."""
        self._has_taken_over = True
        by_uid: dict[PodUid, list[ContainerDevices]] = {}
        left = self._left()
        for entry in shown:
            by_uid.setdefault(PodUid(entry.uid), []).append(entry)
        for uid, entries in by_uid.items():
            if uid in self._schedule or uid in left:
                self._known.setdefault(uid, in_order(entries))

    def _wanted(self) -> "Entries":
        everything = in_order(entry for some in self._known.values() for entry in some)
        wanted = fitting(everything)
        was_cut, self._was_cut = self._was_cut, len(wanted) < len(everything)
        if self._was_cut and not was_cut:
            _log.warning(
                "not all allocations are reported: an object holds no more",
                reported=len(wanted),
                known=len(everything),
            )
        return wanted

    def _failed(self, error: KubeError) -> float:
        TASK_FAILURES.labels(TASK).inc()
        PUBLISHED.labels("allocations", "failed").inc()
        if self._writing_backoff.failures == 0:
            _log.warning("allocations not written", node=self._node, error=one_line(str(error)))
        if not isinstance(error, NotFound):
            # Without an inventory nobody misses anything: it is made once the node's cards are known.
            text = f"what containers got cannot be written: {error}"
            self._problems.set(SOURCE_WRITING, AgentDegraded.NOT_PUBLISHED, text)
        return self._writing_backoff.fail(
            error.retry_after_s if isinstance(error, ApiError) else None
        )


async def _set_within(event: asyncio.Event, within_s: float) -> bool:
    """Wait for the event; say whether it came."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()
    return event.is_set()


def _resources(pod: "NodePod") -> set[str]:
    return {resource for container in pod.containers for resource in container.counts}
