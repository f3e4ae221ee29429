"""The device index: devices, pools and nodes, the claims on units, and what is free.

*Observed* claims of bound pods and *assumed* claims of reservations are kept apart; a unit is free when it has
neither. Assumed claims are *confirmed* once the API server has stored their pods. Unconfirmed ones keep a unit
from the next pod at admission, not from a pod that exists.

Everything derived is recomputed from the claims and never counted up or down, so late, repeated and reordered
events end in the same index. Writers are `replace_*` and `discard_*` (idempotent) and the claim setters, which
only `pool.allocation_state` calls. The parts (`devices`, `claims`, `nodes`, `unaccounted`, `changes`) are for
readers. Design: docs/design/0002-index-and-ledger.md.
"""

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpupool import DeviceTopology, Strategy
from pool.compute_resources import NOTHING, TOO_MANY_PODS, ComputeResources
from pool.device_limit import NoCaches
from pool.errors import InvariantViolatedError
from pool.index.change_log import ChangeLog
from pool.index.device_claims import DeviceClaims
from pool.index.devices import DeviceEntry, Devices
from pool.index.fitting_devices import limited
from pool.index.new_devices import NewDevices
from pool.index.node_requests import NodeRequests
from pool.index.node_view import summarize, without_misfits
from pool.index.pool_state import PoolState
from pool.index.unaccounted import UnaccountedPods
from pool.layout import layout_of
from pool.placement.device_rules import DeviceRules, device_rules
from pool.placement.fragmentation.placement_costs import Rest
from pool.placement.fragmentation.recent_demand import RecentDemands, unit_milli
from pool.refusal import NodeReason
from pool.serving import serving_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from api.names import DeviceName, NodeName, PodUid, PoolName, ReservationId, UnitId
    from pool.device_limit import CacheDemand, DeviceLimit, KnownCaches
    from pool.index.node_view import FitView, PoolNode
    from pool.model import Demand, DeviceFacts, KubeletTopology, NodeFacts, PodFacts, PoolFacts
    from pool.placement.fragmentation.placement_costs import PlacementCosts

WARM_SCORE: Final = 2
"""Default of the setting `kernel_caches.warm_score`."""


@final
class DeviceIndex:
    def __init__(
        self,
        demands: RecentDemands | None = None,
        *,
        caches: "KnownCaches | None" = None,
        warm_score: int = WARM_SCORE,
        has_all_pods: bool = True,
    ) -> None:
        self.demands = demands if demands is not None else RecentDemands()
        """What pods have asked for lately, for which free units should stay useful."""
        self.caches: KnownCaches = caches if caches is not None else NoCaches()
        """The kernel caches that pods may mount."""
        self.warm_score = warm_score
        """Part of a node's score that depends on whether it has the pod's kernel caches."""
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

    def subscribe(self, changed: "Callable[[Collection[NodeName]], None]") -> None:
        """Have it called with the nodes whose set of UUIDs has changed, after the change."""
        self._subscribers.append(changed)

    def replace_pool(self, facts: "PoolFacts") -> None:
        state = self._state(facts.name)
        if state.facts == facts:
            return
        before = state.facts
        state.set_facts(facts)
        if before is not None:
            self._route(before.resource)
        self._route(facts.resource)
        self._lay_out(facts.name)
        self.generation += 1

    def discard_pool(self, name: "PoolName") -> None:
        """Drop a pool; its devices have no units until it comes back."""
        state = self._pools.get(name)
        if state is None or state.facts is None:
            return
        resource = state.facts.resource
        state.set_facts(None)
        self._route(resource)
        if resource not in self._pool_by_resource:
            self.demands.forget(resource)
        self._lay_out(name)
        if not state.devices_by_node:
            del self._pools[name]
        self._drop_unfollowed_changes(pool=name)
        self.generation += 1

    def replace_unread_pools(self, unread: "Mapping[PoolName, str]") -> None:
        """Set the pools that exist and cannot be read; no other pool serves their resources."""
        before, self.unread_pools = self.unread_pools, dict(unread)
        changed = [
            name
            for name in before.keys() | self.unread_pools.keys()
            if before.get(name) != self.unread_pools.get(name)
        ]
        for resource in {*before.values(), *self.unread_pools.values()}:
            self._route(resource)
        for name in changed:
            if name in self._pools:
                self._lay_out(name)
            self.changes.touch_pool(name)
        self.generation += bool(changed)

    def replace_device(self, facts: "DeviceFacts", *, is_event: bool = False) -> None:
        """Apply a device's object; claims on its UUIDs, older or newer, apply to it.

        Args:
            facts: the device's facts.
            is_event: whether the device changed just now, and was not merely listed: only then is a device that
                comes into its pool new there.
        """
        entry = self.devices.get(facts.name)
        if entry is not None:
            if entry.facts == facts:
                return
            self._unlink(entry)
        linked = DeviceEntry(facts)
        if is_event and (entry is None or entry.facts.pool != facts.pool):
            self._new.add(facts.name)
        linked.is_new = facts.name in self._new
        self._link(linked)
        self.generation += 1
        self._tell_of_devices(entry, linked)

    def discard_device(self, name: "DeviceName") -> None:
        """Drop a device. Claims on it stay, should it come back."""
        entry = self.devices.get(name)
        self._withheld.discard(name)
        self._new.discard(name)
        if entry is None:
            return
        self._unlink(entry)
        facts = entry.facts
        self._drop_unfollowed_changes(device=name, node=facts.node, pool=facts.pool)
        self.generation += 1
        self._tell_of_devices(entry, None)

    def replace_node(self, facts: "NodeFacts") -> None:
        known = self._nodes.get(facts.name)
        self._nodes[facts.name] = facts  # always: equal facts may be of a newer object
        if known == facts:
            return
        self._spreading.clear()
        self.changes.nodes.add(facts.name)
        self._mark_node(facts.name)
        self.generation += 1

    def discard_node(self, name: "NodeName") -> None:
        """Drop a node; no units are reserved on its devices any more."""
        if self._nodes.pop(name, None) is None:
            return
        self._spreading.clear()
        self.changes.nodes.add(name)
        self._mark_node(name)
        self._drop_unfollowed_changes(node=name)
        self.generation += 1

    def replace_kubelet(self, node: "NodeName", topology: "KubeletTopology | None") -> None:
        """Set the TopologyManager settings of a node's kubelet; None where they are unknown."""
        if self._kubelets.get(node) == topology:
            return
        if topology is None:
            del self._kubelets[node]
        else:
            self._kubelets[node] = topology
        self._mark_node(node)
        self.generation += 1

    def withhold(self, name: "DeviceName") -> None:
        """Allocate no unit of the device from now on, since it is to leave its pool.

        Lasts until `readmit`, whatever is observed of the device.
        """
        if name not in self._withheld:
            self._withheld.add(name)
            self._set_withheld(name, is_withheld=True)

    def readmit(self, name: "DeviceName") -> None:
        """Undo `withhold`; draining by the device's object stands."""
        if name in self._withheld:
            self._withheld.discard(name)
            self._set_withheld(name, is_withheld=False)

    def settle_new_devices(self, now: float) -> None:
        """End the newness of devices whose time is over by `now`."""
        for name in self._new.settled(now):
            self.devices[name].is_new = False

    def set_observed(self, pod: "PodUid", units: "tuple[UnitId, ...]") -> None:
        """Set the units of a bound pod; an empty tuple ends its claims."""
        self._recount(self.claims.replace_observed(pod, units), self._recount_observed)

    def set_assumed(
        self,
        reservation: "ReservationId",
        units: "tuple[UnitId, ...]",
        *,
        is_confirmed: bool = True,
    ) -> None:
        """Set the units of a reservation; an empty tuple ends its claims.

        Args:
            reservation: the claiming reservation.
            units: all of its units.
            is_confirmed: whether its pod is known to exist.
        """
        parts = self.claims.replace_assumed(reservation, units, is_confirmed=is_confirmed)
        self._recount(parts, self._recount_assumed)

    def set_unaccounted(self, pod: "PodUid", units: "Mapping[tuple[str, NodeName], int]") -> None:
        """Set the units of a bound pod whose devices are unknown, by resource and node; none to end that."""
        for place in self.unaccounted.replace(pod, units):
            self._mark_resource(*place)

    def replace_unread_pods(self, node_by_pod: "Mapping[PodUid, NodeName]") -> None:
        """Set the bound pods that cannot be read: until they are gone, their nodes take no pod of any pool."""
        for node in self.unaccounted.replace_unread(node_by_pod):
            self._spreading.clear()
            for name in self.pools_on(node):
                self._mark(name, node)
            self.generation += 1

    def set_requests(
        self, pod: "PodUid", node: "NodeName | None", requests: ComputeResources = NOTHING
    ) -> None:
        """Set what a pod requests of its node; None to end that."""
        for name in self.requests.replace(pod, node, requests):
            for pool in self.pools_on(name):
                state = self._pools[pool]
                if state.facts and state.facts.strategy is Strategy.LEAST_FRAGMENTATION:
                    state.mark(name)

    def rank(self, costs: "PlacementCosts") -> None:
        """Order the nodes of a pool by these costs, unless the pool has changed since they were derived."""
        state = self._pools.get(costs.pool.name)
        if state is not None and state.facts == costs.pool:
            state.rank(costs)

    def free_cpu_and_memory(
        self,
        node: "NodeName",
        *,
        without: "PodUid | None" = None,
        freed: ComputeResources = NOTHING,
    ) -> tuple[int | None, int | None]:
        """Return the CPU and memory of a node that no pod requests; None where the node does not tell.

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

    def free_pods(self, node: "NodeName", *, without: "PodUid | None" = None) -> int | None:
        """Return how many more pods kubelet runs on a node, one pod left out; None where the node does not tell."""
        facts = self._nodes.get(node)
        if facts is None or facts.most_pods is None:
            return None
        return facts.most_pods - self.requests.on(node, without=without).pods

    def has_room(
        self, pod: "PodFacts", node: "NodeName", *, freed: ComputeResources = NOTHING
    ) -> bool:
        """Say whether a node has what the pod requests, which does not count itself; `freed` is what others give back."""
        return not self.shortage(pod.requests, node, freed=freed, without=pod.uid)

    def shortage(
        self,
        wanted: ComputeResources,
        node: "NodeName",
        *,
        freed: ComputeResources = NOTHING,
        without: "PodUid | None" = None,
    ) -> str:
        """Return which of CPU, memory and places for pods does not suffice, with its figures; empty where all do.

        A node that does not tell what it has is taken to have enough. Where not all pods of nodes are read, it is not
        known what is left: no node has room for a pod that requests CPU or memory.

        Args:
            wanted: what a pod requests.
            node: that has to have it.
            freed: what other pods give back.
            without: the pod, which does not count itself.
        """
        if not self.requests.is_whole and (wanted.cpu_milli or wanted.memory_mib):
            return "free cpu and memory are unknown: not all pods are read"
        cpu, memory = self.free_cpu_and_memory(node, without=without, freed=freed)
        if cpu is not None and cpu < wanted.cpu_milli:
            return f"insufficient cpu: {wanted.cpu_milli}m requested, {cpu}m free"
        if memory is not None and memory < wanted.memory_mib:
            return f"insufficient memory: {wanted.memory_mib} MiB requested, {memory} MiB free"
        places = self.free_pods(node, without=without)
        return TOO_MANY_PODS if places is not None and places + freed.pods < 1 else ""

    def rest_of(
        self,
        pool: "PoolFacts",
        node: "NodeName",
        *,
        own: "Mapping[DeviceName, int]",
        uid: "PodUid",
    ) -> Rest:
        """Return what is left of a node to a pod that has these masks of its devices already."""
        free = sorted(
            (entry.free | own.get(entry.facts.name, 0)).bit_count()
            for entry in self.devices_on(pool.name, node)
        )
        unit = unit_milli(pool)
        milli = (count * unit for count in free)
        return Rest(tuple(milli), *self.free_cpu_and_memory(node, without=uid))

    def pool_of(self, resource: str) -> "PoolFacts | None":
        """Return the pool that serves a resource."""
        name = self._pool_by_resource.get(resource)
        return self._pools[name].facts if name is not None else None

    def pool(self, name: "PoolName") -> "PoolFacts | None":
        state = self._pools.get(name)
        return state.facts if state else None

    def pools(self) -> "list[PoolFacts]":
        """Return all pools whose object exists."""
        return [state.facts for state in self._pools.values() if state.facts is not None]

    def state(self, name: "PoolName") -> PoolState:
        """Return a pool's nodes, views and capacity; an empty state for an unknown pool."""
        return self._pools.get(name) or self._new_state(name)

    def state_for(self, name: "PoolName", demand: "Demand") -> PoolState:
        """Return a pool's nodes, views and capacity for a pod: devices that its kernel caches do not fit have no units."""
        wish = self.wish_of(demand)
        return self.state(name) if wish is None else self.state(name).limited(wish.devices)

    def wish_of(self, demand: "Demand") -> "CacheDemand | None":
        """Return what a pod's kernel caches demand; None where it mounts none that is known."""
        return self.caches.wish(demand.caches) if demand.caches else None

    def view(self, name: "PoolName", demand: "Demand") -> "FitView":
        """Return refusals and scores of a pool's nodes for a demand; scores are without warmth."""
        state = self.state_for(name, demand) if demand.caches else self.state(name)
        return state.view(state.request_of(demand))

    def devices_on(self, pool: "PoolName", node: "NodeName") -> "list[DeviceEntry]":
        """Return the pool's devices on a node, by name."""
        state = self._pools.get(pool)
        names = state.devices_by_node.get(node, ()) if state else ()
        return [self.devices[name] for name in names]

    def device_rules(self, pool: "PoolName", node: "NodeName") -> DeviceRules:
        """Return the rules for sets of the pool's devices on a node."""
        return self.state(pool).device_rules(node)

    def kubelet_on(self, node: "NodeName") -> "KubeletTopology | None":
        """Return the TopologyManager settings of a node's kubelet; None where they are unknown."""
        return self._kubelets.get(node)

    def pools_on(self, node: "NodeName") -> "set[PoolName]":
        """Return the pools whose object exists and that have a device on the node."""
        return {
            pool
            for name in self.devices.on_node(node)
            if (pool := self.devices[name].facts.pool) is not None
            and self._pools[pool].facts is not None
        }

    def can_spread(self, pool: "PoolName", key: str) -> bool:
        """Say whether the pool's pods can go to every value that a label has on its nodes.

        All existing nodes of the pool carry the label, and each of its values has a node that takes pods and has healthy
        units. Free units are not required: units come free as pods end, and strict spreading means to wait for that.
        Without a full zone a pool would stop spreading whenever it is busy, and not begin again, since a pod keeps the
        constraint that it was admitted with. A node that is cordoned, not ready, faulty, or closed by an unaccounted
        pod has no such end.
        """
        return self._labels(pool, key)[0]

    def is_any_labelled(self, pool: "PoolName", key: str) -> bool:
        return self._labels(pool, key)[1]

    def _labels(self, pool: "PoolName", key: str) -> tuple[bool, bool]:
        answer = self._spreading.get((pool, key))
        if answer is None:
            state = self.state(pool)
            summaries = state.nodes()
            values = {
                name: node.labels.get(key)
                for name in state.devices_by_node
                if (node := self._nodes.get(name)) is not None
            }
            within_reach = {
                value
                for name, value in values.items()
                if (found := summaries.get(name)) is not None and found.takes_pods
            }
            can_spread = bool(values) and None not in values.values()
            answer = (
                can_spread and within_reach.issuperset(values.values()),
                any(value is not None for value in values.values()),
            )
            self._spreading[pool, key] = answer
        return answer

    def knows_node(self, name: "NodeName") -> bool:
        """Say whether the node, or a device on it, exists."""
        return name in self._nodes or self.devices.has_node(name)

    def _state(self, name: "PoolName") -> PoolState:
        state = self._pools.get(name)
        if state is None:
            state = self._pools[name] = self._new_state(name)
        return state

    def _new_state(self, name: "PoolName") -> PoolState:
        return PoolState(
            lambda node, devices, limit: self._summarize(name, node, devices, limit=limit),
            lambda node: self._read_rules(name, node),
        )

    def _route(self, resource: str) -> None:
        """Serve a resource that two pools claim by the older one, or the first by name; by none beside an unread one."""
        serving = serving_pool(self.pools(), resource)
        if serving is not None and resource not in self.unread_pools.values():
            self._pool_by_resource[resource] = serving.name
        else:
            self._pool_by_resource.pop(resource, None)

    def _lay_out(self, pool: "PoolName") -> None:
        state = self._state(pool)
        self._spreading.clear()
        self.changes.pools.add(pool)
        self.changes.nodes.update(state.devices_by_node)
        for names in state.devices_by_node.values():
            self.changes.devices.update(names)
            for name in names:
                entry = self.devices[name]
                entry.layout = layout_of(entry.facts, state.facts)
                self._recount_device(entry)

    def _set_withheld(self, name: "DeviceName", *, is_withheld: bool) -> None:
        entry = self.devices.get(name)
        if entry is not None:
            entry.is_withheld = is_withheld
            self._spreading.clear()
            self._mark_devices([entry])
            self.generation += 1

    def _link(self, entry: DeviceEntry) -> None:
        facts = entry.facts
        entry.is_withheld = facts.name in self._withheld
        self._spreading.clear()
        changed = self.devices.add(entry)
        if facts.pool is not None:
            state = self._state(facts.pool)
            entry.layout = layout_of(facts, state.facts)
            state.add_device(facts)
            self.changes.pools.add(facts.pool)
        self.changes.nodes.add(facts.node)
        self.changes.devices.add(facts.name)
        self._mark_devices(changed)
        self._recount_device(entry)

    def _unlink(self, entry: DeviceEntry) -> None:
        facts = entry.facts
        self._spreading.clear()
        self.changes.nodes.add(facts.node)
        self.changes.devices.add(facts.name)
        self._mark_devices(self.devices.remove(entry))
        if facts.pool is not None:
            state = self._pools[facts.pool]
            state.remove_device(facts)
            self.changes.pools.add(facts.pool)
            if state.facts is None and not state.devices_by_node:
                del self._pools[facts.pool]

    def _drop_unfollowed_changes(
        self,
        *,
        device: "DeviceName | None" = None,
        node: "NodeName | None" = None,
        pool: "PoolName | None" = None,
    ) -> None:
        """Drop names of deleted objects while no reader takes changes: a standby would only collect them."""
        if self.changes.is_followed:
            return
        if device is not None:
            self.changes.devices.discard(device)
        if node is not None and not self.knows_node(node):
            self.changes.nodes.discard(node)
        if pool is not None and pool not in self._pools:
            self.changes.pools.discard(pool)

    def _tell_of_devices(self, before: DeviceEntry | None, after: DeviceEntry | None) -> None:
        homes = [(item.facts.node, set(item.parts)) for item in (before, after) if item is not None]
        if len(homes) == 1 or homes[0] != homes[1]:
            for changed in self._subscribers:
                changed({node for node, _ in homes})

    def _recount(self, parts: "Iterable[str]", recount: "Callable[[DeviceEntry], bool]") -> None:
        """Recompute one mask of every device that one of the UUIDs belongs to."""
        changed = False
        for part in parts:
            for name in self.devices.with_part(part):
                changed = recount(self.devices[name]) or changed
        if changed:
            self.generation += 1

    def _recount_device(self, entry: DeviceEntry) -> None:
        self._recount_observed(entry)
        self._recount_assumed(entry)

    def _recount_observed(self, entry: DeviceEntry) -> bool:
        mask = self.claims.observed_mask(entry)
        if mask == entry.observed:
            return False
        entry.observed = mask
        self._mark_devices((entry,))
        return True

    def _recount_assumed(self, entry: DeviceEntry) -> bool:
        assumed, confirmed = self.claims.assumed_masks(entry)
        if (assumed, confirmed) == (entry.assumed, entry.confirmed):
            return False
        entry.assumed, entry.confirmed = assumed, confirmed
        self._mark_devices((entry,))
        return True

    def _mark_devices(self, entries: "Iterable[DeviceEntry]") -> None:
        for entry in entries:
            self.changes.devices.add(entry.facts.name)
            if entry.facts.pool is not None:
                self._mark(entry.facts.pool, entry.facts.node)

    def _mark(self, pool: "PoolName", node: "NodeName") -> None:
        self._pools[pool].mark(node)
        self.changes.pools.add(pool)

    def _mark_node(self, node: "NodeName") -> None:
        for name in self.devices.on_node(node):
            pool = self.devices[name].facts.pool
            if pool is not None:
                self._pools[pool].mark_rules(node)
                self.changes.pools.add(pool)

    def _mark_resource(self, resource: str, node: "NodeName") -> None:
        self._spreading.clear()
        for pool in self.pools():
            if pool.resource == resource:
                self._mark(pool.name, node)
        self.generation += 1

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
        entries: Sequence[DeviceEntry] = [self.devices[name] for name in devices]
        misfit = None
        if limit is not None:
            entries, misfit = limited(entries, limit, state.device_rules(node))
        rest = None
        if pool_facts is not None and pool_facts.strategy is Strategy.LEAST_FRAGMENTATION:
            free = sorted(entry.free.bit_count() for entry in entries)
            unit = unit_milli(pool_facts)
            milli = tuple(count * unit for count in free)
            rest = Rest(milli, *self.free_cpu_and_memory(node))
        pods = self.unaccounted.at(pool_facts.resource, node) if pool_facts is not None else None
        found = summarize(
            entries,
            unaccounted=sum(pods.values()) if pods else 0,
            is_placeable=facts is not None and facts.is_placeable,
            closed=_closed(pool_facts, facts),
            devices=self._constraints(state, node),
            rest=rest,
        )
        return found if misfit is None else without_misfits(found, misfit)

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
