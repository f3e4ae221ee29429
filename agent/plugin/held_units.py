"""Which live container has which unit: kubelet's own books, and what was handed out since it showed them.

A List of kubelet's, taken while it admits a pod, is the whole truth about pods that have not ended, but for
plain init containers: kubelet keeps their units for the pod's whole life and shows them nowhere. These are
known from our own grants, as long as their pod is listed.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, final

from api.names import PodUid, UnitId
from api.units import SLICE_SEPARATOR, part_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.kubelet.pods import NodePod, NodePods
    from agent.plugin.pods_file import PodsFile
    from api.kubelet.podresources import PodUnits
    from api.nodefiles.pods import NodePodUnits


@final
@dataclass(frozen=True, slots=True)
class Holder:
    """A pod that has a unit."""

    ref: str
    """`namespace/name`."""
    uid: "PodUid | None"
    """None where our watch has not shown it."""
    why: str = ""
    """What explains that it has anything, where kubelet says that it has not."""

    @property
    def text(self) -> str:
        """Return its name and the explanation."""
        return f"{self.ref}, {self.why}" if self.why else self.ref


class KnownHolders(Enum):
    """By what a pod is known to have a unit."""

    LISTED = "listed"
    """kubelet showed it."""
    GRANTED = "granted"
    """It was given by us since, or to a plain init container, of which kubelet shows nothing."""
    REPORTED = "reported"
    """The node's agent heard that kubelet gave it."""
    PROMISED = "promised"
    """It is to get the unit, and may have got it without our being asked."""


@final
@dataclass(frozen=True, slots=True)
class HeldUnit:
    """A unit that a pod has, as far as is known."""

    resource: str
    unit: str
    holder: Holder
    known: KnownHolders


_Grant = tuple["PodUid", str, str]
# uid, container, resource


@final
class HeldUnits:
    """The units of all resources of the node. Plain calls; nothing is awaited between reading and writing."""

    def __init__(self, pods: "NodePods", occupancy: "PodsFile | None" = None) -> None:
        """Know nothing yet; without `occupancy` nobody tells of processes."""
        self._pods = pods
        self._occupancy = occupancy
        self._is_current = False
        # The last List was answered; else what it showed is remembered, and may have ended since.
        self._listed: list[HeldUnit] = []
        self._listed_refs: set[str] = set()
        self._granted: dict[_Grant, tuple[str, tuple[str, ...]]] = {}
        # -> ref, units
        self._served: set[_Grant] = set()
        # What was seen to have units, or got them; so that a pod of the same name is not taken for it.
        self._by_part: dict[str, list[HeldUnit]] = {}

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
                self._listed += (
                    HeldUnit(resource, unit, holder, KnownHolders.LISTED) for unit in ids
                )
                if pod is not None:
                    self._served.add((pod.uid, container, resource))
        self._listed_refs = refs
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
            self._add(_granted(resource, units, Holder(pod.ref, pod.uid)))

    def is_served(self, uid: "PodUid", container: str, resource: str) -> bool:
        """Say whether the container was seen to have units of the resource."""
        return (uid, container, resource) in self._served

    def holder(self, unit: str, resource: str, asking: "NodePod | None") -> Holder | None:
        """Return a live pod other than the asking one with which the unit would be shared.

        A whole card shares with its slices, and a card of one pool with the same card in another.
        """
        for hold in self._by_part.get(part_of(unit), ()):
            if not _is_one(hold, unit, resource) or not self._is_live(hold.holder):
                continue
            # kubelet admits no pod while another of its name is alive, see `settle`.
            if asking is None or hold.holder.ref != asking.ref:
                return hold.holder
        for one in self._told(unit):
            if self._is_forgotten(one) and (asking is None or asking.uid != one.uid):
                return _holder_of(one, "whose devices kubelet has forgotten")
        return self.left_holder(unit, asking)

    def left_holder(self, unit: str, asking: "NodePod | None") -> Holder | None:
        """Return a pod that is over by what the API server shows, and has the unit all the same.

        The asking pod may have its name: it was deleted by force, and made again.
        """
        for one in self._told(unit):
            if self._is_left(one) and (asking is None or asking.uid != one.uid):
                return _holder_of(one, "whose processes are still there")
        return None

    def passing_holder(self, unit: str, asking: "NodePod | None") -> Holder | None:
        """Return a pod that has the unit, and that another look may show without it.

        It is over and has processes; or our watch shows it living and kubelet does not, so that one of the
        two is behind.
        """
        for one in self._told(unit):
            is_asking = asking is not None and asking.uid == one.uid
            if not is_asking and (self._is_left(one) or self._is_unlisted(one)):
                return _holder_of(one)
        return None

    def _is_unlisted(self, one: "NodePodUnits") -> bool:
        pod = self._pods.get(PodUid(one.uid))
        return (
            self._is_current
            and one.is_given
            and pod is not None
            and not pod.is_ended
            and pod.ref not in self._listed_refs
        )

    def _told(self, unit: str) -> "Iterator[NodePodUnits]":
        """Yield the pods that have the unit by the word of the node's agent."""
        for one in self._occupancy.with_part(part_of(unit)) if self._occupancy else ():
            if any(_is_shared(unit, other) for other in one.units):
                yield one

    def _is_forgotten(self, one: "NodePodUnits") -> bool:
        """Say whether a pod that lives has lost its devices in kubelet's books.

        kubelet gives them up where the pod's phase says ended, whoever wrote that, and does not take them
        up again with the phase. A pod that kubelet does not list has ended before our watch shows it.
        """
        pod = self._pods.get(PodUid(one.uid))
        if pod is None or pod.is_ended or not one.is_given:
            return False
        return pod.ref in self._listed_refs or not self._is_current

    def _is_left(self, one: "NodePodUnits") -> bool:
        pod = self._pods.get(PodUid(one.uid))
        if pod is None:
            # What ended in order is free at once, unless processes were seen after its end.
            return one.is_over or not self._pods.is_known_ended(PodUid(one.uid))
        return pod.is_contradicted or (pod.is_ended and one.is_over)

    def suspects(self, unit: str, resource: str) -> "list[HeldUnit]":
        """Return who may have the unit, but for those that the watch shows ended or gone.

        For an Allocate without a List before it: kubelet knows better by now.
        """
        holds = [
            hold
            for hold in self._by_part.get(part_of(unit), ())
            if hold.holder.uid is None or self._is_shown(hold.holder.uid)
        ]
        holds += (
            HeldUnit(resource, unit, _holder_of(one), KnownHolders.REPORTED)
            for one in self._told(unit)
            if one.is_given and self._is_shown(PodUid(one.uid))
        )
        promised = [
            HeldUnit(resource, unit, Holder(pod.ref, pod.uid), KnownHolders.PROMISED)
            for pod in self._pods.all()
            if not pod.is_ended and pod.is_promised(unit, resource)
        ]
        # One alone is the pod that is being served.
        holds += promised if len(promised) > 1 else ()
        return [hold for hold in holds if _is_one(hold, unit, resource)]

    def _is_live(self, holder: Holder) -> bool:
        if self._is_current:
            return True
        return holder.uid is not None and self._is_shown(holder.uid)

    def _is_shown(self, uid: "PodUid") -> bool:
        pod = self._pods.get(uid)
        return pod is not None and not pod.is_ended

    def _index(self) -> None:
        self._by_part.clear()
        self._add(self._listed)
        for (uid, _, resource), (ref, units) in self._granted.items():
            self._add(_granted(resource, units, Holder(ref, uid)))

    def _add(self, holds: "Iterable[HeldUnit]") -> None:
        for hold in holds:
            self._by_part.setdefault(part_of(UnitId(hold.unit)), []).append(hold)


def _units_of(listed: "PodUnits") -> "Iterator[tuple[str, str, tuple[str, ...]]]":
    for container in listed.containers:
        for resource, ids in container.units.items():
            yield container.name, resource, ids


def _holder_of(one: "NodePodUnits", why: str = "") -> Holder:
    return Holder(f"{one.namespace}/{one.name}", PodUid(one.uid), why)


def _granted(resource: str, units: "Sequence[str]", holder: Holder) -> "Iterator[HeldUnit]":
    for unit in units:
        yield HeldUnit(resource, unit, holder, KnownHolders.GRANTED)


def _is_one(hold: HeldUnit, unit: str, resource: str) -> bool:
    """Say whether two units of one card are one thing to the card's users."""
    return hold.resource != resource or _is_shared(hold.unit, unit)


def _is_shared(unit: str, other: str) -> bool:
    are_slices = SLICE_SEPARATOR in unit and SLICE_SEPARATOR in other
    return unit == other or (not are_slices and part_of(unit) == part_of(other))
