"""Pods of nodes by their labels, for rules of pods about other pods: bound ones, and those with reserved units.

Pods of a workload are alike, so a rule is compared with kinds of pods and not with each of them. Labels of namespaces are
in no cache: a rule with a selector of namespaces counts pods of all of them where it requires to be apart, and of none else.
"""

import functools
from collections import Counter
from typing import TYPE_CHECKING, final

from api.selector_text import parse_label_selector
from pool.peer_rules import PeerKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from api.meta import LabelSelector
    from api.names import NodeName, PodUid, ReservationId
    from pool.peer_rules import Peer, PeerRule


@final
class Peers:
    """Pods by kind and node."""

    def __init__(self) -> None:
        self._by_pod: dict[PodUid | ReservationId, tuple[NodeName, Peer]] = {}
        self._nodes: dict[str, dict[Peer, dict[NodeName, int]]] = {}
        # namespace -> kind of pods -> their number by node
        self.with_anti_affinity: Counter[Peer] = Counter()
        """Number of the pods that keep others away, by kind; to be read and not kept."""
        self._away: dict[str, dict[tuple[PeerRule, Peer], None]] = {}
        # namespace, empty for rules that select namespaces -> rules that keep its pods away, and whose they are

    def __len__(self) -> int:
        return len(self._by_pod)

    def replace(
        self, pod: "PodUid | ReservationId", node: "NodeName | None", peer: "Peer | None"
    ) -> None:
        """Set the node and kind of a pod; None to end it."""
        before = self._by_pod.pop(pod, None)
        if before is not None:
            self._count(*before, -1)
        if node is not None and peer is not None:
            self._by_pod[pod] = node, peer
            self._count(node, peer, 1)

    def keeping_away(self, peer: "Peer") -> "Iterator[tuple[PeerRule, Peer]]":
        """Yield the rules by which other pods keep this one away, and the kinds of pods that have them."""
        for namespace in (peer.namespace, ""):
            for rule, other in self._away.get(namespace, ()):
                if selects(rule, peer):
                    yield rule, other

    def may_keep_away(self, namespace: str) -> bool:
        """Return whether there is a rule that could keep pods of the namespace away."""
        return namespace in self._away or "" in self._away

    def nodes_of(self, peer: "Peer") -> "Mapping[NodeName, int]":
        """Return the number of pods of a kind by node, to be read and not kept."""
        return self._nodes[peer.namespace][peer]

    def selected(self, rules: "Iterable[PeerRule]") -> "Counter[NodeName]":
        """Return the number of pods by node that each of the rules selects."""
        found: Counter[NodeName] = Counter()
        rules = tuple(rules)
        for peer, nodes in self._kinds(rules[0]):
            if all(selects(rule, peer) for rule in rules):
                found.update(nodes)
        return found

    def kinds(self, rule: "PeerRule") -> int:
        """Return how many kinds of pods the rule is compared with."""
        return sum(1 for _ in self._kinds(rule))

    def _kinds(self, rule: "PeerRule") -> "Iterator[tuple[Peer, Mapping[NodeName, int]]]":
        are_all = rule.namespace_selector is not None
        for namespace in self._nodes if are_all else set(rule.namespaces):
            yield from self._nodes.get(namespace, {}).items()

    def _count(self, node: "NodeName", peer: "Peer", by: int) -> None:
        # On the way of each reservation: no counters, which are made in ten times the time of a dict.
        kinds = self._nodes.setdefault(peer.namespace, {})
        nodes = kinds.setdefault(peer, {})
        count = nodes.get(node, 0) + by
        if count:
            nodes[node] = count
        else:
            del nodes[node]
            if not nodes:
                del kinds[peer]
            if not kinds:
                del self._nodes[peer.namespace]
        if peer.anti_affinity:
            self._count_anti_affinity(peer, by)

    def _count_anti_affinity(self, peer: "Peer", by: int) -> None:
        if peer not in self.with_anti_affinity:
            for namespace, rule in _away_keys(peer):
                self._away.setdefault(namespace, {})[rule, peer] = None
        self.with_anti_affinity[peer] += by
        if self.with_anti_affinity[peer]:
            return
        del self.with_anti_affinity[peer]
        for namespace, rule in _away_keys(peer):
            rules = self._away[namespace]
            del rules[rule, peer]
            if not rules:
                del self._away[namespace]


def _away_keys(peer: "Peer") -> "Iterable[tuple[str, PeerRule]]":
    """Return the rules by which a pod keeps others away, by the namespaces of these."""
    return dict.fromkeys(
        (namespace, rule)
        for rule in peer.anti_affinity
        for namespace in (rule.namespaces if rule.namespace_selector is None else ("",))
    )


def selects(rule: "PeerRule", peer: "Peer") -> bool:
    """Say whether a rule is about a pod."""
    if peer.namespace not in rule.namespaces and rule.namespace_selector != "":
        is_cautious = rule.kind is PeerKind.ANTI_AFFINITY and not rule.weight
        if rule.namespace_selector is None or not is_cautious:
            return False
    selector = None if rule.selector is None else _selector(rule.selector)
    return selector is not None and selector.matches(dict(peer.labels))


@functools.lru_cache(maxsize=8192)
def _selector(text: str) -> "LabelSelector | None":
    """Return the selector; None where the API server would refuse it."""
    try:
        return parse_label_selector(text)
    except ValueError:
        return None
