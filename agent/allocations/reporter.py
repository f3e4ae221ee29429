"""Reports the units that kubelet allocated to the containers of this node.

    pod watch ─> kubelet's Get, a pod at a time ─> status.allocations of the node's GPUNodeInventory

The reporter calls `Get` and never `List`, which may make kubelet allocate a device twice
(`agent.kubelet.pod_resources`). The list is applied whole, by server-side apply under a field manager of its own,
where it differs from the object's; a restarted agent starts from the object and writes nothing. Known entries
stay while kubelet or the API server does not answer.

kubelet answers by name, and a pod may have the name of an earlier one. A response therefore counts for the pod
that the watch shows under the name before and after the call. A response that contradicts known entries needs
a second, equal one a second later, since the watch and kubelet change at different moments.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, final

import structlog

from agent.allocations.entries import body_of, entries_of, fitting, in_order, is_complete
from agent.allocations.poll_schedule import PollSchedule
from agent.errors import KubeletUnavailableError
from api.driver_upgrade import is_of_devices
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.names import PodUid
from kube.backoff import Backoff
from kube.errors import ApiError, KubeError, NotFound, one_line
from kube.resources import GPU_NODE_INVENTORIES
from telemetry.agent_metrics import PUBLISHED
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterable

    from agent.allocations.entries import Entries
    from agent.inventories import Inventories
    from agent.kubelet.node_pods import NodePod, NodePods
    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock
    from api.kinds.gpunodeinventory import ContainerDevices
    from api.kubelet.podresources import PodUnits
    from api.names import NodeName

FIELD_MANAGER: Final = "gpu-control-plane/agent-allocations"
TASK: Final = "agent.allocations"
SOURCE_KUBELET: Final = "allocations.kubelet"
SOURCE_WRITING: Final = "allocations"
"""Sources in the problem registry."""
GATHER_S: Final = 0.1
"""Pods are bound in bursts."""
FEW_PODS: Final = 100
"""A write of so many is 30 KB; the gathering time grows with the number of pods."""
CONFIRM_S: Final = 1.0
SOON_S: Final = 0.001
"""A call that is due within this time is due now."""
CHECK_S: Final = 1.0
"""Seconds between two checks for a restarted kubelet."""
VERIFY_S: Final = 600.0
"""Seconds between two reads of the object, which may have been edited or recreated."""

_log = structlog.get_logger()


class Kubelet(Protocol):
    """`Get` of `agent.kubelet.pod_resources.PodResources`."""

    async def get(self, namespace: str, name: str) -> "PodUnits | None":
        """Return the units of a pod, None where kubelet does not know it; bounded in time.

        Raises:
            KubeletUnavailableError: no valid response.
        """


@final
class AllocationReporter:
    """Calls kubelet for each pod and applies the allocations."""

    def __init__(  # noqa: PLR0913  # its dependencies; tests set each alone
        self,
        pods: "NodePods",
        kubelet: Kubelet,
        client: "Inventories",
        *,
        synced: asyncio.Event,
        clock: "Clock",
        node: "NodeName",
        problems: "ProblemRegistry",
        is_reported: "Callable[[str], bool]" = is_of_devices,
        kubelet_identity: "Callable[[], object]" = lambda: None,
        terminated: "Callable[[], Collection[PodUid]]" = tuple,
        rng: "random.Random | None" = None,
    ) -> None:
        """Wire the reporter; `run` does the work.

        Args:
            pods: the pods of this node.
            kubelet: its PodResources API.
            client: of the API server.
            synced: set once the pod informer is synced; nothing is called or written before.
            clock: monotonic, for the schedule.
            node: the name of the inventory.
            problems: collects failures of kubelet and of the API server.
            is_reported: returns whether a resource is a pool's, or one by which NVIDIA's own plugin gives devices.
            kubelet_identity: returns another value for a restarted kubelet, as `agent.files.file_identity` does.
            terminated: returns the terminated pods that may still have units (`agent.allocations.unit_holders`).
            rng: the source of chance of retries.
        """
        self._pods = pods
        self._kubelet = kubelet
        self._client = client
        self._synced = synced
        self._clock = clock
        self._node = node
        self._problems = problems
        self._is_reported = is_reported
        self._kubelet_identity = kubelet_identity
        self._terminated = terminated
        self._schedule = PollSchedule()
        self._recorded: dict[PodUid, Entries] = {}
        self._unconfirmed: dict[PodUid, Entries] = {}
        self._answered: set[PodUid] = set()
        # Running pods with at least one response of kubelet.
        self._names: dict[tuple[str, str], PodUid] = {}
        # namespace and name -> the pod of the last response
        self._changed = asyncio.Event()
        self._written: Entries | None = None
        """The entries of the object; None where it must be read."""
        self._has_taken_over = False
        self._was_truncated = False
        self._kubelet_backoff = Backoff(base_s=0.5, cap_s=5.0, rng=rng)
        self._writing_backoff = Backoff(base_s=0.5, cap_s=30.0, rng=rng)
        TASK_FAILURES.labels(TASK)

    def units_in_use(self) -> set[str] | None:
        """Return the units of running pods; None before kubelet answered for each of them."""
        if not self._synced.is_set() or self._running_pods().keys() - self._answered:
            return None
        return {
            unit for entries in self._recorded.values() for entry in entries for unit in entry.units
        }

    def allocated_units(self, uid: PodUid) -> set[str]:
        """Return the known units of a pod."""
        return {unit for entry in self._recorded.get(uid, ()) for unit in entry.units}

    def given_units(self, pod: "NodePod") -> set[str] | None:
        """Return the units that kubelet gave to a pod; None while it has not named those of each container."""
        recorded = self._recorded.get(pod.uid, ())
        is_known = is_complete(pod, recorded, is_reported=self._is_reported)
        return self.allocated_units(pod.uid) if is_known else None

    def entries(self) -> "Iterable[ContainerDevices]":
        """Return all known entries, as `status.allocations` has them."""
        return (entry for uid in sorted(self._recorded) for entry in self._recorded[uid])

    def follow(self) -> None:
        """Read again which pods run and which have terminated."""
        if self._synced.is_set():
            self._follow_pods()

    async def run(self) -> NoReturn:
        """Call kubelet and write until cancelled."""
        await self._synced.wait()
        self._follow_pods()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll(), name=f"{TASK}/polling")
            group.create_task(self._write_changes(), name=f"{TASK}/writing")
        raise AssertionError("a task group of endless tasks ended")

    async def _poll(self) -> NoReturn:
        identity = self._kubelet_identity()
        followed: asyncio.Event | None = None
        while True:
            changed = self._pods.changed
            if changed is not followed:
                followed = changed
                self._follow_pods()
            current = self._kubelet_identity()
            if current is not None and current != identity:
                identity = current
                self._schedule.recheck_all(self._clock.monotonic())
            due = self._schedule.next()
            wait_s = due[0] - self._clock.monotonic() if due is not None else CHECK_S
            if due is None or wait_s > SOON_S:
                await _set_within(changed, min(wait_s, CHECK_S))
                continue
            try:
                await self._call(due[1])
            except KubeletUnavailableError as error:
                TASK_FAILURES.labels(TASK).inc()
                self._problems.set(SOURCE_KUBELET, AgentDegraded.KUBELET_SILENT, str(error))
                await asyncio.sleep(self._kubelet_backoff.fail())
            else:
                self._kubelet_backoff.succeed()
                self._problems.clear(SOURCE_KUBELET)

    def _running_pods(self) -> "dict[PodUid, NodePod]":
        return {
            pod.uid: pod
            for pod in self._pods.all()
            if not pod.is_ended and any(map(self._is_reported, _resources(pod)))
        }

    def _follow_pods(self) -> None:
        """Update the schedule; drop the entries of pods that have terminated and hold nothing."""
        running = self._running_pods()
        self._answered &= running.keys()
        for uid in self._schedule.keep(running.keys(), self._clock.monotonic()):
            self._unconfirmed.pop(uid, None)
        gone = self._recorded.keys() - running.keys() - set(self._terminated())
        for uid in gone:
            del self._recorded[uid]
        if gone:
            self._changed.set()
        if len(self._names) > 2 * len(running) + 100:
            names = {(pod.namespace, pod.name) for pod in running.values()}
            self._names = {name: uid for name, uid in self._names.items() if name in names}

    async def _call(self, uid: PodUid) -> None:
        pod = self._pods.get(uid)
        self._schedule.asked(uid, self._clock.monotonic())
        if pod is None or self._pods.find(pod.namespace, pod.name) is not pod:
            # Another pod has the name by now, and kubelet would answer for that one.
            self._schedule.retry(uid, self._clock.monotonic())
            return
        answer = await self._kubelet.get(pod.namespace, pod.name)
        now = self._clock.monotonic()
        after = self._pods.find(pod.namespace, pod.name)
        if after is None or after.uid != uid:
            self._schedule.retry(uid, now)
            return
        self._answered.add(uid)
        recorded = self._recorded.get(uid, ())
        entries = recorded
        if answer is not None:
            entries = entries_of(pod, answer, recorded, is_reported=self._is_reported)
        if entries != recorded and self._is_to_be_confirmed(pod, entries):
            self._schedule.confirm(uid, now, CONFIRM_S)
            return
        self._unconfirmed.pop(uid, None)
        if entries:
            self._names[pod.namespace, pod.name] = uid
        if entries != recorded:
            self._recorded[uid] = entries
            self._changed.set()
            _log.info("allocated", pod=pod.ref, uid=uid, units=[entry.units for entry in entries])
        # kubelet lists nothing of a pod whose init containers alone ask for units: it must know the pod.
        is_known = answer is not None or bool(entries)
        if is_known and is_complete(pod, entries, is_reported=self._is_reported):
            self._schedule.complete(uid, now)
        else:
            self._schedule.retry(uid, now)

    def _is_to_be_confirmed(self, pod: "NodePod", entries: "Entries") -> bool:
        """Return whether the response may be about another pod of this name, and is the first such."""
        before = {(item.container, item.resource): item for item in self._recorded.get(pod.uid, ())}
        contradicts = any(
            before.get((entry.container, entry.resource), entry).units != entry.units
            for entry in entries
        )
        had_other = self._names.get((pod.namespace, pod.name), pod.uid) != pod.uid
        if not contradicts and not had_other:
            return False
        is_second = self._unconfirmed.get(pod.uid) == entries
        self._unconfirmed[pod.uid] = entries
        return not is_second

    async def _write_changes(self) -> NoReturn:
        while True:
            try:
                await self._apply_changes()
            except KubeError as error:
                await asyncio.sleep(self._failed(error))
                continue
            self._writing_backoff.succeed()
            self._problems.clear(SOURCE_WRITING)
            if await _set_within(self._changed, VERIFY_S):
                await asyncio.sleep(GATHER_S * max(1.0, len(self._recorded) / FEW_PODS))
            else:
                self._written = None

    async def _apply_changes(self) -> None:
        """Read the object where it is not known, and apply the entries where they differ."""
        if self._written is None:
            current = await self._client.get(GPU_NODE_INVENTORIES, GPUNodeInventory, self._node)
            self._written = tuple(current.status.allocations or ())
            if not self._has_taken_over:
                self._take_over(self._written)
        self._changed.clear()
        desired = self._desired()
        if desired == self._written:
            return
        # A failed apply may have been carried out: the object is read then.
        self._written = None
        await self._client.apply(
            GPU_NODE_INVENTORIES,
            body_of(self._node, desired),
            field_manager=FIELD_MANAGER,
            subresource="status",
        )
        self._written = desired
        PUBLISHED.labels("allocations", "written").inc()

    def _take_over(self, current: "Entries") -> None:
        """Take over the entries of an earlier agent for pods without a response yet."""
        self._has_taken_over = True
        by_uid: dict[PodUid, list[ContainerDevices]] = {}
        terminated = self._terminated()
        for entry in current:
            by_uid.setdefault(PodUid(entry.uid), []).append(entry)
        for uid, entries in by_uid.items():
            if uid in self._schedule or uid in terminated:
                self._recorded.setdefault(uid, in_order(entries))

    def _desired(self) -> "Entries":
        everything = in_order(entry for item in self._recorded.values() for entry in item)
        desired = fitting(everything)
        was_truncated, self._was_truncated = self._was_truncated, len(desired) < len(everything)
        if self._was_truncated and not was_truncated:
            _log.warning(
                "allocations truncated: the object has reached its size limit",
                reported=len(desired),
                recorded=len(everything),
            )
        return desired

    def _failed(self, error: KubeError) -> float:
        TASK_FAILURES.labels(TASK).inc()
        PUBLISHED.labels("allocations", "failed").inc()
        if self._writing_backoff.failures == 0:
            _log.warning("allocations not written", node=self._node, error=one_line(str(error)))
        if not isinstance(error, NotFound):
            # NotFound is expected until the node's devices are known and the inventory is created.
            text = f"actual allocations cannot be written: {error}"
            self._problems.set(SOURCE_WRITING, AgentDegraded.NOT_PUBLISHED, text)
        return self._writing_backoff.fail(
            error.retry_after_s if isinstance(error, ApiError) else None
        )


async def _set_within(event: asyncio.Event, within_s: float) -> bool:
    """Wait for the event; return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()
    return event.is_set()


def _resources(pod: "NodePod") -> set[str]:
    return {resource for container in pod.containers for resource in container.counts}
