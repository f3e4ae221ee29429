"""Nodes for a pod by the places of other pods, as kube-scheduler's filters and scores have it with their default weights.

Required rules of the pod, and the required podAntiAffinity of other pods, allow a node or not. Preferences by node labels,
by other pods and on spreading have 0 to 100 points each; the nodes with the most points go before all others.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from pool.compute_resources import OTHER_PODS
from pool.index.peers import selects
from pool.node_affinity import MAX_COMPARISONS, RequiredNodeAffinity
from pool.peer_rules import PeerKind
from pool.placement.planner import may_go_to

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from api.names import NodeName, PoolName
    from pool.index.reader import IndexReader
    from pool.model import Constraints, NodeFacts, PeerTest
    from pool.peer_rules import Peer, PeerRule

    Points = Mapping[NodeName, int]
    Test = Callable[[NodeFacts], bool]

MOST_POINTS: Final = 100


@final
@dataclass(frozen=True, slots=True)
class PeerFit:
    """Tests and preferences of one pod; created for one decision."""

    index: "IndexReader"
    pool: "PoolName"
    constraints: "Constraints"
    is_comparable: bool
    own: "tuple[NodeName, Peer] | None" = None
    """The pod itself, where it counts by its reservation: no rule is about itself."""

    def tests(self) -> "Sequence[PeerTest]":
        """Return the tests of a node by the required rules of the pod and of other pods; none where there are no rules."""
        if self.constraints.rules and not self.is_comparable:
            return [("rules about other pods are too many to compare", _refuse)]
        return self._tests(self.constraints.rules, self._keeping_away())

    def certain_tests(self) -> "Sequence[PeerTest]":
        """Return those tests whose answer is the same whatever labels namespaces have and whatever is not read."""
        if not is_weighed(self.index, self.constraints, is_comparable=self.is_comparable):
            return []
        rules = [rule for rule in self.constraints.rules if not rule.selects_namespaces]
        # A pod has to be near pods that all of these rules select.
        if any(
            rule.kind is PeerKind.AFFINITY and rule.selects_namespaces
            for rule in self.constraints.rules
        ):
            rules = [rule for rule in rules if rule.kind is not PeerKind.AFFINITY]
        away = [item for item in self._keeping_away() if is_certain(item[0], self.constraints.peer)]
        return self._tests(rules, away)

    def _tests(
        self, rules: "Sequence[PeerRule]", away: "Iterable[tuple[PeerRule, Peer]]"
    ) -> "list[PeerTest]":
        tests: list[PeerTest] = []
        affinity = [rule for rule in rules if rule.kind is PeerKind.AFFINITY]
        if affinity:
            tests += zip(map(str, affinity), self._affinity(affinity), strict=True)
        for rule in rules:
            if rule.kind is PeerKind.ANTI_AFFINITY:
                tests.append((str(rule), self._anti_affinity(rule.key, self._selected([rule]))))
            elif rule.kind is PeerKind.SPREAD:
                tests.append((str(rule), self._spread(rule)))
        for rule, peer in away:
            counts = self.index.peers.nodes_of(peer)
            if self.own is not None and self.own[1] == peer:
                counts = self._without_own(counts)
            tests.append((OTHER_PODS, self._anti_affinity(rule.key, counts)))
        return tests

    def _keeping_away(self) -> "Iterable[tuple[PeerRule, Peer]]":
        peer = self.constraints.peer
        return () if peer is None else self.index.peers.keeping_away(peer)

    def _selected(self, rules: "Sequence[PeerRule]") -> "Mapping[NodeName, int]":
        """Return the number of pods by node that each of the rules selects, without the pod itself."""
        counts = self.index.peers.selected(rules)
        if self.own is None or not all(selects(rule, self.own[1]) for rule in rules):
            return counts
        return self._without_own(counts)

    def _without_own(self, counts: "Mapping[NodeName, int]") -> "Mapping[NodeName, int]":
        own = self.own[0] if self.own is not None else None
        return {
            node: count - (node == own) for node, count in counts.items() if count > (node == own)
        }

    def preferred(self, fitting: "Sequence[NodeName]") -> "Collection[NodeName]":
        """Return those of the nodes that fit the pod which its preferences put first."""
        if not self.is_comparable:
            return fitting
        preferred = self.constraints.preferred
        by_peers = [rule for rule in preferred if rule.kind is not PeerKind.SPREAD]
        spread = [rule for rule in preferred if rule.kind is PeerKind.SPREAD]
        points = Counter(self._by_labels(fitting))
        if by_peers:
            points.update(self._by_peers(by_peers, fitting))
        if spread:
            points.update(self._by_spread(spread, fitting))
        most = max(points.values(), default=0)
        return {name for name in fitting if points[name] == most}

    def _affinity(self, rules: "Sequence[PeerRule]") -> "list[Test]":
        counts, own = self._selected(rules), self.constraints.peer
        is_complete = not any(rule.selects_namespaces for rule in rules)
        is_alike = own is not None and all(selects(rule, own) for rule in rules)
        if not counts and is_complete and is_alike:
            # It is the first of its group.
            return [_has(rule.key) for rule in rules]
        return [_is_in(rule.key, self._domains(rule.key, counts)) for rule in rules]

    def _anti_affinity(self, key: str, counts: "Mapping[NodeName, int]") -> "Test":
        domains = self._domains(key, counts)
        return lambda node: node.labels.get(key) not in domains

    def _spread(self, rule: "PeerRule") -> "Test":
        """Allow the nodes of domains where the pod would not exceed the skew."""
        key, counts = rule.key, self._spread_counts(rule, self._eligible([rule.key]))
        fewest = min(counts.values(), default=0) if len(counts) >= rule.min_domains else 0
        most = fewest + rule.max_skew - int(rule.counts_itself)
        full = {value for value, count in counts.items() if count > most}
        return lambda node: key in node.labels and node.labels[key] not in full

    def _domains(self, key: str, counts: "Mapping[NodeName, int]") -> "Counter[str | None]":
        """Return numbers of pods by the value that the label has on their nodes."""
        found: Counter[str | None] = Counter()
        for name, count in counts.items():
            node = self.index.nodes.get(name)
            if node is not None and key in node.labels:
                found[node.labels[key]] += count
        return found

    def _eligible(self, keys: "Collection[str]") -> "Sequence[NodeFacts]":
        """Return the pool's nodes with all of the labels that the pod's selector and affinity allow."""
        nodes = map(self.index.nodes.get, self.index.state(self.pool).devices_by_node)
        return [
            node
            for node in nodes
            if node is not None
            and all(key in node.labels for key in keys)
            and self.constraints.select(node.name, node.labels)
        ]

    def _spread_counts(self, rule: "PeerRule", nodes: "Iterable[NodeFacts]") -> "Counter[str]":
        selected, counts = self._selected([rule]), Counter[str]()
        for node in nodes:
            if not rule.honors_taints or may_go_to(node, self.constraints):
                counts[node.labels[rule.key]] += selected.get(node.name, 0)
        return counts

    def _by_labels(self, fitting: "Iterable[NodeName]") -> "Points":
        terms = [
            (item.weight, RequiredNodeAffinity([item.preference]))
            for item in self.constraints.preferred_nodes
        ]
        weights: dict[NodeName, int] = {}
        for name in fitting if terms else ():
            labels = self.index.nodes[name].labels
            weights[name] = sum(weight for weight, term in terms if term.accepts(labels, name))
        most = max(weights.values(), default=0)
        return {name: MOST_POINTS * weight // most for name, weight in weights.items() if most}

    def _by_peers(self, rules: "Iterable[PeerRule]", fitting: "Iterable[NodeName]") -> "Points":
        sums = dict.fromkeys(fitting, 0)
        for rule in rules:
            domains = self._domains(rule.key, self.index.peers.selected((rule,)))
            weight = rule.weight if rule.kind is PeerKind.AFFINITY else -rule.weight
            for name in sums:
                sums[name] += weight * domains[self.index.nodes[name].labels.get(rule.key)]
        least, most = min(sums.values(), default=0), max(sums.values(), default=0)
        return {
            name: int(MOST_POINTS * ((value - least) / (most - least)))
            for name, value in sums.items()
            if most > least
        }

    def _by_spread(self, rules: "Sequence[PeerRule]", fitting: "Iterable[NodeName]") -> "Points":
        """Score as kube-scheduler's PodTopologySpread does; a node without one of the labels has no points."""
        eligible = {node.name: node for node in self._eligible({rule.key for rule in rules})}
        places = {name: eligible[name].labels for name in fitting if name in eligible}
        costs = dict.fromkeys(places, 0.0)
        for rule in rules:
            counts = self._spread_counts(rule, eligible.values())
            size = len({labels[rule.key] for labels in places.values()})
            for name, labels in places.items():
                costs[name] += counts[labels[rule.key]] * math.log(size + 2) + rule.max_skew - 1
        rounded = {name: math.floor(cost + 0.5) for name, cost in costs.items()}
        most, least = max(rounded.values(), default=0), min(rounded.values(), default=0)
        return {
            name: MOST_POINTS * (most + least - cost) // most if most else MOST_POINTS
            for name, cost in rounded.items()
        }


def peer_fit(index: "IndexReader", pool: "PoolName", constraints: "Constraints") -> PeerFit | None:
    """Return the fit of a pod; None for most pods, which say nothing of others, and nobody of them."""
    if not (constraints.rules or constraints.has_preferences or index.peers.with_anti_affinity):
        return None
    return PeerFit(index, pool, constraints, _is_comparable(index, constraints))


def with_peer_tests(
    index: "IndexReader",
    pool: "PoolName",
    constraints: "Constraints",
    *,
    own: "tuple[NodeName, Peer] | None" = None,
) -> "Constraints":
    """Return the constraints with the tests by other pods, as `exclusion_of` applies them.

    Args:
        index: of nodes and pods.
        pool: whose nodes are asked about.
        constraints: of the pod.
        own: node and kind of the pod, where it has a reservation.
    """
    fit = peer_fit(index, pool, constraints)
    if fit is None:
        return constraints
    return constraints.tested(replace(fit, own=own).certain_tests())


def is_weighed(
    index: "IndexReader", constraints: "Constraints", *, is_comparable: bool | None = None
) -> bool:
    """Say whether rules about other pods are part of a trial: all pods are read, and the rules are few enough."""
    if is_comparable is None:
        is_comparable = _is_comparable(index, constraints)
    return index.requests.is_whole and is_comparable


def is_certain(rule: "PeerRule", peer: "Peer | None") -> bool:
    """Say whether a rule that may select a pod does so whatever labels the pod's namespace has."""
    return not rule.selects_namespaces or (peer is not None and peer.namespace in rule.namespaces)


def _is_comparable(index: "IndexReader", constraints: "Constraints") -> bool:
    """Say whether the rules are few enough to be compared: they are read before the API server validates them."""
    nodes, terms = len(index.nodes), [item.preference for item in constraints.preferred_nodes]
    cost = nodes * sum(1 + len(term.match_expressions or ()) for term in terms)
    for rule in (*constraints.rules, *constraints.preferred):
        expressions = 1 + (rule.selector or "").count(",")
        cost += expressions * index.peers.kinds(rule) + nodes
        if cost > MAX_COMPARISONS:
            break
    return cost <= MAX_COMPARISONS


def _refuse(_: "NodeFacts") -> bool:
    return False


def _has(key: str) -> "Test":
    return lambda node: key in node.labels


def _is_in(key: str, domains: "Collection[str | None]") -> "Test":
    return lambda node: node.labels.get(key) in domains
