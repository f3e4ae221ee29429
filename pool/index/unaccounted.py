"""Bound pods whose devices are unknown: their nodes, and the number of their units.

They fail closed: until such a pod ends, its node takes no pod of the pool. A pod that cannot be read may have units of
any pool: its node takes no pod of any.
"""

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.names import NodeName, PodUid

    Place = tuple[str, NodeName]
    """A pod's resource and its node."""


@final
class UnaccountedPods:
    """Pods by place, and the places of each pod: several for a pod that names several pools."""

    def __init__(self) -> None:
        self._units_by_pod: dict[Place, dict[PodUid, int]] = {}
        self._units_by_place: dict[PodUid, dict[Place, int]] = {}
        self._unread: dict[NodeName, dict[PodUid, int]] = {}

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

    def replace_unread(self, node_by_pod: "Mapping[PodUid, NodeName]") -> "set[NodeName]":
        """Set all pods that cannot be read, with their nodes; return the nodes that changed."""
        before, self._unread = self._unread, {}
        for pod, node in node_by_pod.items():
            # As many as any pod with units has at least; one is enough to close the node.
            self._unread.setdefault(node, {})[pod] = 1
        nodes = before.keys() | self._unread.keys()
        return {node for node in nodes if before.get(node) != self._unread.get(node)}

    def at(self, resource: str, node: "NodeName") -> "Mapping[PodUid, int]":
        """Return the pods of a place with their units."""
        pods = self._units_by_pod.get((resource, node), {})
        unread = self._unread.get(node)
        return pods if unread is None else {**pods, **unread}

    def at_any(self, resources: "Sequence[str]", node: "NodeName") -> "Mapping[PodUid, int]":
        """Return the pods of several places on a node with their units."""
        if len(resources) == 1:
            return self.at(resources[0], node)
        return {uid: units for name in resources for uid, units in self.at(name, node).items()}

    def __len__(self) -> int:
        return len(self._units_by_place)
