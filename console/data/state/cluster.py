"""The state of a cluster as a console knows it: the server's own stores, filled by its own sinks, and what changed in them.

It has no recorder and no binder: nothing of it is written anywhere. Reservations are those that pods' annotations show.
"""

import datetime as dt
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from api.clock import Instant
from api.names import NodeName, owner_of
from api.status_conditions import format_time
from api.units import part_of
from api.well_known_labels import HOSTNAME_LABEL
from console.data.state.moments import Moments
from console.data.state.watched_pods import WatchedPods
from console.rows import EndedRow
from kernelcache.cache_index import CacheIndex
from kube.batches import steps
from kube.store import Store
from pool.allocation_state import AllocationState
from pool.catalog import Catalog
from pool.index.device_index import DeviceIndex
from pool.model import NodeFacts
from reconciler.informer_stores import InformerStores

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from api.clock import Clock
    from api.foreign.leases import PartialLease
    from api.names import DeviceName, PodUid, PoolName, ReservationId, UnitId
    from console.data.read_scope import ReadScope
    from kube.unread_objects import UnreadObject
    from pool.model import PodFacts
    from pool.reservations.reservation import Ended
    from reconciler.sinks.device import DeviceSink, ObservedDevice


@final
@dataclass(slots=True)
class ChangedKeys:
    """Keys of what has changed since rows were made of it: a hint about what to look at, never a fact.

    Each key leaves its set when its rows are made.
    """

    devices: "set[DeviceName]" = field(default_factory=set)
    nodes: "set[NodeName]" = field(default_factory=set)
    """Also those of which an inventory has changed."""
    pools: "set[PoolName]" = field(default_factory=set)
    pods: "set[PodUid]" = field(default_factory=set)
    reservations: "set[ReservationId]" = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.devices or self.nodes or self.pools or self.pods or self.reservations)


@final
class WatchedDevices:
    """The sink of an informer, in front of the server's own."""

    def __init__(self, sink: "DeviceSink", changed: ChangedKeys) -> None:
        self._sink = sink
        self._changed = changed

    def last_read(self, unread: "UnreadObject") -> "ObservedDevice | None":
        return self._sink.last_read(unread)

    def replace_all(self, items: "Sequence[ObservedDevice]") -> None:
        """Take over a full list; devices that are not in it are gone."""
        for _ in self.replace_in_steps(items):
            pass

    def replace_in_steps(self, items: "Sequence[ObservedDevice]") -> "Iterator[None]":
        """Take over a full list in steps."""
        changed: list[ObservedDevice] = []
        for entry in steps(items):
            changed += filter(self._is_changed, entry)
            yield
        yield from self._sink.replace_in_steps(items)
        for item in changed:
            self._note(item)

    def upsert(self, item: "ObservedDevice") -> None:
        is_changed = self._is_changed(item)
        self._sink.upsert(item)
        if is_changed:
            self._note(item)

    def discard(self, item: "ObservedDevice") -> None:
        self._sink.discard(item)

    def _is_changed(self, item: "ObservedDevice") -> bool:
        current = self._sink.store.get(item.facts.name)
        if current is None:
            return True
        before, after = current.status, item.device.status
        return (before.conditions, before.product, before.pci) != (
            after.conditions,
            after.product,
            after.pci,
        )

    def _note(self, item: "ObservedDevice") -> None:
        self._changed.devices.add(item.facts.name)
        self._changed.nodes.add(item.facts.node)


MOST_ENDED: Final = 200
ENDED_KEPT: Final = dt.timedelta(hours=1)


@final
class EndedReservations:
    """Ended reservations by id; the one that ended first is the first."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[dt.datetime, EndedRow]] = {}

    def add(self, ended: "Ended", now: dt.datetime) -> None:
        reservation = ended.reservation
        self._rows.pop(reservation.id, None)
        self._rows[reservation.id] = (
            now,
            EndedRow(
                namespace=reservation.namespace,
                pod=reservation.name,
                pool=owner_of(reservation.pool),
                node=reservation.node or "",
                units=reservation.demand.units,
                end=ended.end.value,
                at=format_time(now),
            ),
        )

    def rows(self, now: dt.datetime) -> dict[str, EndedRow]:
        """Return those to show, after dropping the others."""
        for id_ in list(self._rows)[: max(0, len(self._rows) - MOST_ENDED)]:
            del self._rows[id_]
        for id_, (at, _) in list(self._rows.items()):
            if now - at <= ENDED_KEPT:
                break
            del self._rows[id_]
        return {id_: row for id_, (_, row) in self._rows.items()}


@final
class ClusterState:
    """Filled by informers (`console.data.state.cluster_informers`)."""

    def __init__(self, clock: "Clock", scope: "ReadScope") -> None:
        self._clock = clock
        self.scope = scope
        self.moments = Moments(clock)
        self.catalog = Catalog()
        kernel_caches = CacheIndex()
        self.index = DeviceIndex(caches=kernel_caches, has_all_pods=scope.all_pods)
        self.allocation_state = AllocationState(self.index, on_end=self._note_end)
        self.reader = self.allocation_state.reader
        self.stores = InformerStores(self.allocation_state, self.catalog, kernel_caches)
        self.devices = self.stores.devices
        self.inventories = self.stores.inventories
        self.leases: Store[PartialLease] = Store()
        self.pods = WatchedPods(self.allocation_state, self.now, self._note_pod)
        self.ended = EndedReservations()
        self.changed = ChangedKeys()
        self.watched_devices = WatchedDevices(self.stores.device_sink, self.changed)
        self.inventories.changes.subscribe(lambda name: self.changed.nodes.add(NodeName(name)))
        self._is_trying = False

    @property
    def is_exact(self) -> bool:
        """Whether all pods are known, so that figures are the core's; otherwise they are the leader's last ones."""
        return self.scope.all_pods

    def now(self) -> Instant:
        return Instant(self._clock.monotonic(), self._clock.utc_now())

    def flush(self) -> None:
        """Do what the passing of time and the changes since the last call ask for, and gather what has changed."""
        self.allocation_state.expire(self.now())
        changes = self.index.changes.take()
        if not self.scope.nodes:
            for node in changes.nodes:
                self._assume_node(node)
        self.changed.devices |= changes.devices
        self.changed.nodes |= changes.nodes
        self.changed.pools |= changes.pools
        for pool in changes.pools:
            facts = self.index.pool(pool)
            if facts is not None and facts.closed is not None:
                self.allocation_state.release_reservations(pool)
        for node in changes.nodes:
            current = self.index.nodes.get(node)
            if current is None or current.is_leaving:
                self.allocation_state.release_on(node)

    @contextmanager
    def trying(self) -> "Iterator[None]":
        """Let what is done to the state, and taken back, be no change; for one synchronous step."""
        changes = self.index.changes
        before = set(changes.devices), set(changes.nodes), set(changes.pools)
        self._is_trying = True
        try:
            yield
        finally:
            self._is_trying = False
            changes.devices, changes.nodes, changes.pools = before

    def _assume_node(self, name: NodeName) -> None:
        """Let a node that may not be read count as ready while it has a device, as `kubectl gpu` does."""
        if not self.index.devices.has_node(name):
            self.index.discard_node(name)
        elif name not in self.index.nodes:
            self.index.replace_node(NodeFacts(name=name, labels={HOSTNAME_LABEL: name}))

    def _note_pod(self, pod: "PodFacts") -> None:
        self.changed.pods.add(pod.uid)
        if pod.node is not None and len(self.index.unaccounted):
            self.changed.nodes.add(pod.node)
        units = [unit for device in (pod.devices or {}).values() for unit in device]
        units += self.index.claims.observed.units(pod.uid)
        reservation = self.reader.ledger.of_pod(pod.uid)
        if reservation is not None:
            self.changed.reservations.add(reservation.id)
            units += reservation.units
        self._note_holders(units)

    def _note_holders(self, units: "Iterable[UnitId]") -> None:
        """Note the devices of units: of one that has a second holder, or is of no pool, the index sees no change."""
        for unit in units:
            self.changed.devices.update(self.index.devices.with_part(part_of(unit)))

    def _note_end(self, ended: "Ended") -> None:
        reservation = ended.reservation
        if self._is_trying:
            return
        self.ended.add(ended, self.now().utc)
        self.changed.reservations.add(reservation.id)
        self._note_holders(reservation.units)
        if reservation.uid is not None:
            self.changed.pods.add(reservation.uid)
