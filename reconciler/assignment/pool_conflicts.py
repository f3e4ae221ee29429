"""`pool.conflict`: condition Conflict and candidates of a GPUPool: devices that it wants and another pool, or none, has.

`device.assignment` reports conflicts node by node. A pool is written once for many nodes: changes are queued
with a delay, and after a start no pool is written before every node was reconciled.
"""

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Final, final

from api.names import GROUP
from api.status_conditions import find_condition, new_condition
from api.text import listed
from kube.event_recorder import ObjectReference
from kube.event_source import EventSource
from kube.resources import GPU_POOLS
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerContext, ControllerSpec, Trigger
from reconciler.pool.validation_cache import POOLS
from reconciler.runtime.expectations import Expectations
from reconciler.runtime.status import StatusWriter
from telemetry.conditions import PoolCondition, PoolConflict
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from api.clock import Instant
    from api.kinds.gpupool import GPUPool
    from api.meta import Condition
    from api.names import DeviceName, NodeName, PoolName
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from reconciler.controller_spec import Reconcile

RBAC: Final = (PolicyRule(group=GROUP, resources=("gpupools/status",), verbs=("patch",)),)

FIELD_MANAGER: Final = "gpu-control-plane/pool-conflict"
ACTION: Final = "Assign"
DELAY_S: Final = 1.0
"""Seconds after a change, to collect more of them: overlapping pools conflict on many nodes."""

Candidate = tuple["DeviceName", "PoolName | None"]
"""A device that a pool wants, and its owner; None while it waits for a decision."""
Contested = tuple["DeviceName", "PoolName"]
"""A device that a pool wants, and its owner."""


@final
class Conflicts:
    """Devices that each pool wants and does not have, by node."""

    def __init__(self) -> None:
        self._by_pool: dict[PoolName, dict[NodeName, tuple[Candidate, ...]]] = defaultdict(dict)
        self._pools_by_node: dict[NodeName, frozenset[PoolName]] = {}
        self.changes: EventSource[PoolName] = EventSource()
        """Pools for which assignment found another conflict."""

    def replace(
        self, node: "NodeName", found: "Mapping[PoolName, tuple[Candidate, ...]]"
    ) -> "set[PoolName]":
        """Replace the conflicts of a node; return the pools whose conflicts changed."""
        changed: set[PoolName] = set()
        for pool in self._pools_by_node.get(node, frozenset()) | found.keys():
            here = self._by_pool[pool]
            now = found.get(pool, ())
            if here.get(node, ()) != now:
                changed.add(pool)
            if now:
                here[node] = now
            else:
                here.pop(node, None)
            if not here:
                del self._by_pool[pool]
        self._pools_by_node[node] = frozenset(found)
        return changed

    def discard(self, node: "NodeName") -> "set[PoolName]":
        """Remove a node without devices; return the pools whose conflicts changed."""
        changed = self.replace(node, {})
        del self._pools_by_node[node]
        return changed

    def covers(self, nodes: "AbstractSet[NodeName]") -> bool:
        """Say whether every one of the nodes was reported."""
        return nodes <= self._pools_by_node.keys()

    def of(self, pool: "PoolName") -> "list[Contested]":
        """Return the devices that the pool wants and other pools have."""
        return sorted(
            (device, owner) for device, owner in self._candidates(pool) if owner is not None
        )

    def candidates(self, pool: "PoolName") -> int:
        """Return the number of devices that wait for a decision to join the pool."""
        return sum(1 for _, owner in self._candidates(pool) if owner is None)

    def _candidates(self, pool: "PoolName") -> "Iterator[Candidate]":
        return chain.from_iterable(self._by_pool.get(pool, {}).values())


@final
class PoolConflicts:
    """Writes the condition Conflict and the candidates of one pool; records an Event of a conflict on both pools."""

    def __init__(
        self,
        client: "KubeClient",
        conflicts: Conflicts,
        pools: "Mapping[PoolName, GPUPool]",
        *,
        recorder: "EventRecorder",
        is_complete: "Callable[[], bool]",
        now: "Callable[[], Instant]",
    ) -> None:
        """Take the dependencies.

        Args:
            client: for writes.
            conflicts: reported by assignment.
            pools: `Catalog.pools`.
            recorder: for Events.
            is_complete: whether every node was reconciled once.
            now: reads the clock.
        """
        self._writer = StatusWriter(client, GPU_POOLS, FIELD_MANAGER)
        self._conflicts = conflicts
        self._pools = pools
        self._recorder = recorder
        self._is_complete = is_complete
        self._now = now
        self._expected: Expectations[PoolName, _Written] = Expectations(now)

    async def reconcile(self, name: "PoolName") -> float | None:
        """Write the pool's condition and candidates where they differ."""
        pool = self._pools.get(name)
        if pool is None:
            return None
        if not self._is_complete():
            return DELAY_S
        contested = self._conflicts.of(name)
        current, counted = self._current(pool)
        candidates = self._conflicts.candidates(name)
        desired = new_condition(
            PoolCondition.CONFLICT,
            PoolConflict.OWNED_BY_OTHER_POOL if contested else PoolConflict.NONE,
            _text(contested) if contested else "no other pool has a device that this one selects",
            status=bool(contested),
            keeps_text=not contested,
            current=() if current is None else (current,),
            generation=pool.metadata.generation,
            now=self._now().utc,
        )
        if (desired, candidates) == (current, counted):
            return None
        status = {"conditions": [desired], "candidates": candidates}
        written = await self._writer.apply(name, status)
        if written is None:
            return None
        self._expected.expect(name, (desired, candidates), written)
        if contested and (current is None or current.message != desired.message):
            self._record(pool, contested, desired.message)
        return None

    def _current(self, pool: "GPUPool") -> "_Written":
        unseen = self._expected.unseen(pool.name, pool.metadata)
        condition = find_condition(pool.status.conditions, PoolCondition.CONFLICT)
        return unseen or (condition, pool.status.candidates)

    def _record(self, pool: "GPUPool", contested: "list[Contested]", text: str) -> None:
        self._recorder.warning(
            ObjectReference.to(GPU_POOLS, pool.metadata),
            EventReason.ASSIGNMENT_CONFLICT,
            text,
            action=ACTION,
        )
        for owner, devices in _by_owner(contested):
            other = self._pools.get(owner)
            if other is not None:
                note = f"pool {pool.name} selects {listed(devices)} too: {_CURE}"
                self._recorder.warning(
                    ObjectReference.to(GPU_POOLS, other.metadata),
                    EventReason.ASSIGNMENT_CONFLICT,
                    note,
                    action=ACTION,
                )


_Written = tuple["Condition | None", int]
"""The condition Conflict, and the number of candidates."""
_CURE: Final = "change the selectors so that they do not overlap, or annotate the devices"


def _by_owner(contested: "list[Contested]") -> "Iterator[tuple[PoolName, list[DeviceName]]]":
    for owner in sorted({owner for _, owner in contested}):
        yield owner, [device for device, item in contested if item == owner]


def _text(contested: "list[Contested]") -> str:
    parts = [f"pool {owner} has {listed(devices)}" for owner, devices in _by_owner(contested)]
    return f"{'; '.join(parts)}: {_CURE}"


def pool_conflicts(_context: ControllerContext) -> Conflicts:
    return Conflicts()


def _build(context: ControllerContext) -> "Reconcile":
    conflicts = context.shared(pool_conflicts)
    return PoolConflicts(
        context.client,
        conflicts,
        context.catalog.pools,
        recorder=context.recorder,
        is_complete=lambda: conflicts.covers(context.stores.devices.nodes()),
        now=context.now,
    ).reconcile


SPEC: Final = ControllerSpec(
    name="pool.conflict",
    rbac=RBAC,
    triggers=(
        POOLS,
        Trigger(source=lambda context: context.shared(pool_conflicts).changes, delay_s=DELAY_S),
    ),
    # A conflict that an earlier leader found may be over.
    initial=lambda context: list(context.catalog.pools),
    initial_delay_s=DELAY_S,
    build=_build,
)
