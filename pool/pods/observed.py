"""The pods that the watch has shown: what each is now, and which of them are after units."""

from typing import TYPE_CHECKING, Final, final

from pool.model import PodPhase
from pool.pods.pending import PendingPods

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.names import NodeName, PodUid
    from pool.model import PodFacts

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
