"""`pool.status`: capacity, phase and conditions of a GPUPool, and the pool's gauges.

`reconciler.pool.conditions` decides; the write is one server-side apply of the status, on a difference only.
"""

from typing import TYPE_CHECKING, Final, final

import msgspec

from api.kinds.gpupool import GPUPoolStatus, PoolCapacity
from api.names import GROUP
from kube.event_recorder import ObjectReference
from kube.resources import GPU_POOLS
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerSpec
from reconciler.pool.conditions import OURS, PoolFigures, status_of
from reconciler.pool.gauges import (
    forget_pool,
    forget_slots,
    show_assignments,
    show_capacity,
    show_conditions,
    show_slots,
)
from reconciler.pool.index_changes import WAITING
from reconciler.pool.usage import usage_of, waiting_pods
from reconciler.pool.validation_cache import POOLS, VALIDITY, validity_cache
from reconciler.runtime.condition_events import ConditionEvents, record_changes
from reconciler.runtime.controller import STATUS_SHARE
from reconciler.runtime.expectations import Expectations
from reconciler.runtime.status import StatusWriter
from telemetry.conditions import PoolCondition
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Instant
    from api.kinds.gpupool import GPUPool
    from api.names import NodeName, PoolName
    from inventory.pools.validation import PoolValidityLookup
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from pool.allocation_reader import AllocationReader
    from pool.catalog import Catalog
    from pool.index.figures import IndexFigures
    from pool.index.pool_state import PoolState

RBAC: Final = (PolicyRule(group=GROUP, resources=("gpupools/status",), verbs=("patch",)),)

FIELD_MANAGER: Final = "gpu-control-plane/pool-status"
ACTION: Final = "ReportPool"

_EVENTS: Final = (
    ConditionEvents(
        type=PoolCondition.READY,
        good="True",
        lost=EventReason.POOL_NOT_READY,
        regained=EventReason.POOL_READY,
        announces_good=True,
    ),
    ConditionEvents(type=PoolCondition.MISCONFIGURED, good="False", lost=EventReason.MISCONFIGURED),
    ConditionEvents(type=PoolCondition.CAPACITY_LOW, good="False", lost=EventReason.CAPACITY_LOW),
)
_OUR_NAMES: Final = frozenset(item.value for item in OURS)


def _our_part(status: GPUPoolStatus) -> GPUPoolStatus:
    """Return the part of the status that this controller writes."""
    ours = [condition for condition in status.conditions or () if condition.type in _OUR_NAMES]
    order = [type_.value for type_ in OURS]
    ours.sort(key=lambda our: order.index(our.type))
    return msgspec.structs.replace(
        status, conditions=ours, allocation=None, autoscaling=None, candidates=0
    )


@final
class PoolStatus:
    """Writes the status of one pool, and sets its gauges."""

    def __init__(  # noqa: PLR0913  # sources, and where status and Events go
        self,
        client: "KubeClient",
        index: "IndexFigures",
        catalog: "Catalog",
        *,
        reader: "AllocationReader",
        now: "Callable[[], Instant]",
        validity_of: "PoolValidityLookup",
        recorder: "EventRecorder",
    ) -> None:
        self._writer = StatusWriter(client, GPU_POOLS, FIELD_MANAGER)
        self._index = index
        self._reader = reader
        self._catalog = catalog
        self._now = now
        self._validity_of = validity_of
        self._recorder = recorder
        self._expected: Expectations[PoolName, GPUPoolStatus] = Expectations(now)
        self._slots: dict[PoolName, tuple[int, dict[NodeName, int]]] = {}
        # pool -> the reading of its state's counter, and the units by node that are shown

    async def reconcile(self, name: "PoolName") -> float | None:
        """Write the status where it differs; a pool that is gone loses its gauges."""
        pool = self._catalog.pools.get(name)
        if pool is None:
            self._forget(name)
            return None
        state = self._index.state(name)
        figures = self._figures(pool, state)
        current = self._current(pool)
        status = status_of(pool, current, figures, now=self._now().utc)
        self._show(pool, state, status)
        if status != _our_part(current):
            written = await self._writer.apply(name, _complete(status))
            if written is None:
                return None
            self._expected.expect(name, status, written)
            record_changes(
                self._recorder,
                ObjectReference.to(GPU_POOLS, pool.metadata),
                _EVENTS,
                current=current.conditions,
                written=status.conditions,
                action=ACTION,
            )
        return None

    def _figures(self, pool: "GPUPool", state: "PoolState") -> PoolFigures:
        units = state.capacity()
        is_ending = pool.metadata.deletion_timestamp is not None
        return PoolFigures(
            capacity=PoolCapacity(
                total=units.total,
                reserved=units.reserved,
                used=units.used,
                available=units.available,
                unhealthy=units.unhealthy,
                missing=sum(state.differing.values()),
                largest_free=state.largest_free(),
            ),
            nodes=len(state.nodes()),
            differing=tuple(state.differing),
            waiting=waiting_pods(self._reader, self._index, pool),
            validity=self._validity_of(pool.name),
            occupants=usage_of(self._reader, self._index, pool.name).pods if is_ending else (),
        )

    def _current(self, pool: "GPUPool") -> GPUPoolStatus:
        """Return the status at the API server, with a write that the watch has not delivered yet."""
        return self._expected.unseen(pool.name, pool.metadata) or pool.status

    def _show(self, pool: "GPUPool", state: "PoolState", status: GPUPoolStatus) -> None:
        capacity = status.capacity
        show_capacity(pool.name, capacity, capacity.largest_free, missing=capacity.missing)
        show_assignments(pool.name, sum(map(len, state.devices_by_node.values())))
        others = [
            condition
            for condition in pool.status.conditions or ()
            if condition.type not in _OUR_NAMES
        ]
        show_conditions(pool.name, [*others, *(status.conditions or ())])
        moved, before = self._slots.get(pool.name, (-1, {}))
        if moved != state.sizes_moved:
            after = {node: item.total for node, item in state.nodes().items()}
            show_slots(pool.name, after, before)
            self._slots[pool.name] = (state.sizes_moved, after)

    def _forget(self, name: "PoolName") -> None:
        _, slots = self._slots.pop(name, (0, {}))
        forget_slots(name, slots)
        forget_pool(name)


def _complete(status: GPUPoolStatus) -> dict[str, object]:
    """Return every field, zeros too: an applied status owns all that it shows."""
    return {
        "observedGeneration": status.observed_generation,
        "phase": status.phase,
        "capacity": status.capacity,
        "nodes": status.nodes,
        "waiting": status.waiting,
        "resourceName": status.resource_name,
        "strategy": status.strategy,
        "conditions": status.conditions,
    }


SPEC: Final = ControllerSpec(
    name="pool.status",
    rbac=RBAC,
    triggers=(POOLS, VALIDITY, WAITING),
    share=STATUS_SHARE,
    build=lambda context: (
        PoolStatus(
            context.client,
            context.index,
            context.catalog,
            reader=context.reader,
            now=context.now,
            validity_of=context.shared(validity_cache).validity_of,
            recorder=context.recorder,
        ).reconcile
    ),
)
