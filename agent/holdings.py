"""Which live container has which unit: kubelet's own books, and what was handed out since it showed them.

A List of kubelet's, taken while it admits a pod, is the whole truth about pods that have not ended, but for
plain init containers: kubelet keeps their units for the pod's whole life and shows them nowhere. These are
known from our own grants, as long as their pod is listed.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from api.names import UnitId
from api.poolconfig import SLICE_SEPARATOR
from pool.units import part_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.pods import NodePod, NodePods
    from api.names import PodUid
    from api.podresources import PodUnits


@final
@dataclass(frozen=True, slots=True)
class Holder:
    """A pod that has a unit."""

    ref: str
    """`namespace/name`."""
    uid: "PodUid | None"
    """None where our watch has not shown it."""


@final
@dataclass(frozen=True, slots=True)
class _Hold:
    resource: str
    unit: str
    holder: Holder


_Grant = tuple["PodUid", str, str]
# uid, container, resource


@final
class Holdings:
    """The units of all resources of the node. Plain calls; nothing is awaited between reading and writing."""

    def __init__(self, pods: "NodePods") -> None:
        self._pods = pods
        self._is_current = False
        # The last List was answered; else what it showed is remembered, and may have ended since.
        self._listed: list[_Hold] = []
        self._granted: dict[_Grant, tuple[str, tuple[str, ...]]] = {}
        # -> ref, units
        self._served: set[_Grant] = set()
        # What was seen to have units, or got them; so that a pod of the same name is not taken for it.
        self._by_part: dict[str, list[_Hold]] = {}

    def refresh(self, listing: "Iterable[PodUnits]") -> None:
        """Take over what kubelet lists; what it does not list any more has ended."""
        self._is_current = True
        self._listed.clear()
        units: dict[tuple[str, str, str], tuple[str, ...]] = {}
        # ref, container, resource
        refs: set[str] = set()
        for listed in listing:
            pod = self._pods.find(listed.namespace, listed.name)
            holder = Holder(f"{listed.namespace}/{listed.name}", pod.uid if pod else None)
            refs.add(holder.ref)
            for container, resource, ids in _units_of(listed):
                units[holder.ref, container, resource] = ids
                self._listed += (_Hold(resource, unit, holder) for unit in ids)
                if pod is not None:
                    self._served.add((pod.uid, container, resource))
        self._served = {one for one in self._served if self._pods.get(one[0]) is not None}
        self._granted = {
            key: (ref, ids)
            for key, (ref, ids) in self._granted.items()
            if ref in refs and (ref, *key[1:]) not in units
        }
        self._index()

    def outdate(self) -> None:
        """Note that kubelet did not answer: what is known may have ended."""
        self._is_current = False

    def settle(self, pod: "NodePod") -> None:
        """Forget what pods of the same name had: kubelet admits none while another is alive."""
        before = len(self._granted)
        self._granted = {
            key: (ref, ids)
            for key, (ref, ids) in self._granted.items()
            if ref != pod.ref or key[0] == pod.uid
        }
        if len(self._granted) != before:
            self._index()

    def grant(
        self, pod: "NodePod", container: str, *, resource: str, units: "Sequence[str]"
    ) -> None:
        """Note what a container was given."""
        key = (pod.uid, container, resource)
        was_known = key in self._granted
        self._granted[key] = (pod.ref, tuple(units))
        self._served.add(key)
        if was_known:
            self._index()
        else:
            self._add(_Hold(resource, unit, Holder(pod.ref, pod.uid)) for unit in units)

    def is_served(self, uid: "PodUid", container: str, resource: str) -> bool:
        """Say whether the container was seen to have units of the resource."""
        return (uid, container, resource) in self._served

    def holder(self, unit: str, resource: str, asking: "NodePod | None") -> Holder | None:
        """Return a live pod other than the asking one with which the unit would be shared.

        A whole card shares with its slices, and a card of one pool with the same card in another.
        """
        for hold in self._by_part.get(part_of(UnitId(unit)), ()):
            if not _is_one(hold, unit, resource) or not self._is_live(hold.holder):
                continue
            # kubelet admits no pod while another of its name is alive, see `settle`.
            if asking is None or hold.holder.ref != asking.ref:
                return hold.holder
        return None

    def _is_live(self, holder: Holder) -> bool:
        if self._is_current:
            return True
        pod = None if holder.uid is None else self._pods.get(holder.uid)
        return pod is not None and not pod.is_ended

    def _index(self) -> None:
        self._by_part.clear()
        self._add(self._listed)
        for (uid, _, resource), (ref, units) in self._granted.items():
            self._add(_Hold(resource, unit, Holder(ref, uid)) for unit in units)

    def _add(self, holds: "Iterable[_Hold]") -> None:
        for hold in holds:
            self._by_part.setdefault(part_of(UnitId(hold.unit)), []).append(hold)


def _units_of(listed: "PodUnits") -> "Iterator[tuple[str, str, tuple[str, ...]]]":
    for container in listed.containers:
        for resource, ids in container.units.items():
            yield container.name, resource, ids


def _is_one(hold: _Hold, unit: str, resource: str) -> bool:
    """Say whether two units of one card are one thing to the card's users."""
    are_slices = SLICE_SEPARATOR in hold.unit and SLICE_SEPARATOR in unit
    return hold.unit == unit or not are_slices or hold.resource != resource
