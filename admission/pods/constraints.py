"""Constraints of a pod on its node, apart from the node's pool.

The index knows the pool's nodes before their labels are written. So requirements on the pool's node label, which
admission itself adds, count as met.
"""

from typing import TYPE_CHECKING

from api.foreign.core import Affinity, NodeAffinity, NodeSelector
from api.names import POOL_LABEL, pool_node_label
from pool.model import Constraints
from pool.node_affinity import contradicts_pool, required_terms, terms_beyond_pool
from pool.pods.selection import peer_of, peer_rules, preferred_node_terms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.foreign.core import Pod, Toleration
    from api.names import PoolName


def constraints_of(
    pod: "Pod", pool: "PoolName", tolerations: "Iterable[Toleration]", *, namespace: str
) -> Constraints:
    """Return the pod's constraints, given the tolerations that admission adds."""
    key, spec = pool_node_label(pool), pod.spec
    labels = {**(pod.metadata.labels or {}), POOL_LABEL: pool}
    rules = peer_rules(spec, namespace, labels)
    selector = spec.node_selector
    if selector and key in selector:
        selector = {other: value for other, value in selector.items() if other != key}
    return Constraints(
        node_selector=selector,
        affinity=_beyond_pool(spec.affinity, key),
        tolerations=(*(spec.tolerations or ()), *tolerations),
        peer=peer_of(spec, namespace, labels),
        rules=rules and tuple(rule for rule in rules if not rule.weight),
        preferred=rules and tuple(rule for rule in rules if rule.weight),
        preferred_nodes=preferred_node_terms(spec),
    )


def excludes_pool_nodes(affinity: "Affinity | None", key: str) -> bool:
    """Say whether every non-empty alternative excludes the pool's nodes."""
    alternatives = [
        term for term in required_terms(affinity) if term.match_expressions or term.match_fields
    ]
    return bool(alternatives) and all(contradicts_pool(term, key) for term in alternatives)


def _beyond_pool(affinity: "Affinity | None", key: str) -> "Affinity | None":
    given = required_terms(affinity)
    if not any(
        expression.key == key for term in given for expression in term.match_expressions or ()
    ):
        return affinity
    terms = terms_beyond_pool(given, key)
    if terms is None:
        return None
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=terms)))
