"""What decides about a pod's node and is not weighed: each answer that promises a node names it.

A reservation follows the pod's preferences and what it and other pods require of each other (`pool.peer_fit`). Nothing
knows the labels of namespaces: a preference that selects by them never counts.
"""

from typing import TYPE_CHECKING, Final

from api.names import owner_of
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
    by_rules = _by_rules(pod, pool, constraints, is_reserved=is_reserved)
    others = () if is_reserved or pool is None else index.unweighed(pool.name, without=pod.uid)
    fields = pod.selection.unweighed if pod.selection is not None else ()
    return (*fields, *dict.fromkeys(by_rules), *others)


def _by_rules(
    pod: "PodFacts", pool: "PoolFacts | None", constraints: "Constraints", *, is_reserved: bool
) -> "Iterator[str]":
    # Admission adds it, so no user asks for it; it refuses no node.
    ours = (
        soft_spread_rule(owner_of(pool.name), pool.spread_key, pod.namespace)
        if pool is not None and pool.spread_key
        else None
    )
    if constraints.preferred_nodes and not is_reserved:
        yield _PREFERRED
    for rule in (*constraints.rules, *constraints.preferred):
        if rule.selects_namespaces and (rule.weight or not is_reserved):
            yield f"{rule.kind.field}[].namespaceSelector"
        elif not is_reserved and rule != ours:
            yield rule.kind.field
