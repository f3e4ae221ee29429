"""The device index: what is where, who holds it, and what is free.

Two truths are kept apart: *observed* claims of bound pods, and *assumed* claims of reservations.
A unit is free when neither holds it. Everything derived is recomputed from the claims, never counted
up or down, so that events may come late, twice or in another order and end in the same index.

Writers are `replace_*` and `discard_*` (idempotent) and the claim setters, which only `pool.books`
calls. Design: docs/design/0002-index-and-ledger.md.
"""

from typing import TYPE_CHECKING, final

from api.names import PodUid, ReservationId
from pool.changes import ChangeLog
from pool.claims import Claims
from pool.devices import DeviceEntry, Devices
from pool.doubles import DoubleClaims
from pool.poolstate import PoolState
from pool.summary import summarize
from pool.unaccounted import UnaccountedPods
from pool.units import layout_of, part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from api.names import DeviceName, NodeName, PoolName, UnitId
    from pool.changes import Changes
    from pool.model import DeviceFacts, NodeFacts, PoolFacts
    from pool.nodeview import FitView, PoolNode


@final
class DeviceIndex:
    """Devices, pools and nodes, with the claims on them."""

    def __init__(self, on_cards: "Callable[[Collection[NodeName]], None] | None" = None) -> None:
        """Start empty.

        Args:
            on_cards: told, once it is so, the nodes on which another set of UUIDs is found than before.
        """
        self._on_cards = on_cards
        self.generation = 0
        """Moves with every real change."""
        self._devices = Devices()
        self._nodes: dict[NodeName, NodeFacts] = {}
        self._pools: dict[PoolName, PoolState] = {}
        self._pool_by_resource: dict[str, PoolName] = {}
        self._observed: Claims[PodUid] = Claims()
        self._doubles: DoubleClaims[PodUid] = DoubleClaims()
        self._assumed: Claims[ReservationId] = Claims()
        self._unaccounted = UnaccountedPods()
        self._labelled: dict[tuple[PoolName, str], tuple[bool, bool]] = {}
        # (pool, label key) -> do all its nodes carry it, does any; emptied when a node or a device moves
        self._withheld: set[DeviceName] = set()
        # devices that are to leave their pool, whatever their objects say yet
        self._changes = ChangeLog()

    # --- what the watches say ------------------------------------------------------------------

    def replace_pool(self, facts: "PoolFacts") -> None:
        """Take over a pool's object."""
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
        """Forget a pool; its devices have no units until it comes back."""
        state = self._pools.get(name)
        if state is None or state.facts is None:
            return
        resource = state.facts.resource
        state.set_facts(None)
        self._route(resource)
        self._lay_out(name)
        if not state.devices_by_node:
            del self._pools[name]
        self.generation += 1

    def replace_device(self, facts: "DeviceFacts") -> None:
        """Take over a device's object; claims on its UUIDs, older or newer, apply to it."""
        entry = self._devices.get(facts.name)
        if entry is not None:
            if entry.facts == facts:
                return
            self._unlink(entry)
        linked = DeviceEntry(facts)
        self._link(linked)
        self.generation += 1
        self._tell_of_cards(entry, linked)

    def discard_device(self, name: "DeviceName") -> None:
        """Forget a device. Claims on it stay, should it come back."""
        entry = self._devices.get(name)
        self._withheld.discard(name)
        if entry is None:
            return
        self._unlink(entry)
        self.generation += 1
        self._tell_of_cards(entry, None)

    def replace_node(self, facts: "NodeFacts") -> None:
        """Take over a node's object."""
        known = self._nodes.get(facts.name)
        self._nodes[facts.name] = facts  # always: equal facts may be of a newer object
        if known == facts:
            return
        self._labelled.clear()
        self._changes.nodes.add(facts.name)
        self._mark_node(facts.name)
        self.generation += 1

    def discard_node(self, name: "NodeName") -> None:
        """Forget a node; holds are no longer taken on its devices."""
        if self._nodes.pop(name, None) is None:
            return
        self._labelled.clear()
        self._changes.nodes.add(name)
        self._mark_node(name)
        self.generation += 1

    # --- leaving a pool ------------------------------------------------------------------------

    def withhold(self, name: "DeviceName") -> None:
        """Give out nothing of the device from now on: it is to leave its pool.

        It stays so, whatever is observed of the device, until `readmit`.
        """
        if name not in self._withheld:
            self._withheld.add(name)
            self._set_withheld(name, is_withheld=True)

    def readmit(self, name: "DeviceName") -> None:
        """Take a `withhold` back; what the device's object says of draining stands."""
        if name in self._withheld:
            self._withheld.discard(name)
            self._set_withheld(name, is_withheld=False)

    # --- claims --------------------------------------------------------------------------------

    def set_observed(self, pod: PodUid, units: "tuple[UnitId, ...]") -> None:
        """Make these the units of a bound pod; an empty tuple ends its claims."""
        parts = self._observed.replace(pod, units)
        self._doubles.recheck(parts, self._observed)
        self._recount(parts, self._recount_observed)

    def set_assumed(self, reservation: ReservationId, units: "tuple[UnitId, ...]") -> None:
        """Make these the units of a reservation; an empty tuple ends its claims."""
        self._recount(self._assumed.replace(reservation, units), self._recount_assumed)

    def set_unaccounted(self, pod: PodUid, units: "Mapping[tuple[str, NodeName], int]") -> None:
        """Note a bound pod of which nobody knows the devices; no units end that.

        `units` are by the resource that it asked for and its node.
        """
        for place in self._unaccounted.replace(pod, units):
            self._mark_resource(*place)

    def touch_pool(self, name: "PoolName") -> None:
        """Have the pool looked at: something of its object changed that the index does not keep."""
        self._changes.pools.add(name)

    def touch_device(self, name: "DeviceName") -> None:
        """Have the device looked at: something of its object changed that the index does not keep."""
        self._changes.devices.add(name)

    def take_changes(self) -> "Changes":
        """Return what changed since the last call, for whoever writes status back."""
        return self._changes.take()

    # --- reading -------------------------------------------------------------------------------

    def pool_of(self, resource: str) -> "PoolFacts | None":
        """Return the pool that serves a resource name."""
        name = self._pool_by_resource.get(resource)
        return self._pools[name].facts if name is not None else None

    def pool(self, name: "PoolName") -> "PoolFacts | None":
        """Return a pool's facts."""
        state = self._pools.get(name)
        return state.facts if state else None

    def pools(self) -> "list[PoolFacts]":
        """Return all pools whose object exists."""
        return [state.facts for state in self._pools.values() if state.facts is not None]

    def state(self, name: "PoolName") -> PoolState:
        """Return a pool's nodes, views and capacity; an empty one for a pool that is unknown."""
        return self._pools.get(name) or self._new_state(name)

    def view(self, name: "PoolName", size: int) -> "FitView":
        """Return verdicts and scores of a pool's nodes for a size."""
        return self.state(name).view(size)

    def device(self, name: "DeviceName") -> DeviceEntry | None:
        """Return a device."""
        return self._devices.get(name)

    def devices(self) -> "Iterable[DeviceEntry]":
        """Return all devices. Read them, don't keep them."""
        return self._devices.all()

    def devices_on(self, pool: "PoolName", node: "NodeName") -> "list[DeviceEntry]":
        """Return the pool's devices on a node, by name."""
        state = self._pools.get(pool)
        names = state.devices_by_node.get(node, ()) if state else ()
        return [self._devices[name] for name in names]

    def pools_on(self, node: "NodeName") -> "set[PoolName]":
        """Return the pools whose object exists and that have a device on the node."""
        return {
            pool
            for name in self._devices.on_node(node)
            if (pool := self._devices[name].facts.pool) is not None
            and self._pools[pool].facts is not None
        }

    def device_of(self, unit: "UnitId") -> DeviceEntry | None:
        """Return the device that a unit belongs to."""
        return self._devices.of_unit(unit)

    def is_on(self, unit: "UnitId", node: "NodeName") -> bool:
        """Say whether the unit is of a card, or of a MIG instance, that is on the node."""
        names = self._devices.with_part(part_of(unit))
        return any(self._devices[name].facts.node == node for name in names)

    def rivals(self, entry: DeviceEntry) -> "frozenset[DeviceName]":
        """Return the other devices that claim a UUID of this one."""
        claiming = (self._devices.with_part(part) for part in entry.parts)
        return frozenset(name for names in claiming for name in names) - {entry.facts.name}

    def node(self, name: "NodeName") -> "NodeFacts | None":
        """Return a node's facts."""
        return self._nodes.get(name)

    def nodes(self) -> "Iterable[NodeFacts]":
        """Return all nodes. Read them, don't keep them."""
        return self._nodes.values()

    def are_labelled(self, pool: "PoolName", key: str) -> bool:
        """Say whether the pool has nodes, and all of them that exist carry the label."""
        return self._labels(pool, key)[0]

    def is_any_labelled(self, pool: "PoolName", key: str) -> bool:
        """Say whether a node of the pool carries the label."""
        return self._labels(pool, key)[1]

    def _labels(self, pool: "PoolName", key: str) -> tuple[bool, bool]:
        answer = self._labelled.get((pool, key))
        if answer is None:
            facts = [self._nodes.get(name) for name in self.state(pool).devices_by_node]
            carried = [key in node.labels for node in facts if node is not None]
            answer = bool(carried) and all(carried), any(carried)
            self._labelled[pool, key] = answer
        return answer

    def knows_node(self, name: "NodeName") -> bool:
        """Say whether the node, or a device on it, was ever observed and is still there."""
        return name in self._nodes or self._devices.has_node(name)

    def observed_units(self, pod: PodUid) -> "tuple[UnitId, ...]":
        """Return the units that a bound pod holds."""
        return self._observed.units(pod)

    def assumed_units(self, reservation: ReservationId) -> "tuple[UnitId, ...]":
        """Return the units that a reservation holds."""
        return self._assumed.units(reservation)

    def masks_of(self, units: "Iterable[UnitId]") -> "dict[DeviceName, int]":
        """Return the bits that the units take, by device; units of unknown cards are left out."""
        masks: dict[DeviceName, int] = {}
        for unit in units:
            for name in self._devices.with_part(part_of(unit)):
                masks[name] = masks.get(name, 0) | self._devices[name].layout.mask_of(unit)
        return masks

    def masks_held_alone(self, reservation: ReservationId) -> "dict[DeviceName, int]":
        """Return the bits that no other reservation holds, by device.

        Two reservations overlap after a card was cut anew under them; then the bits are nobody's own.
        """
        masks = self.masks_of(self._assumed.units(reservation))
        return {
            name: mask & ~self.assumed_by_others(self._devices[name], reservation)
            for name, mask in masks.items()
        }

    def assumed_by_others(self, entry: DeviceEntry, reservation: ReservationId) -> int:
        """Return the mask of units that other reservations than this one hold."""
        if not self._assumed.units(reservation):
            return entry.assumed
        mask = 0
        for part in entry.parts:
            for owner, unit in self._assumed.on(part):
                if owner != reservation:
                    mask |= entry.layout.mask_of(unit)
        return mask

    def holders(self, entry: DeviceEntry) -> "Mapping[PodUid | ReservationId, tuple[UnitId, ...]]":
        """Return who holds which units of a device, observed and assumed."""
        found: dict[PodUid | ReservationId, tuple[UnitId, ...]] = {}
        for claims in (self._observed, self._assumed):
            for part in entry.parts:
                for owner, unit in claims.on(part):
                    found[owner] = (*found.get(owner, ()), unit)
        return found

    def occupants(self, entry: DeviceEntry) -> "Mapping[PodUid, tuple[UnitId, ...]]":
        """Return the bound pods that have units of a device, in whatever cut they were given."""
        found: dict[PodUid, tuple[UnitId, ...]] = {}
        for part in entry.parts:
            for pod, unit in self._observed.on(part):
                found[pod] = (*found.get(pod, ()), unit)
        return found

    def held_twice(self) -> "Mapping[UnitId, frozenset[PodUid]]":
        """Return the units that several bound pods have, with these pods: none, if all goes well."""
        return self._doubles.all()

    def unaccounted_pods(self, resource: str, node: "NodeName") -> "Mapping[PodUid, int]":
        """Return the pods on a node of which nobody knows the devices, with their units."""
        return self._unaccounted.at(resource, node)

    def unaccounted_count(self) -> int:
        """Return how many bound pods have devices that nobody knows."""
        return len(self._unaccounted)

    # --- keeping up ----------------------------------------------------------------------------

    def _state(self, name: "PoolName") -> PoolState:
        state = self._pools.get(name)
        if state is None:
            state = self._pools[name] = self._new_state(name)
        return state

    def _new_state(self, name: "PoolName") -> PoolState:
        return PoolState(lambda node, devices: self._summarize(name, node, devices))

    def _route(self, resource: str) -> None:
        """Let the older pool serve a resource that two pools claim, or the first by name."""
        claims = [(one.created, one.name) for one in self.pools() if one.resource == resource]
        if claims:
            self._pool_by_resource[resource] = min(claims)[1]
        else:
            self._pool_by_resource.pop(resource, None)

    def _lay_out(self, pool: "PoolName") -> None:
        state = self._state(pool)
        self._changes.pools.add(pool)
        self._changes.nodes.update(state.devices_by_node)
        for names in state.devices_by_node.values():
            self._changes.devices.update(names)
            for name in names:
                entry = self._devices[name]
                entry.layout = layout_of(entry.facts, state.facts)
                self._recount_device(entry)

    def _set_withheld(self, name: "DeviceName", *, is_withheld: bool) -> None:
        entry = self._devices.get(name)
        if entry is not None:
            entry.is_withheld = is_withheld
            self._mark_devices([entry])
            self.generation += 1

    def _link(self, entry: DeviceEntry) -> None:
        facts = entry.facts
        entry.is_withheld = facts.name in self._withheld
        self._labelled.clear()
        changed = self._devices.add(entry)
        if facts.pool is not None:
            state = self._state(facts.pool)
            entry.layout = layout_of(facts, state.facts)
            state.add_device(facts.node, facts.name)
            self._changes.pools.add(facts.pool)
        self._changes.nodes.add(facts.node)
        self._changes.devices.add(facts.name)
        self._mark_devices(changed)
        self._recount_device(entry)

    def _unlink(self, entry: DeviceEntry) -> None:
        facts = entry.facts
        self._labelled.clear()
        self._changes.nodes.add(facts.node)
        self._changes.devices.add(facts.name)
        self._mark_devices(self._devices.remove(entry))
        if facts.pool is not None:
            state = self._pools[facts.pool]
            state.remove_device(facts.node, facts.name)
            self._changes.pools.add(facts.pool)
            if state.facts is None and not state.devices_by_node:
                del self._pools[facts.pool]

    def _tell_of_cards(self, before: DeviceEntry | None, after: DeviceEntry | None) -> None:
        if self._on_cards is None:
            return
        homes = [(one.facts.node, set(one.parts)) for one in (before, after) if one is not None]
        if len(homes) == 1 or homes[0] != homes[1]:
            self._on_cards({node for node, _ in homes})

    def _recount(self, parts: "Iterable[str]", recount: "Callable[[DeviceEntry], bool]") -> None:
        """Recompute one mask of every device that one of the UUIDs belongs to."""
        changed = False
        for part in parts:
            for name in self._devices.with_part(part):
                changed = recount(self._devices[name]) or changed
        if changed:
            self.generation += 1

    def _recount_device(self, entry: DeviceEntry) -> None:
        self._recount_observed(entry)
        self._recount_assumed(entry)

    def _recount_observed(self, entry: DeviceEntry) -> bool:
        mask = entry.mask_of(self._observed)
        if mask == entry.observed:
            return False
        entry.observed = mask
        self._mark_devices((entry,))
        return True

    def _recount_assumed(self, entry: DeviceEntry) -> bool:
        mask = entry.mask_of(self._assumed)
        if mask == entry.assumed:
            return False
        entry.assumed = mask
        self._mark_devices((entry,))
        return True

    def _mark_devices(self, entries: "Iterable[DeviceEntry]") -> None:
        for entry in entries:
            self._changes.devices.add(entry.facts.name)
            if entry.facts.pool is not None:
                self._mark(entry.facts.pool, entry.facts.node)

    def _mark(self, pool: "PoolName", node: "NodeName") -> None:
        self._pools[pool].mark(node)
        self._changes.pools.add(pool)

    def _mark_node(self, node: "NodeName") -> None:
        for name in self._devices.on_node(node):
            pool = self._devices[name].facts.pool
            if pool is not None:
                self._mark(pool, node)

    def _mark_resource(self, resource: str, node: "NodeName") -> None:
        for pool in self.pools():
            if pool.resource == resource:
                self._mark(pool.name, node)
        self.generation += 1

    def _summarize(
        self, pool: "PoolName", node: "NodeName", devices: "list[DeviceName]"
    ) -> "PoolNode | None":
        pool_facts, facts = self._pools[pool].facts, self._nodes.get(node)
        pods = self._unaccounted.at(pool_facts.resource, node) if pool_facts is not None else None
        return summarize(
            [self._devices[name] for name in devices],
            unaccounted=sum(pods.values()) if pods else 0,
            is_placeable=facts is not None and facts.is_placeable,
            closed=pool_facts.closed if pool_facts is not None else None,
        )
