"""What decides about a pod's node and is not weighed: each answer that promises a node names it.

What a pod and others require of each other is weighed always, and its preferences by a reservation alone (`pool.peer_fit`).
Nothing knows the labels of namespaces: what selects by them is not weighed, but that a reservation is made where it holds
in any case.
"""

from typing import TYPE_CHECKING, Final

from api.names import owner_of
from pool.compute_resources import OTHER_PODS
from pool.peer_fit import is_certain, is_weighed
from pool.pods.selection import soft_spread_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pool.index.reader import IndexReader
    from pool.model import Constraints, PodFacts, PoolFacts

_PREFERRED: Final = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"


def unweighed_of(
    index: "IndexReader",
    pod: "PodFacts",
    pool: "PoolFacts | None",
    *,
    constraints: "Constraints",
    is_reserved: bool,
) -> tuple[str, ...]:
    """Return the fields of a pod, and the rules of other pods, by which kube-scheduler may decide otherwise.

    Args:
        index: of devices, nodes and pods.
        pod: that waits.
        pool: that serves it; None where none does.
        constraints: of the pod on its node.
        is_reserved: whether the units of a reservation made the choice.
    """
    rules = _rules(index, pod, pool, constraints=constraints, is_reserved=is_reserved)
    fields = pod.selection.unweighed if pod.selection is not None else ()
    return (*fields, *dict.fromkeys(rules))


def _rules(
    index: "IndexReader",
    pod: "PodFacts",
    pool: "PoolFacts | None",
    *,
    constraints: "Constraints",
    is_reserved: bool,
) -> "Iterator[str]":
    # Admission adds it, so no user asks for it; it refuses no node.
    ours = (
        soft_spread_rule(owner_of(pool.name), pool.spread_key, pod.namespace)
        if pool is not None and pool.spread_key
        else None
    )
    are_weighed = is_reserved or (pool is not None and is_weighed(index, constraints))
    if constraints.preferred_nodes and not is_reserved:
        yield _PREFERRED
    for rule in (*constraints.rules, *constraints.preferred):
        if rule.selects_namespaces and (rule.weight or not is_reserved):
            yield f"{rule.kind.field}[].namespaceSelector"
        elif rule != ours and not (is_reserved if rule.weight else are_weighed):
            yield rule.kind.field
    peer = constraints.peer
    if peer is not None and not is_reserved:
        away = index.peers.keeping_away(peer)
        if any(not (are_weighed and is_certain(rule, peer)) for rule, _ in away):
            yield OTHER_PODS
