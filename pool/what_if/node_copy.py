"""A copy of one node of a pool, on which a change is tried before it is named."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from api.names import owner_of
from pool.compute_resources import NOTHING, ComputeResources
from pool.index.cache_fit import devices_for
from pool.index.device_index import DeviceIndex
from pool.index.node_view import refusal_of
from pool.layout import partitioned_again
from pool.placement.planner import plan_devices
from pool.what_if.exclusion import exclusion_of

if TYPE_CHECKING:
    from api.names import DeviceName, NodeName, PodUid, ReservationId
    from pool.index.devices import DeviceEntry
    from pool.index.reader import IndexReader
    from pool.model import Constraints, Demand, DeviceFacts, NodeFacts, PodFacts, PoolFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """What is different on the copy."""

    ended: "frozenset[PodUid | ReservationId]" = frozenset()
    """Bound pods and reservations whose units are free."""
    restored: "frozenset[DeviceName]" = frozenset()
    """Devices that are neither faulted nor draining, and that their agent has partitioned."""
    joined: "tuple[DeviceFacts, ...]" = ()
    """Devices of the node that come into the pool."""
    node: "NodeFacts | None" = None
    """The node, where it changes."""
    freed: ComputeResources = NOTHING
    """CPU, memory and places of pods that have ended."""


NO_CHANGE = NodeChange()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCopy:
    """Places one pod on copies of nodes."""

    index: "IndexReader"
    pool: "PoolFacts"
    pod: "PodFacts"
    demand: "Demand"
    """The pod's, or a smaller one, or the same of another pool."""
    constraints: "Constraints"

    def takes(self, node: "NodeName", change: NodeChange = NO_CHANGE) -> bool:
        """Say whether the node takes the pod after the change, as filter and bind decide it.

        Units of reservations whose pods the API server has not stored yet count as free, as they do to any pod that
        exists.
        """
        facts = change.node or self.index.nodes.get(node)
        if facts is None or exclusion_of(facts, self.constraints):
            return False
        if not self.index.has_capacity(self.pod, node, freed=change.freed):
            return False
        copy = self._copy(node, facts, change)
        state = copy.state_for(self.pool.name, self.demand)
        summary = state.node(node)
        if summary is None or refusal_of(summary, state.request_of(self.demand)) is not None:
            return False
        entries = devices_for(copy, self.pool.name, self.demand, node=node)
        rules = copy.device_rules(self.pool.name, node)
        return plan_devices(entries, self.demand, rules) is not None

    def _copy(self, node: "NodeName", facts: "NodeFacts", change: NodeChange) -> DeviceIndex:
        source, copy = self.index, DeviceIndex(caches=self.index.caches)
        owner = owner_of(self.pool.name)
        copy.replace_pool(source.pool(owner) or self.pool)
        copy.replace_node(facts)
        copy.replace_kubelet(node, source.kubelet_on(node))
        entries = source.devices_on(self.pool.name, node)
        for entry in entries:
            is_restored = entry.facts.name in change.restored
            copy.replace_device(_device(entry, self.pool, is_restored=is_restored))
        for device in change.joined:
            joined = replace(device, pool=owner, is_faulted=False, is_draining=False)
            copy.replace_device(joined)
            current = source.devices.get(device.name)
            entries = entries if current is None else [*entries, current]
        for entry in entries:
            self._copy_claims(entry, copy, ended=change.ended)
        unaccounted = source.unaccounted.at(self.pool.resource, node)
        for uid, units in unaccounted.items():
            if uid not in change.ended:
                copy.set_unaccounted(uid, {(self.pool.resource, node): units})
        return copy

    def _copy_claims(
        self, entry: "DeviceEntry", copy: DeviceIndex, *, ended: "frozenset[PodUid | ReservationId]"
    ) -> None:
        claims = self.index.claims
        for part in entry.parts:
            for uid, _ in claims.observed.owners_on(part):
                if uid not in ended:
                    copy.set_observed(uid, claims.observed.units(uid))
            for id_, _ in claims.assumed.owners_on(part):
                if id_ not in ended and id_ not in claims.unconfirmed:
                    copy.set_assumed(id_, claims.assumed.units(id_))


def _device(entry: "DeviceEntry", pool: "PoolFacts", *, is_restored: bool) -> "DeviceFacts":
    facts = entry.facts
    if entry.is_duplicate:  # the device that owns its UUID may be on another node
        return replace(facts, is_faulted=True)
    if is_restored:
        return partitioned_again(replace(facts, is_faulted=False, is_draining=False), pool)
    return replace(facts, is_draining=True) if entry.is_withheld else facts
