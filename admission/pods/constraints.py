"""Constraints of a pod on its node, apart from the node's pool.

The index knows the pool's nodes before their labels are written. So requirements on the pool's node label, which
admission itself adds, count as met.
"""

from typing import TYPE_CHECKING

import msgspec

from api.foreign.core import Affinity, NodeAffinity, NodeSelector
from api.names import pool_node_label
from pool.model import Constraints

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from api.foreign.core import NodeSelectorTerm, PodSpec, Toleration
    from api.names import PoolName


def constraints_of(
    spec: "PodSpec", pool: "PoolName", tolerations: "Iterable[Toleration]"
) -> Constraints:
    """Return the pod's constraints, given the tolerations that admission adds."""
    key = pool_node_label(pool)
    selector = spec.node_selector
    if selector and key in selector:
        selector = {other: value for other, value in selector.items() if other != key}
    return Constraints(
        node_selector=selector,
        affinity=_beyond_pool(spec.affinity, key),
        tolerations=(*(spec.tolerations or ()), *tolerations),
    )


def required_terms(affinity: "Affinity | None") -> "Sequence[NodeSelectorTerm]":
    node_affinity = affinity.node_affinity if affinity else None
    required = node_affinity.required if node_affinity else None
    return (required.node_selector_terms if required else None) or ()


def excludes_pool_nodes(affinity: "Affinity | None", key: str) -> bool:
    """Say whether every non-empty alternative excludes the pool's nodes."""
    alternatives = [
        term for term in required_terms(affinity) if term.match_expressions or term.match_fields
    ]
    return bool(alternatives) and all(_contradicts_pool(term, key) for term in alternatives)


def _contradicts_pool(term: "NodeSelectorTerm", key: str) -> bool:
    return any(
        one.key == key and not one.matches({key: ""}) for one in term.match_expressions or ()
    )


def _beyond_pool(affinity: "Affinity | None", key: str) -> "Affinity | None":
    given = required_terms(affinity)
    if not any(one.key == key for term in given for one in term.match_expressions or ()):
        return affinity
    terms: list[NodeSelectorTerm] = []
    for term in given:
        if _contradicts_pool(term, key):
            continue
        expressions = term.match_expressions or ()
        left = [one for one in expressions if one.key != key]
        if len(left) < len(expressions) and not (left or term.match_fields):
            return None  # this alternative takes every node of the pool
        terms.append(msgspec.structs.replace(term, match_expressions=left))
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=terms)))
