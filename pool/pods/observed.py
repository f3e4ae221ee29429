"""The pods that the watch has shown: what each is now, and which of them are after units."""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, TypeVar, final

from pool.model import PodPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from api.names import NodeName, PodUid
    from pool.model import PodFacts

NOMINATED_FOR_S: Final = 60.0
"""How long room is kept for a nominated pod: twice the 30 s that its victims have to end, unless they ask
for more. kube-scheduler does not take each nomination back: where an extender leaves it no node to preempt
on, the pod keeps the last one and waits. What comes free later goes by the order of waiting pods."""

Key = TypeVar("Key")


@final
class PendingPods:
    """Who waits for units of a resource, and who was nominated to a node."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[PodUid]] = defaultdict(set)
        # resource -> pods that hold nothing and are not gated
        self._demands: defaultdict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
        # resource -> (priority, units) -> how many of them
        self._nominated: defaultdict[tuple[str, NodeName], dict[PodUid, float]] = defaultdict(dict)
        # (resource, node) -> pods for which victims were evicted there -> when that was seen

    def __len__(self) -> int:
        """Return how many memberships there are; 0 when nobody is after anything."""
        members = (*self._waiting.values(), *self._nominated.values())
        return sum(len(pods) for pods in members)

    def wait(self, facts: "PodFacts") -> None:
        """Count the pod among those that hold nothing, unless it is gated."""
        if facts.is_gated:
            return
        waiting = self._waiting[facts.demand.resource]
        if facts.uid not in waiting:
            waiting.add(facts.uid)
            self._demands[facts.demand.resource][facts.priority, facts.demand.units] += 1

    def stop_waiting(self, facts: "PodFacts") -> None:
        """Count the pod no more among those that hold nothing."""
        resource, key = facts.demand.resource, (facts.priority, facts.demand.units)
        if facts.uid not in self.waiting(resource):
            return
        _discard(self._waiting, resource, facts.uid)
        demands = self._demands[resource]
        demands[key] -= 1
        if not demands[key]:
            del demands[key]
        if not demands:
            del self._demands[resource]

    def nominate(self, facts: "PodFacts", now: float) -> None:
        """Note the node that the pod is nominated to, if it is; the same nomination once more is none."""
        if facts.nominated_node is not None:
            key = facts.demand.resource, facts.nominated_node
            self._nominated[key].setdefault(facts.uid, now)

    def end_nomination(self, facts: "PodFacts") -> None:
        """Forget where the pod was nominated to."""
        if facts.nominated_node is None:
            return
        key = facts.demand.resource, facts.nominated_node
        pods = self._nominated.get(key, {})
        pods.pop(facts.uid, None)
        if not pods:
            self._nominated.pop(key, None)

    def waiting(self, resource: str) -> "AbstractSet[PodUid]":
        """Return the pods that hold nothing and are not gated."""
        return self._waiting.get(resource, frozenset())

    def demands(self, resource: str) -> "Mapping[tuple[int, int], int]":
        """Return how many waiting pods of which priority and units there are. Read it, don't keep it."""
        return self._demands.get(resource, {})

    def nominated(self, resource: str, node: "NodeName", now: float) -> "Iterator[PodUid]":
        """Yield the pods that were nominated to the node not long ago."""
        for uid, since in self._nominated.get((resource, node), {}).items():
            if now - since < NOMINATED_FOR_S:
                yield uid


def _discard(relation: "dict[Key, set[PodUid]]", key: Key, pod: "PodUid") -> None:
    """Remove a member, and the key with its last one."""
    members = relation.get(key)
    if members is None:
        return
    members.discard(pod)
    if not members:
        del relation[key]


_ORDER: Final = {PodPhase.PENDING: 0, PodPhase.BOUND: 1, PodPhase.ENDED: 1}


@final
class ObservedPods:
    """Pods by uid, and those of them that are pending."""

    def __init__(self) -> None:
        self.pending = PendingPods()
        self._by_uid: dict[PodUid, PodFacts] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def get(self, uid: "PodUid") -> "PodFacts | None":
        """Return a pod as it was last seen."""
        return self._by_uid.get(uid)

    def all(self) -> "Iterable[PodFacts]":
        """Return all pods. Read them, don't keep them."""
        return self._by_uid.values()

    def take_in(self, facts: "PodFacts") -> bool:
        """Make this the pod's present state; False when it is older than what is known.

        A pod never goes back to pending. It goes back from ended to bound where its phase was not its
        node's word, and the node has written its own.
        """
        before = self._by_uid.get(facts.uid)
        if before is not None:
            if _ORDER[before.phase] > _ORDER[facts.phase]:
                return False
            self.pending.stop_waiting(before)
            if facts.phase is not PodPhase.PENDING or facts.nominated_node != before.nominated_node:
                self.pending.end_nomination(before)
        self._by_uid[facts.uid] = facts
        return True

    def discard(self, uid: "PodUid") -> "PodFacts | None":
        """Forget a pod that is gone; return its last state."""
        facts = self._by_uid.pop(uid, None)
        if facts is not None:
            self.pending.stop_waiting(facts)
            self.pending.end_nomination(facts)
        return facts

    def await_units(self, uid: "PodUid | None") -> None:
        """Count the pod among those that hold nothing, if it was seen and is still pending."""
        facts = self._by_uid.get(uid) if uid is not None else None
        if facts is not None and facts.phase is PodPhase.PENDING:
            self.pending.wait(facts)

    def waiting(self, resource: str) -> "list[PodFacts]":
        """Return pending pods that hold nothing and aren't gated: highest priority first, then oldest."""
        pods = [self._by_uid[uid] for uid in self.pending.waiting(resource)]
        return sorted(pods, key=lambda pod: (-pod.priority, pod.created, pod.ref))

    def waiting_count(self, resource: str) -> int:
        """Return how many pending pods hold nothing and aren't gated."""
        return len(self.pending.waiting(resource))

    def waiting_since(self, resource: str) -> str:
        """Return when the oldest of them was created; empty without one that says so."""
        times = (self._by_uid[uid].created for uid in self.pending.waiting(resource))
        return min(filter(None, times), default="")

    def nominated(self, resource: str, node: "NodeName", now: float) -> "list[PodFacts]":
        """Return pending pods for which preemption made room on the node, not long ago."""
        return [self._by_uid[uid] for uid in self.pending.nominated(resource, node, now)]
