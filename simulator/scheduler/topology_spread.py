"""kube-scheduler's PodTopologySpread filter for strict constraints.

As in kube-scheduler, a constraint counts the selected pods of the namespace on nodes that match the
pod's selector and affinity. A node without the topology key is refused; a node with an untolerated
taint is left out if the constraint has `nodeTaintsPolicy: Honor`.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.meta import LabelSelector
from api.names import NodeName
from pool.model import Constraints
from pool.node_affinity import Tolerations
from pool.placement.planner import may_go_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from api.foreign.core import Pod
    from pool.model import NodeFacts

STRICT: Final = "DoNotSchedule"


@dataclass(frozen=True, slots=True)
class _Spread:
    """A strict constraint."""

    key: str
    max_skew: int
    selector: LabelSelector
    honours_taints: bool

    def selects(self, pod: "Pod") -> bool:
        return self.selector.matches(pod.metadata.labels or {})


def has_strict_spread(pod: "Pod") -> bool:
    """Return whether the placement of other pods restricts this one."""
    return bool(_constraints_of(pod))


def nodes_left(
    pod: "Pod", nodes: "Mapping[NodeName, NodeFacts]", pods: "Iterable[Pod]"
) -> "set[NodeName]":
    """Return the nodes that all strict constraints of the pod allow."""
    spreads = _constraints_of(pod)
    if not spreads:
        return set(nodes)
    eligible = _eligible(pod, nodes, spreads)
    placed = [
        other
        for other in pods
        if other.metadata.namespace == pod.metadata.namespace
        and other.spec.node_name in eligible
        and other.metadata.deletion_timestamp is None
        and not other.is_terminal
    ]
    left = set(eligible)
    tolerated = Tolerations(pod.spec.tolerations or ())
    for spread in spreads:
        counted = {
            name: node.labels[spread.key]
            for name, node in eligible.items()
            if not spread.honours_taints or _tolerates(tolerated, node)
        }
        counts = Counter(dict.fromkeys(counted.values(), 0))
        for other in placed:
            if spread.selects(other) and other.spec.node_name in counted:
                counts[counted[NodeName(other.spec.node_name)]] += 1
        fewest, own = min(counts.values(), default=0), int(spread.selects(pod))
        left -= {
            name
            for name, node in eligible.items()
            if counts[node.labels[spread.key]] + own - fewest > spread.max_skew
        }
    return left


def _eligible(
    pod: "Pod", nodes: "Mapping[NodeName, NodeFacts]", spreads: "Sequence[_Spread]"
) -> "dict[NodeName, NodeFacts]":
    constraints = Constraints(node_selector=pod.spec.node_selector, affinity=pod.spec.affinity)
    return {
        name: node
        for name, node in nodes.items()
        if may_go_to(replace(node, taints=()), constraints)
        and all(spread.key in node.labels for spread in spreads)
    }


def _tolerates(tolerated: Tolerations, node: "NodeFacts") -> bool:
    return all(
        taint.effect == "PreferNoSchedule" or tolerated.cover(taint) for taint in node.taints
    )


def _constraints_of(pod: "Pod") -> list[_Spread]:
    given: list[dict[str, Any]] = pod.spec.topology_spread_constraints or []
    return [
        _Spread(
            item["topologyKey"],
            item.get("maxSkew", 1),
            msgspec.convert(item.get("labelSelector") or {}, LabelSelector),
            item.get("nodeTaintsPolicy") == "Honor",
        )
        for item in given
        if item.get("whenUnsatisfiable", STRICT) == STRICT
    ]
