"""Cache of the validity of every pool (`inventory.pools.validation`), updated change by change.

Controllers consult it before they act for a pool. Validity depends on the pool, on older pools of the same
resource, and for MIG on the devices that the pool may have: only sums of these are kept, so that a changed node
costs its own devices.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpupool import AllocationMode
from api.names import NodeName, PoolName
from inventory.assignment.eligibility import is_approved
from inventory.assignment.selector import selector_accepts
from inventory.pools.validation import VALID_POOL, layout_fault, validate_pool
from kube.event_source import EventSource
from reconciler.controller_spec import ControllerContext, Trigger
from reconciler.pool.index_changes import index_changes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from inventory.pools.validation import PoolValidity
    from pool.catalog import Catalog
    from reconciler.runtime.device_store import DeviceStore

_Answers = Counter[str]
"""Number of devices by what keeps them from the pool's layout, empty where nothing does; without unknown ones."""
_NONE: Final[_Answers] = Counter()


@final
class PoolValidityCache:
    """Validity by pool, kept up to date from changes of pools and devices; `validity_of` is a look-up."""

    def __init__(self, catalog: "Catalog", devices: "DeviceStore") -> None:
        """Judge every pool that is known."""
        self._catalog = catalog
        self._devices = devices
        self._pools: dict[PoolName, GPUPool] = {}
        self._names_by_resource: dict[str, set[PoolName]] = {}
        self._mig: dict[PoolName, GPUPool] = {}
        self._answers_by_node: dict[NodeName, dict[PoolName, _Answers]] = {}
        self._answers: dict[PoolName, _Answers] = {}
        self._validity: dict[PoolName, PoolValidity] = {}
        self.changes: EventSource[PoolName] = EventSource()
        """Pools whose validity changed."""
        self.pools: EventSource[PoolName] = EventSource()
        """Pools that are new, changed or gone, once the cache is up to date with them."""
        for name in sorted(catalog.pools):
            self._take_in(name)
        for node in devices.nodes():
            self._count(node, self._mig)
        for name in self._pools:
            self._validate(name)

    def validity_of(self, name: PoolName) -> "PoolValidity":
        """Return the pool's validity; an unknown pool is valid."""
        return self._validity.get(name, VALID_POOL)

    def pool_changed(self, name: str) -> None:
        """Validate a pool that is new, changed or gone, and the pools that share its resource."""
        pool = PoolName(name)
        if self._pools.get(pool) is not self._catalog.pools.get(pool):
            self._replace(pool)
        # Otherwise only its figures changed.
        self.pools.publish(pool)

    def _replace(self, pool: PoolName) -> None:
        affected = self._sharing(pool)
        before = self._mig.get(pool)
        self._take_in(pool)
        affected |= self._sharing(pool) | {pool}
        after = self._mig.get(pool)
        if (before and before.spec) != (after and after.spec):
            for node in list(self._devices.nodes() | self._answers_by_node.keys()):
                self._count(node, {pool})
        for item in sorted(affected):
            self._validate(item)

    def node_changed(self, name: str) -> None:
        """Read the devices of a node again."""
        if not self._mig and not self._answers_by_node:
            return
        node = NodeName(name)
        pools = self._answers_by_node.get(node, {}).keys() | self._mig.keys()
        for pool in sorted(self._count(node, pools)):
            self._validate(pool)

    def _take_in(self, name: PoolName) -> None:
        before, pool = self._pools.pop(name, None), self._catalog.pools.get(name)
        self._mig.pop(name, None)
        if before is not None:
            names = self._names_by_resource[before.resource_name]
            names.discard(name)
            if not names:
                del self._names_by_resource[before.resource_name]
        if pool is not None:
            self._pools[name] = pool
            self._names_by_resource.setdefault(pool.resource_name, set()).add(name)
            if pool.spec.allocation.mode is AllocationMode.MIG:
                self._mig[name] = pool

    def _sharing(self, name: PoolName) -> set[PoolName]:
        pool = self._pools.get(name)
        return set(self._names_by_resource[pool.resource_name]) if pool is not None else set()

    def _validate(self, name: PoolName) -> None:
        pool = self._pools.get(name)
        before = self.validity_of(name)
        if pool is None:
            self._validity.pop(name, None)
            return
        rivals = [self._pools[item] for item in self._names_by_resource[pool.resource_name]]
        validity = validate_pool(pool, rivals, layouts=self._answers.get(name, _NONE))
        self._validity[name] = validity
        if validity != before:
            self.changes.publish(name)

    def _count(self, node: NodeName, pools: "Iterable[PoolName]") -> set[PoolName]:
        """Count the devices of a node for these pools; return the pools whose sums changed."""
        devices = self._devices.on_node(node)
        answers = self._answers_by_node.setdefault(node, {})
        changed: set[PoolName] = set()
        for name in list(pools):
            pool = self._mig.get(name)
            before = answers.pop(name, _NONE)
            after = _layout_answers(pool, devices) if pool is not None else _NONE
            if after != _NONE:
                answers[name] = after
            if after != before:
                self._add(name, after, before)
                changed.add(name)
        if not answers:
            del self._answers_by_node[node]
        return changed

    def _add(self, name: PoolName, more: _Answers, less: _Answers) -> None:
        total = self._answers.pop(name, _NONE) + more - less
        if total:
            self._answers[name] = total


def _may_have(pool: "GPUPool", device: "GPUDevice") -> bool:
    """Say whether a device may be assigned to the pool, by the device alone.

    Its present owner does not count: a validity that depended on it would flap.
    """
    if device.assignment is not None:
        return device.assignment == pool.name
    return is_approved(pool, device) and selector_accepts(pool.spec.device_selector, device.status)


def _layout_answers(pool: "GPUPool", devices: "Iterable[GPUDevice]") -> _Answers:
    faults = (layout_fault(pool, device) for device in devices if _may_have(pool, device))
    return Counter(fault for fault in faults if fault is not None)


def validity_cache(context: ControllerContext) -> PoolValidityCache:
    """Return the cache, fed by the index and the device store.

    Triggers that look at a pool's validity follow its `pools`, not the index: it takes in each change first.
    """
    cache = PoolValidityCache(context.catalog, context.stores.devices)
    context.follow(context.shared(index_changes).pools, cache.pool_changed)
    context.follow(context.stores.devices.changes, cache.node_changed)
    return cache


POOLS: Final[Trigger[PoolName]] = Trigger(
    source=lambda context: context.shared(validity_cache).pools
)
VALIDITY: Final[Trigger[PoolName]] = Trigger(
    source=lambda context: context.shared(validity_cache).changes
)
