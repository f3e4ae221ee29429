"""The device index: devices, pools and nodes, the claims on units, and what is free.

Everything derived is recomputed from the claims and never counted up or down, so late, repeated and reordered
events end in the same index. Writers are `replace_*` and `discard_*` (idempotent) and the claim setters, which
only `pool.allocation_state` calls. What it answers is in `pool.index.figures` and `pool.index.reader`.
"""

from typing import TYPE_CHECKING, final

from api.kinds.gpupool import Strategy
from api.names import owner_of
from pool.compute_resources import NOTHING, ComputeResources
from pool.index.devices import DeviceEntry
from pool.index.pool_state import PoolState
from pool.index.reader import IndexReader
from pool.serving import serving_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from api.names import DeviceName, NodeName, PodUid, PoolName, ReservationId, UnitId
    from pool.model import DeviceFacts, KubeletTopology, NodeFacts, PoolFacts
    from pool.placement.fragmentation.placement_costs import PlacementCosts


@final
class DeviceIndex(IndexReader):
    """The index with its writers, for sinks and the allocation state."""

    def subscribe(self, changed: "Callable[[Collection[NodeName]], None]") -> None:
        """Have it called with the nodes whose set of UUIDs has changed, after the change."""
        self._subscribers.append(changed)

    def replace_pool(self, facts: "PoolFacts") -> None:
        state = self._state(facts.name)
        if state.facts == facts:
            return
        before = state.facts
        state.set_facts(facts)
        self._set_parts(state, facts.parts)
        for resource in {*(before.resources if before is not None else ()), *facts.resources}:
            self._route(resource)
        self._lay_out(facts.name)
        self.generation += 1

    def discard_pool(self, name: "PoolName") -> None:
        """Drop a pool; its devices have no units until it comes back."""
        state = self._pools.get(name)
        if state is None or state.facts is None:
            return
        resources = state.facts.resources
        state.set_facts(None)
        self._set_parts(state, ())
        for resource in resources:
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
        linked = DeviceEntry(facts, is_withheld=facts.name in self._withheld)
        if is_event and (entry is None or entry.facts.pool != facts.pool):
            self._new.add(facts.name)
        linked.is_new = facts.name in self._new
        self._link(linked, entry if entry and entry.facts.pool == facts.pool else None)
        self.generation += 1
        self._notify_devices(entry, linked)

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
        self._notify_devices(entry, None)

    def replace_node(self, facts: "NodeFacts") -> None:
        current = self._nodes.get(facts.name)
        self._nodes[facts.name] = facts  # always: equal facts may be of a newer object
        if current == facts:
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

    def admit_new_devices(self, now: float) -> None:
        """End the newness of devices whose time is over by `now`."""
        for name in self._new.admitted(now):
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

    def _state(self, name: "PoolName") -> PoolState:
        state = self._pools.get(name)
        if state is None:
            state = self._pools[name] = self._new_state(name)
        return state

    def _set_parts(self, state: PoolState, parts: "Sequence[PoolFacts]") -> None:
        """Keep a state for each MIG profile of a pool that has several; they share its devices."""
        for part in state.parts:
            if part.facts is not None:
                del self._pools[part.facts.name]
        state.parts = []
        for facts in parts:
            part = self._pools[facts.name] = self._new_state(facts.name)
            part.devices_by_node, part.capabilities = state.devices_by_node, state.capabilities
            part.set_facts(facts)
            state.parts.append(part)

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
                state.lay_out(entry)
                self._recount_device(entry)

    def _set_withheld(self, name: "DeviceName", *, is_withheld: bool) -> None:
        entry = self.devices.get(name)
        if entry is not None:
            entry.is_withheld = is_withheld
            entry.update_usable()
            self._spreading.clear()
            self._mark_devices([entry])
            self.generation += 1

    def _link(self, entry: DeviceEntry, before: DeviceEntry | None = None) -> None:
        facts = entry.facts
        self._spreading.clear()
        changed = self.devices.add(entry)
        if facts.pool is not None:
            state = self._state(facts.pool)
            state.lay_out(entry, before)
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

    def _notify_devices(self, before: DeviceEntry | None, after: DeviceEntry | None) -> None:
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
                self._mark(owner_of(pool.name), node)
        self.generation += 1
