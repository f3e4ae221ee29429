"""Explanations of one moment: pods with equal demand, gate, constraints and requests share one, without names of pods."""

from typing import TYPE_CHECKING, final

import msgspec

from pool.what_if.explain import explain
from pool.what_if.explanation import UnitWaitReason
from pool.what_if.question import WaitQuestion
from telemetry.explanation_texts import wait_summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Instant
    from pool.allocation_reader import AllocationReader
    from pool.compute_resources import ComputeResources
    from pool.index.reader import IndexReader
    from pool.model import Demand, PodFacts, PodSelection
    from pool.peer_rules import Peer, PeerRule

    _EquivalenceKey = tuple[Demand, bool, int, ComputeResources, tuple[tuple[PeerRule, Peer], ...]]
    """Demand, whether it has our gate, the id of the selection, which equal pods share, what is requested, and by which
    rules other pods keep it away."""


class WaitText(msgspec.Struct, frozen=True):
    """Why a pod waits, in one line."""

    reason: UnitWaitReason
    message: str

    @property
    def is_available(self) -> bool:
        """Whether a node has the units: the pod waits for something else."""
        return self.reason is UnitWaitReason.UNITS_AVAILABLE


@final
class SharedExplanations:
    """What was found out for pods that are alike, as of the first of them."""

    def __init__(
        self, reader: "AllocationReader", index: "IndexReader", now: "Callable[[], Instant]"
    ) -> None:
        self._reader = reader
        self._index = index
        self._now = now
        self._texts: dict[_EquivalenceKey, tuple[PodSelection | None, WaitText]] = {}
        # the selection is kept with the text, so that it keeps its id
        self._away: dict[Peer | None, tuple[tuple[PeerRule, Peer], ...]] = {None: ()}
        # by which rules other pods keep the explained ones away; compared with all such rules but once

    def has_explained(self, pod: "PodFacts") -> bool:
        """Return whether a pod that is alike was explained, without comparing it with the rules of other pods."""
        peer = pod.peer
        is_free = peer is None or not self._index.peers.may_keep_away(peer.namespace)
        return (is_free or peer in self._away) and self._equivalence_key(pod) in self._texts

    def explain(self, pod: "PodFacts") -> WaitText:
        """Return why a waiting pod waits; it changes nothing."""
        key = self._equivalence_key(pod)
        cached = self._texts.get(key)
        if cached is None:
            cached = self._texts[key] = (pod.selection, self._text_of(pod))
        return cached[1]

    def _text_of(self, pod: "PodFacts") -> WaitText:
        # Without details of nodes: their holders may be pods of other namespaces.
        question = WaitQuestion(pod=pod, now=self._now().monotonic, most_nodes=0)
        found = explain(self._reader, self._index, question, with_remedies=False)
        return WaitText(found.reason, wait_summary(found))

    def _equivalence_key(self, pod: "PodFacts") -> "_EquivalenceKey":
        away = self._away.get(pod.peer)
        if away is None and pod.peer is not None:
            away = self._away[pod.peer] = tuple(self._index.peers.keeping_away(pod.peer))
        return pod.demand, pod.awaits_capacity, id(pod.selection), pod.requests, away or ()
