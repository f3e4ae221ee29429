"""Bound pods whose devices are unknown: their nodes, and the number of their units.

They fail closed: until such a pod ends, its node takes no pod of the pool.
"""

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.names import NodeName, PodUid

    Place = tuple[str, NodeName]
    """A pod's resource and its node."""


@final
class UnaccountedPods:
    """Pods by place, and the places of each pod: several for a pod that names several pools."""

    def __init__(self) -> None:
        self._units_by_pod: dict[Place, dict[PodUid, int]] = {}
        self._units_by_place: dict[PodUid, dict[Place, int]] = {}

    def replace(self, pod: "PodUid", units: "Mapping[Place, int]") -> "set[Place]":
        """Set the pod's units by place, none to drop it; return the places that changed."""
        before = self._units_by_place.get(pod, {})
        changed = {place for place in (*before, *units) if before.get(place) != units.get(place)}
        for place in changed:
            pods = self._units_by_pod.setdefault(place, {})
            if place in units:
                pods[pod] = units[place]
            else:
                del pods[pod]
            if not pods:
                del self._units_by_pod[place]
        if units:
            self._units_by_place[pod] = dict(units)
        else:
            self._units_by_place.pop(pod, None)
        return changed

    def at(self, resource: str, node: "NodeName") -> "Mapping[PodUid, int]":
        """Return the pods of a place with their units."""
        return self._units_by_pod.get((resource, node), {})

    def __len__(self) -> int:
        return len(self._units_by_place)
