"""`pool.life`: a pool's finalizer, its allocation in effect, its maintenance, and its end.

What to do is decided by `inventory.pools.maintenance`; the state is the pool's status, so that a restart between
any two writes goes on where the last one ended. The finalizer is written before anything else and taken off
last; should a pool go before it was there, devices, marks and workloads follow by themselves, only later.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from api.conditions import true_since
from api.kinds.gpupool import AllocationMode
from api.names import GROUP, POOL_FINALIZER
from inventory.pools.maintenance import (
    MaintenancePlan,
    MaintenanceStep,
    PoolUsage,
    allocation_text,
    plan_allocation,
    pods_text,
)
from kube.errors import Conflict, NotFound
from kube.events import ObjectReference
from kube.resources import GPU_POOLS
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerContext, ControllerSpec
from reconciler.pool.effective_allocation import PoolAllocations, maintenance_of
from reconciler.pool.remains import PoolRemains
from reconciler.pool.usage import usage_of
from reconciler.pool.validation_cache import POOLS, VALIDITY, validity_cache
from reconciler.pool.workloads import naming_workloads
from reconciler.runtime import eviction
from reconciler.runtime.eviction import Evicted, EvictionQueue
from reconciler.runtime.expectations import Expectations
from telemetry.conditions import PoolMaintenance
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from api.kinds.gpupool import GPUPool
    from api.names import PodUid, PoolName
    from inventory.pools.validation import PoolValidityLookup
    from kube.client import KubeClient
    from kube.events import EventRecorder
    from pool.allocation_state import AllocationState
    from pool.catalog import Catalog
    from pool.index.device_index import DeviceIndex
    from pool.model import Instant
    from reconciler.controller_spec import Reconcile

RBAC: Final = (
    PolicyRule(group=GROUP, resources=("gpupools", "gpupools/status"), verbs=("patch",)),
)

ACTION: Final = "LeadPool"
LOOK_S: Final = 2.0
"""Between two looks at a pool that is in maintenance or being deleted."""
CONFLICT_RETRY_S: Final = 0.5
"""The watch shows the newer object within this."""
FIRST_PAUSE_S: Final = 5.0
MAX_PAUSE_S: Final = 60.0
"""Between two attempts to evict pods that budgets protect; the first pause is what a budget's controller
takes to count again."""

_REASONS: Final = {
    MaintenanceStep.WAIT: PoolMaintenance.WAITING,
    MaintenanceStep.EVICT: PoolMaintenance.EVICTING,
    MaintenanceStep.REBUILD: PoolMaintenance.REBUILDING,
    MaintenanceStep.BLOCKED: PoolMaintenance.BLOCKED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleDependencies:
    """What the life of pools is decided by."""

    allocation_state: "AllocationState"
    index: "DeviceIndex"
    catalog: "Catalog"
    verdict: "PoolValidityLookup"
    remains: "Callable[[PoolName], tuple[str, ...]]"
    """What is left of a pool on devices, nodes and in our namespace; empty once it may go."""
    recorder: "EventRecorder"
    now: "Callable[[], Instant]"


class _Said(Enum):
    """What was told in events last, so that each is told once."""

    NOTHING = "nothing"
    """No maintenance is under way."""
    BEGUN = "begun"
    OVERDUE = "overdue"
    TERMINATING = "terminating"


@dataclass(slots=True)
class _Course:
    """What is remembered of a pool between two looks; a restart may forget it."""

    uid: str
    """Another pool may come under the same name."""
    said: _Said
    evicted: "frozenset[PodUid]" = frozenset()
    protected: str = ""
    """Why the last attempt did not evict all, for the condition."""
    evict_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S

    def stop_evicting(self) -> None:
        """Forget who was evicted and who is protected: the maintenance is over."""
        self.evicted, self.protected = frozenset(), ""
        self.evict_at, self.pause_s = 0.0, FIRST_PAUSE_S


@final
class PoolLifecycle:
    """Leads one pool through its life."""

    def __init__(self, client: "KubeClient", context: LifecycleDependencies) -> None:
        self._client = client
        self._context = context
        self._evicting = EvictionQueue(client)
        self._allocations = PoolAllocations(client, context.now)
        self._courses: dict[PoolName, _Course] = {}
        self._finalizers: Expectations[PoolName, list[str]] = Expectations(context.now)

    async def reconcile(self, name: "PoolName") -> float | None:
        """Do the next thing that the pool needs; look again while it is under way."""
        pool = self._context.catalog.pools.get(name)
        if pool is None:
            self._courses.pop(name, None)
            return None
        course = self._courses.get(name)
        if course is None or course.uid != pool.metadata.uid:
            course = self._courses[name] = _Course(pool.metadata.uid, _said_before(pool))
        try:
            if pool.metadata.deletion_timestamp is not None:
                return await self._end(pool, course)
            await self._set_finalizer(pool)
            return await self._allocate(self._allocations.as_written(pool), course)
        except NotFound:
            return None
        except Conflict:
            return CONFLICT_RETRY_S

    # --- the beginning and the end ---------------------------------------------------------------

    async def _set_finalizer(self, pool: "GPUPool") -> None:
        finalizers = pool.metadata.finalizers or []
        if POOL_FINALIZER not in finalizers:
            await self._write_finalizers(pool, [*finalizers, POOL_FINALIZER])

    async def _end(self, pool: "GPUPool", course: _Course) -> float | None:
        """Let go of a pool that is being deleted, once nothing of it is left."""
        finalizers = pool.metadata.finalizers or []
        if POOL_FINALIZER not in finalizers:
            return None
        self._context.allocation_state.release_reservations(pool.name)
        if self._context.remains(pool.name):
            usage = usage_of(self._context.allocation_state.reader, self._context.index, pool.name)
            if usage.pods and course.said is not _Said.TERMINATING:
                course.said = _Said.TERMINATING
                text = f"being deleted, and waits for {pods_text(usage.pods)}"
                self._warn(pool, EventReason.POOL_TERMINATING, text)
            return LOOK_S
        left = [one for one in finalizers if one != POOL_FINALIZER]
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

    # --- the allocation --------------------------------------------------------------------------

    async def _allocate(self, pool: "GPUPool", course: _Course) -> float | None:
        allocation_state, began = self._context.allocation_state, true_since(maintenance_of(pool))
        usage = PoolUsage()
        if pool.is_in_maintenance:
            allocation_state.release_reservations(pool.name)
        if pool.is_in_maintenance or began is not None:
            if not self._is_known_to_allocation_state(pool):
                return LOOK_S
            usage = usage_of(allocation_state.reader, self._context.index, pool.name)
        plan = plan_allocation(
            pool,
            usage,
            since=began,
            now=self._context.now().utc,
            fault=self._context.verdict(pool.name).text,
        )
        match plan.step:
            case MaintenanceStep.RECORD | MaintenanceStep.NOTHING:
                await self._rest(pool, course, plan)
                return None
            case MaintenanceStep.SWITCH:
                return await self._switch(pool, course, usage)
            case MaintenanceStep.BLOCKED if pool.status.allocation is None:
                return None
            case MaintenanceStep.EVICT:
                return await self._evict(pool, course, plan)
            case (
                MaintenanceStep.WAIT | MaintenanceStep.REBUILD | MaintenanceStep.BLOCKED
            ):  # pragma: no branch  # mypy: none is missing
                await self._report(pool, course, plan)
                return LOOK_S

    def _is_known_to_allocation_state(self, pool: "GPUPool") -> bool:
        """Say whether the index counts units as the pool's status says: it lags behind our own writes."""
        facts, allocation = self._context.index.pool(pool.name), pool.allocation
        return facts is not None and (
            facts.mode,
            facts.mig_profile,
            facts.slices_per_device,
        ) == (allocation.mode, allocation.mig_profile, allocation.slices_per_device)

    async def _rest(self, pool: "GPUPool", course: _Course, plan: MaintenancePlan) -> None:
        """Say that the pool is as its spec wants it; a new one gets its allocation recorded."""
        if not await self._allocations.write(pool, PoolMaintenance.NONE, plan.text):
            return
        if course.said in {_Said.BEGUN, _Said.OVERDUE}:
            self._note(pool, EventReason.MAINTENANCE, f"maintenance is over: {plan.text}")
        course.stop_evicting()
        course.said = _Said.NOTHING

    async def _switch(self, pool: "GPUPool", course: _Course, usage: PoolUsage) -> float | None:
        """Make the wanted allocation the present one."""
        wanted = pool.wanted_allocation
        before, after = allocation_text(pool.allocation), allocation_text(wanted)
        if wanted.mode is AllocationMode.MIG and usage.devices:
            reason = PoolMaintenance.REBUILDING
            text = f"changed from {before} to {after}: the nodes cut {usage.devices} cards"
        else:
            reason = PoolMaintenance.NONE
            text = f"cards are given out as the spec says: {after}"
        if not await self._allocations.write(pool, reason, text, switches=True):
            return None
        self._note(pool, EventReason.POOL_RECONFIGURED, f"changed from {before} to {after}")
        course.stop_evicting()
        if reason is PoolMaintenance.NONE:
            course.said = _Said.NOTHING
            return None
        course.said = _Said.BEGUN
        return LOOK_S

    async def _report(self, pool: "GPUPool", course: _Course, plan: MaintenancePlan) -> None:
        """Say how far the maintenance is: in the condition, and once each in events."""
        reason = PoolMaintenance.OVERDUE if plan.is_overdue else _REASONS[plan.step]
        text = plan.text
        if plan.step is MaintenanceStep.EVICT and course.protected:
            text = f"{text}; {course.protected}"
        if not await self._allocations.write(pool, reason, text):
            return
        if course.said is _Said.NOTHING:
            course.said = _Said.BEGUN
            self._note(pool, EventReason.MAINTENANCE, text)
        if plan.is_overdue and course.said is not _Said.OVERDUE:
            course.said = _Said.OVERDUE
            self._warn(pool, EventReason.MAINTENANCE, text)

    async def _evict(self, pool: "GPUPool", course: _Course, plan: MaintenancePlan) -> float:
        """Say it, ask for the evictions, and say which of them were refused."""
        now = self._context.now().monotonic
        course.evicted &= {pod.uid for pod in plan.pods}
        await self._report(pool, course, plan)
        due = [pod for pod in plan.pods if pod.uid not in course.evicted]
        if now < course.evict_at or not due:
            return LOOK_S
        ended = await self._evicting.evict(due)
        course.evicted |= {pod.uid for pod in ended.done}
        course.protected = _protected_text(ended)
        course.pause_s = FIRST_PAUSE_S if ended.done else min(MAX_PAUSE_S, course.pause_s * 2)
        course.evict_at = now + course.pause_s
        await self._report(self._allocations.as_written(pool), course, plan)
        return LOOK_S

    # --- telling ---------------------------------------------------------------------------------

    def _warn(self, pool: "GPUPool", reason: EventReason, text: str) -> None:
        self._context.recorder.warning(
            ObjectReference.to(GPU_POOLS, pool.metadata), reason, text, action=ACTION
        )

    def _note(self, pool: "GPUPool", reason: EventReason, text: str) -> None:
        self._context.recorder.normal(
            ObjectReference.to(GPU_POOLS, pool.metadata), reason, text, action=ACTION
        )


def _said_before(pool: "GPUPool") -> _Said:
    """Return what an earlier process told, by what the pool shows."""
    shown = maintenance_of(pool)
    if shown is None or shown.status != "True":
        return _Said.NOTHING
    return _Said.OVERDUE if shown.reason == PoolMaintenance.OVERDUE.value else _Said.BEGUN


def _protected_text(ended: Evicted) -> str:
    parts: Iterable[str] = (
        f"{word} {pods_text(pods)}"
        for word, pods in (
            ("a PodDisruptionBudget protects", ended.refused),
            ("the API server did not evict", ended.failed),
        )
        if pods
    )
    return ", ".join(parts)


def _build(context: ControllerContext) -> "Reconcile":
    workloads = naming_workloads(context.caches.config_maps, context.caches.daemon_sets)
    return PoolLifecycle(
        context.client,
        LifecycleDependencies(
            allocation_state=context.allocation_state,
            index=context.index,
            catalog=context.catalog,
            verdict=context.shared(validity_cache).verdict,
            remains=PoolRemains(context.index, workloads).of,
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
