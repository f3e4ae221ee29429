"""Pending pods and what they are after: those that hold nothing, and those that preemption made room for.

Two relations by resource, kept by `pool.books`. Membership is all that is stored; the pods themselves
are the books'.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from api.names import NodeName, PodUid
    from pool.model import PodFacts

Key = TypeVar("Key")


@final
class PendingPods:
    """Who waits for units of a resource, and who was nominated to a node."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[PodUid]] = defaultdict(set)
        # resource -> pods that hold nothing
        self._nominated: defaultdict[tuple[str, NodeName], set[PodUid]] = defaultdict(set)
        # (resource, node) -> pods for which victims were evicted there

    def __len__(self) -> int:
        """Return how many memberships there are; 0 when nobody is after anything."""
        members = (*self._waiting.values(), *self._nominated.values())
        return sum(len(pods) for pods in members)

    def wait(self, facts: "PodFacts") -> None:
        """Count the pod among those that hold nothing."""
        self._waiting[facts.demand.resource].add(facts.uid)

    def stop_waiting(self, facts: "PodFacts") -> None:
        """Count the pod no more among those that hold nothing."""
        _discard(self._waiting, facts.demand.resource, facts.uid)

    def nominate(self, facts: "PodFacts") -> None:
        """Note the node that the pod is nominated to, if it is."""
        if facts.nominated_node is not None:
            self._nominated[facts.demand.resource, facts.nominated_node].add(facts.uid)

    def forget(self, facts: "PodFacts") -> None:
        """Take the pod out of both relations; its next state puts it back."""
        self.stop_waiting(facts)
        if facts.nominated_node is not None:
            _discard(self._nominated, (facts.demand.resource, facts.nominated_node), facts.uid)

    def waiting(self, resource: str) -> "AbstractSet[PodUid]":
        """Return the pods that hold nothing."""
        return self._waiting.get(resource, frozenset())

    def nominated(self, resource: str, node: "NodeName") -> "AbstractSet[PodUid]":
        """Return the pods that are nominated to the node."""
        return self._nominated.get((resource, node), frozenset())


def _discard(relation: "dict[Key, set[PodUid]]", key: Key, pod: "PodUid") -> None:
    """Remove a member, and the key with its last one."""
    members = relation.get(key)
    if members is None:
        return
    members.discard(pod)
    if not members:
        del relation[key]
