"""`pool.life`: a pool's finalizer, its effective allocation, its maintenance, and its deletion.

`inventory.pools.maintenance` decides; the state is the pool's status, so that a restart between any two writes
continues where the last one ended. The finalizer is written first and removed last; if a pool goes before it
has one, devices, node labels and workloads follow by their own controllers, only later.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpupool import AllocationMode
from api.names import CONFIRM_ANNOTATION, GROUP, POOL_FINALIZER, pool_node_label
from api.status_conditions import true_since
from api.text import listed
from inventory.pools.drift import LayoutHistory
from inventory.pools.maintenance import (
    MaintenancePlan,
    MaintenanceStep,
    PoolUsage,
    allocation_text,
    plan_allocation,
    pods_text,
)
from kube.errors import Conflict, NotFound
from kube.event_recorder import ObjectReference
from kube.resources import GPU_POOLS
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerContext, ControllerSpec
from reconciler.pool.effective_allocation import PoolAllocations, maintenance_of
from reconciler.pool.usage import usage_of
from reconciler.pool.validation_cache import POOLS, VALIDITY, validity_cache
from reconciler.pool.workloads import naming_workloads
from reconciler.runtime import eviction
from reconciler.runtime.eviction import EvictionQueue
from reconciler.runtime.expectations import Expectations
from telemetry.conditions import PoolMaintenance
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from api.clock import Instant
    from api.kinds.gpupool import GPUPool
    from api.names import PodUid, PoolName
    from inventory.pools.validation import PoolValidityLookup
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from pool.allocation_state import AllocationState
    from pool.catalog import Catalog
    from pool.index.figures import IndexFigures
    from reconciler.controller_spec import Reconcile


@final
class PoolReferences:
    """Finds every object that names a pool."""

    def __init__(
        self,
        index: "IndexFigures",
        workloads: "Callable[[PoolName], Iterable[str]]",
    ) -> None:
        """Take what is searched.

        Args:
            index: the devices that name a pool, and the nodes with their labels.
            workloads: names the objects of a pool in our namespace, as `DaemonSet x`.
        """
        self._index = index
        self._workloads = workloads

    def of(self, pool: "PoolName") -> tuple[str, ...]:
        """Return the references as texts; empty once the finalizer may go. Reads every node."""
        return tuple(
            text
            for text in (
                _named("device", self._owned(pool)),
                _named("node label", self._labelled(pool)),
                _named("workload", self._workloads(pool)),
            )
            if text
        )

    def _owned(self, pool: "PoolName") -> "Iterator[str]":
        for names in self._index.state(pool).devices_by_node.values():
            yield from names

    def _labelled(self, pool: "PoolName") -> "Iterator[str]":
        label = pool_node_label(pool)
        return (node.name for node in self._index.nodes.values() if label in node.labels)


def _named(noun: str, names: "Iterable[str]") -> str:
    found = list(names)
    if not found:
        return ""
    count = f"1 {noun}" if len(found) == 1 else f"{len(found)} {noun}s"
    return f"{count} ({listed(found)})"


RBAC: Final = (
    PolicyRule(group=GROUP, resources=("gpupools", "gpupools/status"), verbs=("patch",)),
)

ACTION: Final = "LeadPool"
CHECK_S: Final = 2.0
"""Seconds between two reconciles of a pool that is in maintenance or being deleted."""
LAYOUT_CHECK_S: Final = 10.0
"""Seconds between two reconciles of a pool some of whose devices differ from its allocation."""
CONFLICT_RETRY_S: Final = 0.5
"""The watch shows the newer object within this."""
FIRST_PAUSE_S: Final = 5.0
MAX_PAUSE_S: Final = 60.0
"""Seconds between two attempts to evict pods that budgets protect; the first pause is the time
in which the disruption controller counts again."""

_REASONS: Final = {
    MaintenanceStep.WAIT: PoolMaintenance.WAITING,
    MaintenanceStep.EVICT: PoolMaintenance.EVICTING,
    MaintenanceStep.REBUILD: PoolMaintenance.REBUILDING,
    MaintenanceStep.BLOCKED: PoolMaintenance.BLOCKED,
    MaintenanceStep.DRIFT: PoolMaintenance.LAYOUT_DIFFERS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleDependencies:
    """Stores and services of the lifecycle."""

    allocation_state: "AllocationState"
    index: "IndexFigures"
    catalog: "Catalog"
    validity_of: "PoolValidityLookup"
    references: "Callable[[PoolName], tuple[str, ...]]"
    """Remains of a pool on devices, nodes and in our namespace; empty once its finalizer may go."""
    recorder: "EventRecorder"
    now: "Callable[[], Instant]"


class _Recorded(Enum):
    """The last Event, so that each is recorded once."""

    NOTHING = "nothing"
    """No maintenance is under way."""
    BEGUN = "begun"
    OVERDUE = "overdue"
    TERMINATING = "terminating"


@dataclass(slots=True)
class _Progress:
    """State of a pool between two reconciles; a restart may lose it."""

    uid: str
    """Another pool may come under the same name."""
    recorded: _Recorded
    evicted: "frozenset[PodUid]" = frozenset()
    protected: str = ""
    """Why the last attempt did not evict all, for the condition."""
    evict_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    layouts: LayoutHistory = field(default_factory=LayoutHistory)

    def stop_evicting(self) -> None:
        """Reset the evictions: the maintenance is over."""
        self.evicted, self.protected = frozenset(), ""
        self.evict_at, self.pause_s = 0.0, FIRST_PAUSE_S


@final
class PoolLifecycle:
    """Reconciles the lifecycle of one pool."""

    def __init__(self, client: "KubeClient", context: LifecycleDependencies) -> None:
        self._client = client
        self._context = context
        self._evicting = EvictionQueue(client)
        self._allocations = PoolAllocations(client, context.now)
        self._progress_by_pool: dict[PoolName, _Progress] = {}
        self._finalizers: Expectations[PoolName, list[str]] = Expectations(context.now)

    async def reconcile(self, name: "PoolName") -> float | None:
        """Take the next step; reconcile again while steps are left."""
        pool = self._context.catalog.pools.get(name)
        if pool is None:
            self._progress_by_pool.pop(name, None)
            return None
        progress = self._progress_by_pool.get(name)
        if progress is None or progress.uid != pool.metadata.uid:
            progress = self._progress_by_pool[name] = _Progress(
                pool.metadata.uid, _recorded_before(pool)
            )
        try:
            if pool.metadata.deletion_timestamp is not None:
                return await self._finalize(pool, progress)
            await self._set_finalizer(pool)
            pool = self._allocations.as_written(pool)
            if pool.drift is None and pool.metadata.annotation(CONFIRM_ANNOTATION) is not None:
                await self._drop_confirmation(pool)
            return await self._allocate(pool, progress)
        except NotFound:
            return None
        except Conflict:
            return CONFLICT_RETRY_S

    async def _set_finalizer(self, pool: "GPUPool") -> None:
        finalizers = pool.metadata.finalizers or []
        if POOL_FINALIZER not in finalizers:
            await self._write_finalizers(pool, [*finalizers, POOL_FINALIZER])

    async def _finalize(self, pool: "GPUPool", progress: _Progress) -> float | None:
        """Remove the finalizer of a pool that is being deleted, once nothing of it is left."""
        finalizers = pool.metadata.finalizers or []
        if POOL_FINALIZER not in finalizers:
            return None
        self._context.allocation_state.release_reservations(pool.name)
        if self._context.references(pool.name):
            usage = usage_of(self._context.allocation_state.reader, self._context.index, pool.name)
            if usage.pods and progress.recorded is not _Recorded.TERMINATING:
                progress.recorded = _Recorded.TERMINATING
                text = f"being deleted; waiting for {pods_text(usage.pods)}"
                self._warn(pool, EventReason.POOL_TERMINATING, text)
            return CHECK_S
        left = [finalizer for finalizer in finalizers if finalizer != POOL_FINALIZER]
        await self._write_finalizers(pool, left)
        return None

    async def _write_finalizers(self, pool: "GPUPool", finalizers: "list[str]") -> None:
        """Write the list whole, and only over the list that was read."""
        if self._finalizers.unseen(pool.name, pool.metadata) is not None:
            return
        version = pool.metadata.resource_version
        metadata = {"resourceVersion": version, "finalizers": finalizers or None}
        await self._client.merge_patch(GPU_POOLS, {"metadata": metadata}, name=pool.name)
        self._finalizers.expect_newer(pool.name, finalizers, pool.metadata)

    async def _allocate(self, pool: "GPUPool", progress: _Progress) -> float | None:
        allocation_state, began = self._context.allocation_state, true_since(maintenance_of(pool))
        usage = PoolUsage()
        if pool.is_in_maintenance:
            allocation_state.release_reservations(pool.name)
        if pool.is_changing or (began is not None and pool.drift is None):
            if not self._is_in_allocation_state(pool):
                return CHECK_S
            usage = usage_of(allocation_state.reader, self._context.index, pool.name)
        plan = plan_allocation(
            pool,
            usage,
            since=began,
            now=self._context.now().utc,
            fault=self._context.validity_of(pool.name).text,
            drift=self._drift(pool, progress),
        )
        match plan.step:
            case MaintenanceStep.RECORD | MaintenanceStep.NOTHING:
                await self._end(pool, progress, plan)
                return LAYOUT_CHECK_S if self._context.index.state(pool.name).differing else None
            case MaintenanceStep.SWITCH:
                return await self._switch(pool, progress, usage)
            case MaintenanceStep.BLOCKED if pool.status.allocation is None:
                return None
            case MaintenanceStep.EVICT:
                return await self._evict(pool, progress, plan)
            case (
                MaintenanceStep.WAIT
                | MaintenanceStep.REBUILD
                | MaintenanceStep.DRIFT
                | MaintenanceStep.BLOCKED
            ):  # pragma: no branch  # mypy: none is missing
                await self._report(pool, progress, plan)
                return CHECK_S

    def _drift(self, pool: "GPUPool", progress: _Progress) -> str:
        state = self._context.index.state(pool.name)
        return progress.layouts.observe(
            state.layout_losses,
            state.differing,
            devices=sum(map(len, state.devices_by_node.values())) if state.differing else 0,
            now=self._context.now().monotonic,
        )

    async def _drop_confirmation(self, pool: "GPUPool") -> None:
        """Remove a confirmation that was used, or that would confirm whatever comes next."""
        metadata = {
            "resourceVersion": pool.metadata.resource_version,
            "annotations": {CONFIRM_ANNOTATION: None},
        }
        await self._client.merge_patch(GPU_POOLS, {"metadata": metadata}, name=pool.name)

    def _is_in_allocation_state(self, pool: "GPUPool") -> bool:
        """Say whether the index counts units by the pool's status: it lags behind our own writes."""
        facts, allocation = self._context.index.pool(pool.name), pool.allocation
        return facts is not None and (
            facts.mode,
            facts.shares,
            facts.slices_per_device,
        ) == (allocation.mode, allocation.shares, allocation.slices_per_device)

    async def _end(self, pool: "GPUPool", progress: _Progress, plan: MaintenancePlan) -> None:
        """Report that the pool is as specified; a new pool gets its allocation recorded."""
        if not await self._allocations.write(pool, PoolMaintenance.NONE, plan.text):
            return
        if pool.drift is not None:
            progress.layouts.forget()
        if progress.recorded in {_Recorded.BEGUN, _Recorded.OVERDUE}:
            self._note(pool, EventReason.MAINTENANCE, f"maintenance is over: {plan.text}")
        progress.stop_evicting()
        progress.recorded = _Recorded.NOTHING

    async def _switch(self, pool: "GPUPool", progress: _Progress, usage: PoolUsage) -> float | None:
        """Make the desired allocation the effective one."""
        desired = pool.desired_allocation
        before, after = allocation_text(pool.allocation), allocation_text(desired)
        if AllocationMode.MIG in {desired.mode, pool.allocation.mode} and usage.devices:
            reason = PoolMaintenance.REBUILDING
            doing = "partitioned again" if desired.mode is AllocationMode.MIG else "made whole"
            text = f"changed from {before} to {after}: {usage.devices} devices are {doing}"
        else:
            reason = PoolMaintenance.NONE
            text = f"devices are allocated as specified: {after}"
        if not await self._allocations.write(pool, reason, text, switches=True):
            return None
        self._note(pool, EventReason.POOL_RECONFIGURED, f"changed from {before} to {after}")
        progress.stop_evicting()
        if reason is PoolMaintenance.NONE:
            progress.recorded = _Recorded.NOTHING
            return None
        progress.recorded = _Recorded.BEGUN
        return CHECK_S

    async def _report(self, pool: "GPUPool", progress: _Progress, plan: MaintenancePlan) -> None:
        """Report the maintenance: in the condition, and each step once as an Event."""
        reason = PoolMaintenance.OVERDUE if plan.is_overdue else _REASONS[plan.step]
        text = plan.text
        if plan.step is MaintenanceStep.EVICT and progress.protected:
            text = f"{text}; {progress.protected}"
        if not await self._allocations.write(pool, reason, text):
            return
        if progress.recorded is _Recorded.NOTHING:
            progress.recorded = _Recorded.BEGUN
            self._note(pool, EventReason.MAINTENANCE, text)
        if plan.is_overdue and progress.recorded is not _Recorded.OVERDUE:
            progress.recorded = _Recorded.OVERDUE
            self._warn(pool, EventReason.MAINTENANCE, text)

    async def _evict(self, pool: "GPUPool", progress: _Progress, plan: MaintenancePlan) -> float:
        """Report, request the evictions, and report the refused ones."""
        now = self._context.now().monotonic
        progress.evicted &= {pod.uid for pod in plan.pods}
        await self._report(pool, progress, plan)
        due = [pod for pod in plan.pods if pod.uid not in progress.evicted]
        if now < progress.evict_at or not due:
            return CHECK_S
        ended = await self._evicting.evict(due)
        progress.evicted |= {pod.uid for pod in ended.done}
        progress.protected = ended.obstacle
        progress.pause_s = FIRST_PAUSE_S if ended.done else min(MAX_PAUSE_S, progress.pause_s * 2)
        progress.evict_at = now + progress.pause_s
        await self._report(self._allocations.as_written(pool), progress, plan)
        return CHECK_S

    def _warn(self, pool: "GPUPool", reason: EventReason, text: str) -> None:
        self._context.recorder.warning(
            ObjectReference.to(GPU_POOLS, pool.metadata), reason, text, action=ACTION
        )

    def _note(self, pool: "GPUPool", reason: EventReason, text: str) -> None:
        self._context.recorder.normal(
            ObjectReference.to(GPU_POOLS, pool.metadata), reason, text, action=ACTION
        )


def _recorded_before(pool: "GPUPool") -> _Recorded:
    """Return the last Event of an earlier process, by the pool's condition."""
    current = maintenance_of(pool)
    if current is None or current.status != "True":
        return _Recorded.NOTHING
    return _Recorded.OVERDUE if current.reason == PoolMaintenance.OVERDUE.value else _Recorded.BEGUN


def _build(context: ControllerContext) -> "Reconcile":
    workloads = naming_workloads(context.stores.config_maps, context.stores.daemon_sets)
    return PoolLifecycle(
        context.client,
        LifecycleDependencies(
            allocation_state=context.allocation_state,
            index=context.index,
            catalog=context.catalog,
            validity_of=context.shared(validity_cache).validity_of,
            references=PoolReferences(context.index, workloads).of,
            recorder=context.recorder,
            now=context.now,
        ),
    ).reconcile


SPEC: Final = ControllerSpec(
    name="pool.life",
    rbac=(*RBAC, *eviction.RBAC),
    triggers=(VALIDITY, POOLS),
    initial=lambda context: list(context.catalog.pools),
    build=_build,
)
