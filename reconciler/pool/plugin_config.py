"""The devices of each pool by node, as its device plugin's configuration lists them.

A device's object changes with every pod, its configuration rarely. The configuration is compared node by node,
and only a pool whose devices changed is reconciled: a change costs the devices of its node, whatever the
pool's size.
"""

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpupool import AllocationMode
from api.nodefiles.poolconfig import ConfiguredDevice
from kube.batches import steps
from kube.event_source import EventSource
from pool.facts import device_facts, pool_facts
from pool.layout import layout_of, units_by_resource
from reconciler.controller_spec import DEVICES, ControllerContext, ControllerSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from api.names import NodeName, PoolName
    from pool.catalog import Catalog
    from reconciler.runtime.device_store import DeviceStore

COALESCE_S: Final = 0.2
"""The devices of a node that joins enter their pool one by one; a burst of changes becomes one list."""
NODES_A_SECOND: Final = 100
"""A list goes to every node of its pool, and its length is of their number as well: for so many nodes a
further second of changes is gathered (docs/design/0006-one-daemonset-or-many.md). A pool of few nodes has its
list soon: pods wait for it."""

NODES_A_STEP: Final = 20
"""160 devices take 2 ms."""

Devices = tuple[ConfiguredDevice, ...]


@final
class PluginConfigFacts:
    """The devices of all pools by pool and node; kept up to date by `read_node` and `rereading_pool`."""

    def __init__(self, devices: "DeviceStore", catalog: "Catalog") -> None:
        self._devices = devices
        self._catalog = catalog
        self._gpus: dict[PoolName, dict[NodeName, Devices]] = {}
        self._pools_on: dict[NodeName, set[PoolName]] = {}
        self._revisions: Counter[PoolName] = Counter()
        self._is_complete = False
        self.changes: EventSource[PoolName] = EventSource()
        """Pools of which a node's devices changed."""

    def hydrating(self) -> "Iterator[None]":
        """Read every node once, in steps; before that a pool would seem to have no devices.

        Idempotent, also beside `read_node`.
        """
        if self._is_complete:
            return
        for item in steps(sorted(self._devices.nodes()), NODES_A_STEP):
            for node in item:
                self.read_node(node)
            yield
        self._is_complete = True

    def revision(self, pool: "PoolName") -> int:
        """Return a number that moves with every change of the pool's devices."""
        return self._revisions[pool]

    def of_pool(self, pool: "PoolName") -> "Mapping[NodeName, Devices]":
        """Return the pool's devices by node."""
        return dict(self._gpus.get(pool, {}))

    def coalesce_s(self, pool: "PoolName") -> float:
        """Return the seconds for which changes of the pool's devices are gathered into one list."""
        return COALESCE_S + len(self._gpus.get(pool, ())) / NODES_A_SECOND

    def read_node(self, node: "NodeName") -> "set[PoolName]":
        """Read the devices of a node; return the pools whose devices changed."""
        devices = self._devices.on_node(node)
        desired = {pool for device in devices if (pool := device_facts(device).pool) is not None}
        before = self._pools_on.get(node, set())
        changed = {pool for pool in desired | before if self._refresh(pool, node, devices)}
        if desired:
            self._pools_on[node] = desired
        else:
            self._pools_on.pop(node, None)
        return changed

    def rereading_pool(self, pool: "PoolName") -> "Iterator[None]":
        """Read the pool's object, in steps: its devices may have other units now."""
        for item in steps(tuple(self._gpus.get(pool, ())), NODES_A_STEP):
            for node in item:
                self._refresh(pool, node, self._devices.on_node(node))
            yield

    def _refresh(self, name: "PoolName", node: "NodeName", devices: "list[GPUDevice]") -> bool:
        pool = self._catalog.pools.get(name)
        found = _devices_of(name, pool, devices)
        by_node = self._gpus.setdefault(name, {})
        is_changed = by_node.get(node, ()) != found
        self._revisions[name] += is_changed
        if found:
            by_node[node] = found
        else:
            by_node.pop(node, None)
        if not by_node:
            del self._gpus[name]
        return is_changed


def _devices_of(name: "PoolName", pool: "GPUPool | None", devices: "list[GPUDevice]") -> Devices:
    """Return a pool's devices on a node; devices without a UUID have no units."""
    facts = None if pool is None else pool_facts(pool)
    is_mig = facts is not None and facts.mode is AllocationMode.MIG
    parts = facts.parts if facts is not None else ()
    gpus: dict[str, ConfiguredDevice] = {}
    # by UUID: two objects that claim one are one device
    for device in devices:
        facts_of_device = device_facts(device)
        if facts_of_device.pool != name or not facts_of_device.uuid:
            continue
        units = {} if facts is None else units_by_resource(layout_of(facts_of_device, facts), facts)
        instances: list[str] = [] if parts else list(chain.from_iterable(units.values()))
        gpus[facts_of_device.uuid] = ConfiguredDevice(
            uuid=facts_of_device.uuid,
            instances=instances if is_mig or facts_of_device.is_partitioned else None,
            parts={name: list(ids) for name, ids in units.items()} if parts else None,
            numa_node=device.status.numa_node,
            is_withheld=facts_of_device.is_faulted or facts_of_device.is_draining,
        )
    return tuple(gpus.values())


@final
class NodePluginConfigs:
    """`node.exports`: enqueues the pools whose devices on a node changed."""

    def __init__(self, exported: PluginConfigFacts) -> None:
        self._exported = exported

    async def reconcile(self, node: "NodeName") -> float | None:
        for pool in sorted(self._exported.read_node(node)):
            self._exported.changes.publish(pool)
        return None


def plugin_config_facts(context: ControllerContext) -> PluginConfigFacts:
    return PluginConfigFacts(context.stores.devices, context.catalog)


SPEC: Final = ControllerSpec(
    name="node.exports",
    triggers=(DEVICES,),
    build=lambda context: NodePluginConfigs(context.shared(plugin_config_facts)).reconcile,
)
