"""Pods that the watch has delivered: the last state of each, waiting pods, and nominated pods.

Membership is all that `PendingPods` keeps; the pods themselves are `ObservedPods`'.
"""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, TypeVar, final

from pool.model import PodPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from api.names import NodeName, PodUid
    from pool.model import PodFacts

NOMINATED_FOR_S: Final = 60.0
"""How long capacity is kept for a nominated pod: twice the 30 s that its victims have to end, unless they ask for more.
kube-scheduler does not take back each nomination: where an extender leaves it no node to preempt on, the pod keeps
the last one and waits. Units that come free later go by the order of waiting pods.
"""

Key = TypeVar("Key")


@final
class PendingPods:
    """Pods that wait for units of a resource, and pods nominated to a node."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[PodUid]] = defaultdict(set)
        # resource -> pods without units that only our own gate may keep from kube-scheduler
        self._demands: defaultdict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
        # resource -> (priority, units) -> how many of them
        self._nominated: defaultdict[tuple[str, NodeName], dict[PodUid, float]] = defaultdict(dict)
        # (resource, node) -> pods for which victims were evicted there -> when that was seen

    def __len__(self) -> int:
        """Return the number of memberships."""
        members = (*self._waiting.values(), *self._nominated.values())
        return sum(len(pods) for pods in members)

    def wait(self, facts: "PodFacts") -> None:
        """Count the pod as waiting, unless a gate of another one keeps it from the queue.

        A pod that awaits capacity waits: the units that it is to get are no one else's.
        """
        if facts.is_gated:
            return
        waiting = self._waiting[facts.demand.resource]
        if facts.uid not in waiting:
            waiting.add(facts.uid)
            self._demands[facts.demand.resource][facts.priority, facts.demand.units] += 1

    def stop_waiting(self, facts: "PodFacts") -> None:
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
        """Record the node that the pod is nominated to, if any; a repeated nomination changes nothing."""
        if facts.nominated_node is not None:
            key = facts.demand.resource, facts.nominated_node
            self._nominated[key].setdefault(facts.uid, now)

    def end_nomination(self, facts: "PodFacts") -> None:
        if facts.nominated_node is None:
            return
        key = facts.demand.resource, facts.nominated_node
        pods = self._nominated.get(key, {})
        pods.pop(facts.uid, None)
        if not pods:
            self._nominated.pop(key, None)

    def waiting(self, resource: str) -> "AbstractSet[PodUid]":
        """Return the pods without units that no gate of another one holds back."""
        return self._waiting.get(resource, frozenset())

    def all_waiting(self) -> "Iterator[PodUid]":
        """Yield the waiting pods of all resources, those that no pool serves among them, in no order."""
        for uids in self._waiting.values():
            yield from uids

    def demands(self, resource: str) -> "Mapping[tuple[int, int], int]":
        """Return (priority, units) -> number of waiting pods, to be read and not kept."""
        return self._demands.get(resource, {})

    def nominated(self, resource: str, node: "NodeName", now: float) -> "Iterator[PodUid]":
        """Yield the pods that were recently nominated to the node."""
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


def _add(counts: "Counter[Key]", key: Key, by: int) -> None:
    """Change a count; one that comes to 0 is not kept."""
    counts[key] += by
    if not counts[key]:
        del counts[key]


_ORDER: Final = {PodPhase.PENDING: 0, PodPhase.BOUND: 1, PodPhase.ENDED: 1}


@final
class ObservedPods:
    """Pods by uid, and those of them that are pending."""

    def __init__(self) -> None:
        self.pending = PendingPods()
        self.may_go_back = False
        """Whether a pod may be pending after it was bound or ended, as its store may be one that was restored."""
        self._by_uid: dict[PodUid, PodFacts] = {}
        self._bound: defaultdict[str, Counter[int]] = defaultdict(Counter)
        # resource -> priority -> number of bound pods
        self._awaiting: Counter[str] = Counter()
        # resource -> number of pending pods with our gate

    def __len__(self) -> int:
        return len(self._by_uid)

    def get(self, uid: "PodUid") -> "PodFacts | None":
        return self._by_uid.get(uid)

    def all(self) -> "Iterable[PodFacts]":
        """Return all pods, to be read and not kept."""
        return self._by_uid.values()

    def update(self, facts: "PodFacts") -> bool:
        """Set the pod's present state; False when it is older than the known one.

        A pod never goes back to pending, unless `may_go_back`. It goes back from ended to bound where its node did not write the ended phase,
        and then wrote its own.
        """
        before = self._by_uid.get(facts.uid)
        if before is not None:
            if _ORDER[before.phase] > _ORDER[facts.phase] and not self.may_go_back:
                return False
            self.pending.stop_waiting(before)
            if facts.phase is not PodPhase.PENDING or facts.nominated_node != before.nominated_node:
                self.pending.end_nomination(before)
            self._count(before, -1)
        self._by_uid[facts.uid] = facts
        self._count(facts, 1)
        return True

    def discard(self, uid: "PodUid") -> "PodFacts | None":
        """Drop a pod; return its last state."""
        facts = self._by_uid.pop(uid, None)
        if facts is not None:
            self.pending.stop_waiting(facts)
            self.pending.end_nomination(facts)
            self._count(facts, -1)
        return facts

    def await_units(self, uid: "PodUid | None") -> None:
        """Count the pod as waiting, if it is observed and still pending."""
        facts = self._by_uid.get(uid) if uid is not None else None
        if facts is not None and facts.phase is PodPhase.PENDING:
            self.pending.wait(facts)

    def waiting(self, resource: str) -> "list[PodFacts]":
        """Return pending pods without units that no gate of another one holds back: highest priority first, then oldest."""
        pods = [self._by_uid[uid] for uid in self.pending.waiting(resource)]
        return sorted(pods, key=lambda pod: (-pod.priority, pod.created, pod.ref))

    def all_waiting(self) -> "list[PodFacts]":
        """Return the waiting pods of all resources, those that no pool serves among them, in no order."""
        return [self._by_uid[uid] for uid in self.pending.all_waiting()]

    def waiting_count(self, resource: str) -> int:
        return len(self.pending.waiting(resource))

    def waiting_since(self, resource: str) -> str:
        """Return the creation time of the oldest waiting pod; empty without one that has it."""
        times = (self._by_uid[uid].created for uid in self.pending.waiting(resource))
        return min(filter(None, times), default="")

    def nominated(self, resource: str, node: "NodeName", now: float) -> "list[PodFacts]":
        """Return pending pods for which preemption recently freed capacity on the node."""
        return [self._by_uid[uid] for uid in self.pending.nominated(resource, node, now)]

    def is_capacity_awaited(self, resource: str) -> bool:
        """Say whether a pending pod has our gate."""
        return resource in self._awaiting

    def could_preempt(self, resource: str, priority: int) -> bool:
        """Say whether a pod of this priority could take units of bound pods by preemption."""
        return min(self._bound.get(resource, ()), default=priority) < priority

    def _count(self, facts: "PodFacts", by: int) -> None:
        resource = facts.demand.resource
        if facts.awaits_capacity and facts.phase is PodPhase.PENDING:
            _add(self._awaiting, resource, by)
        if facts.phase is not PodPhase.BOUND:
            return
        counts = self._bound[resource]
        _add(counts, facts.priority, by)
        if not counts:
            del self._bound[resource]
