"""Figures of the device index: its objects, the claims on their units, and what is free, for gauges, status and pages.

*Observed* claims of bound pods and *assumed* claims of reservations are kept apart; a unit is free when it has
neither. Assumed claims are *confirmed* once the API server has stored their pods. Unconfirmed ones keep a unit
from the next pod at admission, not from a pod that exists.

The index is one object with three classes, so that each user names the narrowest: this one reads, `pool.index.reader`
answers for pods, `pool.index.device_index` changes. The parts (`devices`, `claims`, `nodes`, `unaccounted`,
`changes`) are for readers. Design: docs/design/0002-index-and-ledger.md.
"""

from types import MappingProxyType
from typing import TYPE_CHECKING

from api.kinds.gpupool import DeviceTopology, Strategy
from pool.compute_resources import NOTHING, ComputeResources
from pool.device_limit import NoCaches
from pool.errors import InvariantViolatedError
from pool.index.change_log import ChangeLog
from pool.index.device_claims import DeviceClaims
from pool.index.devices import DeviceEntry, Devices
from pool.index.fitting_devices import limited
from pool.index.new_devices import NewDevices
from pool.index.node_requests import NodeRequests
from pool.index.node_view import summarize, without_incompatible
from pool.index.peers import Peers
from pool.index.pool_state import PoolState
from pool.index.unaccounted import UnaccountedPods
from pool.placement.device_rules import DeviceRules, device_rules
from pool.placement.fragmentation.placement_costs import RemainingCapacity
from pool.placement.fragmentation.recent_demand import RecentDemands, unit_milli
from pool.refusal import NodeReason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from api.names import DeviceName, NodeName, PodUid, PoolName
    from pool.device_limit import DeviceLimit, ResolvedCaches
    from pool.index.node_view import PoolNode
    from pool.model import KubeletTopology, NodeFacts, PoolFacts


class IndexFigures:
    """The state of the index, and what follows from it without a pod in question."""

    def __init__(
        self,
        demands: RecentDemands | None = None,
        *,
        caches: "ResolvedCaches | None" = None,
        has_all_pods: bool = True,
    ) -> None:
        self.demands = demands if demands is not None else RecentDemands()
        """What pods have asked for lately, for which free units should stay useful."""
        self.caches: ResolvedCaches = caches if caches is not None else NoCaches()
        """The kernel caches that pods may mount."""
        self._subscribers: list[Callable[[Collection[NodeName]], None]] = []
        self.generation = 0
        """Moves with every real change."""
        self.devices = Devices()
        self.claims = DeviceClaims(self.devices)
        self.unaccounted = UnaccountedPods()
        self.changes = ChangeLog()
        self._nodes: dict[NodeName, NodeFacts] = {}
        self.nodes: Mapping[NodeName, NodeFacts] = MappingProxyType(self._nodes)
        self._pools: dict[PoolName, PoolState] = {}
        self._pool_by_resource: dict[str, PoolName] = {}
        self.unread_pools: Mapping[PoolName, str] = {}
        """Pools that exist and cannot be read -> the resource that each one seems to serve."""
        self._spreading: dict[tuple[PoolName, str], tuple[bool, bool]] = {}
        # (pool, label key) -> can pods go to every value, does any node carry it; emptied when anything
        # changes except claims on units
        self._kubelets: dict[NodeName, KubeletTopology] = {}
        # settings of the nodes whose inventory has them
        self._withheld: set[DeviceName] = set()
        # devices that are to leave their pool, whatever their objects say yet
        self._new = NewDevices()
        self.requests = NodeRequests(is_whole=has_all_pods)
        """CPU and memory, of pods with and without units."""
        self.peers = Peers()
        """Pods as rules about other pods select them, with and without units."""

    def pool_of(self, resource: str) -> "PoolFacts | None":
        """Return the pool that serves a resource."""
        name = self._pool_by_resource.get(resource)
        return self._pools[name].facts if name is not None else None

    def pool(self, name: "PoolName") -> "PoolFacts | None":
        state = self._pools.get(name)
        return state.facts if state else None

    def pools(self) -> "list[PoolFacts]":
        """Return all pools whose object exists, as pods see them: of one with several MIG profiles the parts."""
        found = (state.facts for state in self._pools.values())
        return [facts for facts in found if facts is not None and not facts.parts]

    def state(self, name: "PoolName") -> PoolState:
        """Return a pool's nodes, views and capacity; an empty state for an unknown pool."""
        return self._pools.get(name) or self._new_state(name)

    def devices_on(self, pool: "PoolName", node: "NodeName") -> "list[DeviceEntry]":
        """Return the pool's devices on a node, by name."""
        state = self._pools.get(pool)
        return [] if state is None else self._entries(state, state.devices_by_node.get(node, ()))

    def pools_on(self, node: "NodeName") -> "set[PoolName]":
        """Return the pools whose object exists and that have a device on the node."""
        return {
            pool
            for name in self.devices.on_node(node)
            if (pool := self.devices[name].facts.pool) is not None
            and self._pools[pool].facts is not None
        }

    def knows_node(self, name: "NodeName") -> bool:
        """Say whether the node, or a device on it, exists."""
        return name in self._nodes or self.devices.has_node(name)

    def kubelet_on(self, node: "NodeName") -> "KubeletTopology | None":
        """Return the TopologyManager settings of a node's kubelet; None where they are unknown."""
        return self._kubelets.get(node)

    def device_rules(self, pool: "PoolName", node: "NodeName") -> DeviceRules:
        """Return the rules for sets of the pool's devices on a node."""
        return self.state(pool).device_rules(node)

    def free_cpu_and_memory(
        self,
        node: "NodeName",
        *,
        without: "PodUid | None" = None,
        freed: ComputeResources = NOTHING,
    ) -> tuple[int | None, int | None]:
        """Return the CPU and memory of a node that no pod requests; None where the node does not say.

        0 where pods request more than it has, as kubelet may reserve more later: a pod that requests none goes there.

        Args:
            node: that has them.
            without: pod that does not count.
            freed: what other pods give back.
        """
        facts = self._nodes.get(node)
        if facts is None:
            return None, None
        taken, cpu, memory = (
            self.requests.on(node, without=without),
            facts.cpu_milli,
            facts.memory_mib,
        )
        return (
            None if cpu is None else max(0, cpu + freed.cpu_milli - taken.cpu_milli),
            None if memory is None else max(0, memory + freed.memory_mib - taken.memory_mib),
        )

    def _entries(self, state: PoolState, names: "Iterable[DeviceName]") -> "list[DeviceEntry]":
        """Return devices as pods of the pool, or of one of its MIG profiles, see them."""
        entries, facts = self.devices.named(names), state.facts
        if facts is None or not facts.is_part:
            return entries
        return [entry.of_profile(facts.mig_profile) for entry in entries]

    def _new_state(self, name: "PoolName") -> PoolState:
        return PoolState(
            lambda node, devices, limit: self._summarize(name, node, devices, limit=limit),
            lambda node: self._read_rules(name, node),
        )

    def _summarize(
        self,
        pool: "PoolName",
        node: "NodeName",
        devices: "list[DeviceName]",
        *,
        limit: "DeviceLimit | None",
    ) -> "PoolNode | None":
        state, facts = self._pools[pool], self._nodes.get(node)
        pool_facts = state.facts
        entries: Sequence[DeviceEntry] = self._entries(state, devices)
        incompatibility = None
        if limit is not None:
            entries, incompatibility = limited(entries, limit, state.device_rules(node))
        remaining = None
        if pool_facts is not None and pool_facts.strategy is Strategy.LEAST_FRAGMENTATION:
            free = sorted(entry.free.bit_count() for entry in entries)
            unit = unit_milli(pool_facts)
            milli = tuple(count * unit for count in free)
            remaining = RemainingCapacity(milli, *self.free_cpu_and_memory(node))
        resources = pool_facts.resources if pool_facts is not None else ()
        pods = self.unaccounted.at_any(resources, node)
        found = summarize(
            entries,
            unaccounted=sum(pods.values()) if pods else 0,
            is_placeable=facts is not None and facts.is_placeable,
            closed=_closed(pool_facts, facts),
            devices=self._constraints(state, node),
            remaining=remaining,
        )
        return found if incompatibility is None else without_incompatible(found, incompatibility)

    def _constraints(self, state: PoolState, node: "NodeName") -> DeviceRules | None:
        """Return the rules for sets of devices on a node, where more than the number of free units decides."""
        facts = state.facts
        if facts is None or (
            facts.device_topology is DeviceTopology.NONE
            and not facts.constrains_sets
            and node not in self._kubelets
        ):
            return None
        found = state.device_rules(node)
        return found if found.is_constrained or found.prefers_aligned else None

    def _read_rules(self, pool: "PoolName", node: "NodeName") -> DeviceRules:
        facts, entries = self._pools[pool].facts, self.devices_on(pool, node)
        if facts is None:
            raise InvariantViolatedError(f"pool {pool} has no object")
        return device_rules(
            facts,
            [entry.facts for entry in entries],
            tuple(entry.layout.count for entry in entries),
            kubelet=self.kubelet_on(node),
        )


def _closed(pool: "PoolFacts | None", node: "NodeFacts | None") -> NodeReason | None:
    """Return why no units of the pool are allocated on the node."""
    if pool is not None and pool.closed is not None:
        return pool.closed
    if node is not None and node.is_leaving:
        return NodeReason.NODE_LEAVING
    if node is not None and node.is_withheld:
        return NodeReason.DRIVER_UPGRADE
    return NodeReason.NODE_STARTING if node is not None and node.is_starting else None
