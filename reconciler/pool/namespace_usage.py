"""Namespaces and pods with units: the series of /metrics/usage.

Only devices that have changed are examined, a quarter of a second after they did. Pods whose devices are unknown
(`gpu_pods_unaccounted`) have none of these series.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, final

from api.names import PodUid, ReservationId
from pool.model import PodPhase
from reconciler.pool.unit_seconds import UnitState
from telemetry.usage_metrics import DEVICE_HOLDER, NAMESPACE_UNIT_SECONDS, NAMESPACE_UNITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from api.names import DeviceName
    from pool.allocation_reader import AllocationReader
    from pool.index.devices import DeviceEntry
    from pool.index.figures import IndexFigures

Group = tuple[str, str, str]
"""Pool, namespace and state."""
KEPT_S: Final = 3600.0
"""A namespace without units keeps its counters for so long: each scrape interval has seen their last values."""


class _Held(NamedTuple):
    """Units of one device that one holder has."""

    group: Group
    uuid: str
    pod: str
    """Name of a bound pod; empty for a reservation."""
    units: int


@final
class NamespaceUsage:
    """Sets the gauges and counters of namespaces and pods; the leader is their only owner."""

    def __init__(self, index: "IndexFigures", reader: "AllocationReader") -> None:
        self._index = index
        self._reader = reader
        self._held: dict[DeviceName, tuple[_Held, ...]] = {}
        self._since: dict[Group, tuple[float, int]] = {}
        # group -> until when it is counted, and its units from then on

    def begin(self) -> None:
        """Drop what an earlier term of this replica counted."""
        NAMESPACE_UNIT_SECONDS.clear()

    def update(self, devices: "Iterable[DeviceName]", now: float) -> None:
        """Read these devices again, and count the groups whose units change until now."""
        changes: Counter[Group] = Counter()
        for name in devices:
            entry = self._index.devices.get(name)
            held = tuple(sorted(self._read(entry))) if entry is not None else ()
            before = self._held.get(name, ())
            if held == before:
                continue
            for item in before:
                changes[item.group] -= item.units
            for item in held:
                changes[item.group] += item.units
            _show_pods(before, held)
            if held:
                self._held[name] = held
            else:
                del self._held[name]
        for group, change in changes.items():
            if change:
                self._move(group, change, now)

    def count(self, now: float) -> None:
        """Count every group until now; one that has had no units for long loses its series."""
        for group, (since, units) in list(self._since.items()):
            if units:
                self._move(group, 0, now)
            elif now - since > KEPT_S:
                NAMESPACE_UNITS.remove(*group)
                NAMESPACE_UNIT_SECONDS.remove(*group)
                del self._since[group]

    def _move(self, group: Group, change: int, now: float) -> None:
        since, units = self._since.get(group, (now, 0))
        NAMESPACE_UNIT_SECONDS.labels(*group).inc(units * (now - since))
        self._since[group] = now, units + change
        if change:
            NAMESPACE_UNITS.labels(*group).set(units + change)

    def _read(self, entry: "DeviceEntry") -> "Iterator[_Held]":
        pool = entry.facts.pool
        if pool is None:
            return
        claims, uuid = self._index.claims, entry.facts.uuid
        for holder, units in claims.holders(entry).items():
            mask = entry.layout.mask_of(units)
            pod = self._reader.holder(PodUid(holder))
            if pod is not None and pod.phase is PodPhase.BOUND and mask:
                group = (pool, pod.namespace, UnitState.USED.value)
                yield _Held(group, uuid, pod.name, mask.bit_count())
            # A reservation's id is no pod's uid.
            reservation = self._reader.ledger.get(ReservationId(holder))
            mask &= entry.confirmed & ~entry.observed
            if reservation is not None and mask:
                group = (pool, reservation.namespace, UnitState.RESERVED.value)
                yield _Held(group, uuid, "", mask.bit_count())


def forget_namespace_usage() -> None:
    """Remove the gauges, where this replica does not lead; what was counted stays."""
    NAMESPACE_UNITS.clear()
    DEVICE_HOLDER.clear()


def _show_pods(before: "tuple[_Held, ...]", held: "tuple[_Held, ...]") -> None:
    now_there = {(item.uuid, item.group[1], item.pod): item.units for item in held if item.pod}
    for item in before:
        place = (item.uuid, item.group[1], item.pod)
        if item.pod and place not in now_there:
            DEVICE_HOLDER.remove(*place)
    for place, units in now_there.items():
        DEVICE_HOLDER.labels(*place).set(units)
