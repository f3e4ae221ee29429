"""The units of live containers: kubelet's last List, and the allocations since.

A List that is taken while kubelet admits a pod is complete for pods that have not ended, except plain init
containers: kubelet keeps their units for the pod's whole life and lists them nowhere. These are known from the
plugin's own allocations, as long as their pod is listed.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, final

from api.names import PodUid, UnitId
from api.units import SLICE_SEPARATOR, part_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.kubelet.node_pods import NodePod, NodePods
    from agent.plugin.pods_file import PodsFile
    from api.kubelet.podresources import PodUnits
    from api.nodefiles.node_pods_file import NodePodUnits


@final
@dataclass(frozen=True, slots=True)
class HoldingPod:
    """A pod that has a unit."""

    ref: str
    """`namespace/name`."""
    uid: "PodUid | None"
    """None where the watch has not delivered it."""
    why: str = ""
    """Why it holds the unit although kubelet does not list it."""

    @property
    def text(self) -> str:
        return f"{self.ref}, {self.why}" if self.why else self.ref


class HolderSource(Enum):
    """The evidence that a pod has a unit."""

    LISTED = "listed"
    """kubelet's List."""
    ALLOCATED = "allocated"
    """An Allocate since the List, or one for a plain init container, which kubelet does not list."""
    REPORTED = "reported"
    """The agent's file of the node's pods."""
    ASSIGNED = "assigned"
    """Its annotation names the unit, and kubelet may have allocated it without a preference."""


@final
@dataclass(frozen=True, slots=True)
class HeldUnit:
    """A unit that a pod has, and the evidence."""

    resource: str
    unit: str
    holder: HoldingPod
    source: HolderSource


_ContainerKey = tuple["PodUid", str, str]
# uid, container, resource


@final
class HeldUnits:
    """The units of all resources of the node. Its methods do not await: each is atomic."""

    def __init__(self, pods: "NodePods", pods_file: "PodsFile | None" = None) -> None:
        self._pods = pods
        self._pods_file = pods_file
        self._is_current = False
        # False after an unanswered List: pods of the one before may have ended since.
        self._listed: list[HeldUnit] = []
        self._listed_refs: set[str] = set()
        self._allocated: dict[_ContainerKey, tuple[str, tuple[str, ...]]] = {}
        # -> ref, units
        self._with_units: set[_ContainerKey] = set()
        # Containers that had units; a later pod of the same name is not taken for one of them.
        self._by_part: dict[str, list[HeldUnit]] = {}

    def refresh(self, listing: "Iterable[PodUnits]") -> None:
        """Replace the List; pods that are not listed any more have ended."""
        self._is_current = True
        self._listed.clear()
        units: dict[tuple[str, str, str], tuple[str, ...]] = {}
        # ref, container, resource
        refs: set[str] = set()
        for listed in listing:
            pod = self._pods.find(listed.namespace, listed.name)
            holder = HoldingPod(f"{listed.namespace}/{listed.name}", pod.uid if pod else None)
            refs.add(holder.ref)
            for container, resource, ids in _units_of(listed):
                units[holder.ref, container, resource] = ids
                self._listed += (
                    HeldUnit(resource, unit, holder, HolderSource.LISTED) for unit in ids
                )
                if pod is not None:
                    self._with_units.add((pod.uid, container, resource))
        self._listed_refs = refs
        self._with_units = {
            item for item in self._with_units if self._pods.get(item[0]) is not None
        }
        self._allocated = {
            key: (ref, ids)
            for key, (ref, ids) in self._allocated.items()
            if ref in refs and (ref, *key[1:]) not in units
        }
        self._index()

    def mark_stale(self) -> None:
        """Record that kubelet did not answer List: known pods may have ended."""
        self._is_current = False

    def forget_namesakes(self, pod: "NodePod") -> None:
        """Forget allocations of other pods of this name: kubelet admits none while another is alive."""
        before = len(self._allocated)
        self._allocated = {
            key: (ref, ids)
            for key, (ref, ids) in self._allocated.items()
            if ref != pod.ref or key[0] == pod.uid
        }
        if len(self._allocated) != before:
            self._index()

    def record_allocation(
        self, pod: "NodePod", container: str, *, resource: str, units: "Sequence[str]"
    ) -> None:
        key = (pod.uid, container, resource)
        was_recorded = key in self._allocated
        self._allocated[key] = (pod.ref, tuple(units))
        self._with_units.add(key)
        if was_recorded:
            self._index()
        else:
            self._add(_allocated(resource, units, HoldingPod(pod.ref, pod.uid)))

    def has_units(self, uid: "PodUid", container: str, resource: str) -> bool:
        return (uid, container, resource) in self._with_units

    def holder(self, unit: str, resource: str, admitted: "NodePod | None") -> HoldingPod | None:
        """Return a live pod, other than the one being admitted, that the unit would be shared with.

        A whole device shares with its slices, and a device of one pool with the same device in another.
        """
        for hold in self._by_part.get(part_of(unit), ()):
            if not _shares(hold, unit, resource) or not self._is_live(hold.holder):
                continue
            # kubelet admits no pod while another of its name is alive, see `forget_namesakes`.
            if admitted is None or hold.holder.ref != admitted.ref:
                return hold.holder
        for item in self._reported_holders(unit):
            if self._is_forgotten(item) and (admitted is None or admitted.uid != item.uid):
                return _holder_of(item, "whose devices kubelet has forgotten")
        return self.terminated_holder(unit, admitted)

    def terminated_holder(self, unit: str, admitted: "NodePod | None") -> HoldingPod | None:
        """Return a pod that has ended by the API server and still has the unit.

        The pod being admitted may have its name: it was deleted by force and created again.
        """
        for holder in self._reported_holders(unit):
            if self._holds_after_end(holder) and (admitted is None or admitted.uid != holder.uid):
                return _holder_of(holder, "whose processes are still there")
        return None

    def transient_holder(self, unit: str, admitted: "NodePod | None") -> HoldingPod | None:
        """Return a pod that has the unit now, and may lose it within seconds.

        It has ended and has processes; or the watch shows it running and kubelet does not list it, so that
        one of the two is behind.
        """
        for holder in self._reported_holders(unit):
            is_admitted = admitted is not None and admitted.uid == holder.uid
            if not is_admitted and (self._holds_after_end(holder) or self._is_unlisted(holder)):
                return _holder_of(holder)
        return None

    def _is_unlisted(self, holder: "NodePodUnits") -> bool:
        pod = self._pods.get(PodUid(holder.uid))
        return (
            self._is_current
            and holder.is_given
            and pod is not None
            and not pod.is_ended
            and pod.ref not in self._listed_refs
        )

    def _reported_holders(self, unit: str) -> "Iterator[NodePodUnits]":
        """Yield the pods that have the unit by the agent's file."""
        for item in self._pods_file.with_part(part_of(unit)) if self._pods_file else ():
            if any(_is_shared(unit, other) for other in item.units):
                yield item

    def _is_forgotten(self, holder: "NodePodUnits") -> bool:
        """Return whether kubelet has dropped the devices of a running pod.

        kubelet drops them where the phase says ended, also where that is wrong, and does not restore them
        with the phase. A pod that kubelet does not list has ended before the watch shows it.
        """
        pod = self._pods.get(PodUid(holder.uid))
        if pod is None or pod.is_ended or not holder.is_given:
            return False
        return pod.ref in self._listed_refs or not self._is_current

    def _holds_after_end(self, holder: "NodePodUnits") -> bool:
        pod = self._pods.get(PodUid(holder.uid))
        if pod is None:
            # The units of a pod that ended in order are free, unless its processes were seen after its end.
            return holder.is_over or not self._pods.has_ended(PodUid(holder.uid))
        return pod.is_contradicted or (pod.is_ended and holder.is_over)

    def possible_holders(self, unit: str, resource: str) -> "list[HeldUnit]":
        """Return the pods that may have the unit, except those that the watch shows ended or deleted.

        For an Allocate without a List before it: kubelet is then asked about each.
        """
        holds = [
            hold
            for hold in self._by_part.get(part_of(unit), ())
            if hold.holder.uid is None or self._is_visible(hold.holder.uid)
        ]
        holds += (
            HeldUnit(resource, unit, _holder_of(item), HolderSource.REPORTED)
            for item in self._reported_holders(unit)
            if item.is_given and self._is_visible(PodUid(item.uid))
        )
        assigned = [
            HeldUnit(resource, unit, HoldingPod(pod.ref, pod.uid), HolderSource.ASSIGNED)
            for pod in self._pods.all()
            if not pod.is_ended and pod.is_assigned(unit, resource)
        ]
        # A single one is the pod that is being admitted.
        holds += assigned if len(assigned) > 1 else ()
        return [hold for hold in holds if _shares(hold, unit, resource)]

    def _is_live(self, holder: HoldingPod) -> bool:
        if self._is_current:
            return True
        return holder.uid is not None and self._is_visible(holder.uid)

    def _is_visible(self, uid: "PodUid") -> bool:
        pod = self._pods.get(uid)
        return pod is not None and not pod.is_ended

    def _index(self) -> None:
        self._by_part.clear()
        self._add(self._listed)
        for (uid, _, resource), (ref, units) in self._allocated.items():
            self._add(_allocated(resource, units, HoldingPod(ref, uid)))

    def _add(self, holds: "Iterable[HeldUnit]") -> None:
        for hold in holds:
            self._by_part.setdefault(part_of(UnitId(hold.unit)), []).append(hold)


def _units_of(listed: "PodUnits") -> "Iterator[tuple[str, str, tuple[str, ...]]]":
    for container in listed.containers:
        for resource, ids in container.units.items():
            yield container.name, resource, ids


def _holder_of(holder: "NodePodUnits", cause: str = "") -> HoldingPod:
    return HoldingPod(f"{holder.namespace}/{holder.name}", PodUid(holder.uid), cause)


def _allocated(resource: str, units: "Sequence[str]", holder: HoldingPod) -> "Iterator[HeldUnit]":
    for unit in units:
        yield HeldUnit(resource, unit, holder, HolderSource.ALLOCATED)


def _shares(hold: HeldUnit, unit: str, resource: str) -> bool:
    """Return whether users of two units of one device share it."""
    return hold.resource != resource or _is_shared(hold.unit, unit)


def _is_shared(unit: str, other: str) -> bool:
    are_slices = SLICE_SEPARATOR in unit and SLICE_SEPARATOR in other
    return unit == other or (not are_slices and part_of(unit) == part_of(other))
