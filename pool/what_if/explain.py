"""Why a pod waits for units."""

from typing import TYPE_CHECKING, Final

import msgspec

from api.names import NodeName
from pool.model import Constraints
from pool.pods.selection import constraints_of_selection
from pool.refusal import NodeReason
from pool.what_if.explanation import HAVE_UNITS, Explanation, UnitWaitReason
from pool.what_if.node_figures import figures_of_nodes, holders_on, refused
from pool.what_if.remedies import other_pools, remedies_in
from pool.what_if.unweighed import unweighed_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pool.allocation_reader import AllocationReader
    from pool.index.reader import IndexReader
    from pool.model import PodFacts, PoolFacts
    from pool.refusal import NodeRefusal
    from pool.what_if.explanation import AnyRemedy, NodeExplanation
    from pool.what_if.question import WaitQuestion

_TOO_LARGE: Final = frozenset(
    {
        NodeReason.NODE_TOO_SMALL,
        NodeReason.CANNOT_ALIGN,
        NodeReason.TOO_FEW_DEVICES,
        NodeReason.KUBELET_REJECTS,
    }
)
_BY_CACHES: Final = frozenset({NodeReason.CACHE_FITS_NO_DEVICE, NodeReason.CACHE_FITS_TOO_FEW})
_BY_RULES: Final = frozenset(
    {
        NodeReason.NOT_ALIGNED,
        NodeReason.NO_DEVICE_WITH_CAPACITY,
        NodeReason.KUBELET_WOULD_REJECT,
        NodeReason.KUBELET_CHOOSES,
    }
)
_CLOSED: Final = frozenset(
    {
        NodeReason.NODE_LEAVING,
        NodeReason.NODE_STARTING,
        NodeReason.DRIVER_UPGRADE,
        NodeReason.UNACCOUNTED_PODS,
    }
)


def wait_reason(figures: "Sequence[NodeExplanation]", units: int) -> UnitWaitReason:
    """Return the reason of a pod whose pool is open; the first that holds, in the order of the branches."""
    if any(figure.takes_pod for figure in figures):
        return UnitWaitReason.UNITS_AVAILABLE
    if not figures:
        return UnitWaitReason.UNITS_EXHAUSTED
    judged = list(refused(figures))
    lacks_capacity = any(figure.shortage and figure.refusal is None for figure in figures)
    if lacks_capacity or not judged:
        return UnitWaitReason.NODES_EXCLUDED
    return _reason_of_refusals(judged, units)


def _reason_of_refusals(
    judged: "Sequence[tuple[NodeExplanation, NodeRefusal]]", units: int
) -> UnitWaitReason:
    reasons = {refusal.reason for _, refusal in judged}
    if reasons & _BY_CACHES and reasons <= _BY_CACHES | _TOO_LARGE:
        return UnitWaitReason.CACHES_FIT_NO_DEVICE
    if reasons <= _TOO_LARGE and not any(
        refusal.reason is NodeReason.NODE_TOO_SMALL and item.total >= units
        for item, refusal in judged
    ):
        return UnitWaitReason.POD_TOO_LARGE
    if reasons & _BY_RULES:
        return UnitWaitReason.UNITS_NOT_ALIGNED
    if any(refusal.reason in _CLOSED and item.withheld >= units for item, refusal in judged):
        return UnitWaitReason.NODES_CLOSED
    if sum(item.free for item, _ in judged) >= units:
        return UnitWaitReason.UNITS_FRAGMENTED
    return UnitWaitReason.UNITS_EXHAUSTED


def explain(
    reader: "AllocationReader",
    index: "IndexReader",
    question: "WaitQuestion",
    *,
    with_remedies: bool = True,
) -> Explanation:
    """Return why the pod waits, from figures by node to remedies that each were tried on a copy of a node.

    The state is only read. Without remedies, as for many pods at once, the cost is that of one pass over the nodes
    of the pool.
    """
    steps = explanation_steps(reader, index, question, with_remedies=with_remedies)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Explanation = end.value
            return found


def explanation_steps(
    reader: "AllocationReader",
    index: "IndexReader",
    question: "WaitQuestion",
    *,
    with_remedies: bool = True,
) -> "Generator[None, None, Explanation]":
    """Do the same in steps, between which others may have their turn.

    If the state changes meanwhile, figures and reason are those of the first step.
    """
    pod = question.pod
    selection = pod.selection
    constraints = (
        Constraints() if selection is None else constraints_of_selection(selection, pod.peer)
    )
    pool, own = index.pool_of(pod.demand.resource), reader.ledger.of_pod(pod.uid)
    if pool is not None:
        constraints = reader.with_peer_tests(pool, constraints, uid=pod.uid)
    figures = (
        [] if pool is None else _figures(reader, index, pod, pool=pool, constraints=constraints)
    )
    reason = _reason(reader, question, pool=pool, figures=figures)
    is_reserved = own is not None and own.has_units
    remedies: list[AnyRemedy] = []
    if with_remedies and reason not in HAVE_UNITS and not pod.is_gated:
        yield
        found = (
            other_pools(index, question)
            if pool is None
            else remedies_in(
                reader, index, question, pool=pool, constraints=constraints, figures=figures
            )
        )
        for remedy in found:
            yield
            remedies += [remedy] if remedy is not None else []
    return Explanation(
        pod=pod.ref,
        resource=pod.demand.resource,
        units=pod.demand.units,
        reason=reason,
        pool="" if pool is None else pool.name,
        drift="" if pool is None else pool.drift,
        capacity=None if pool is None else index.state(pool.name).capacity(),
        free=sum(figure.free for figure in figures),
        largest_node=max((figure.total for figure in figures), default=0),
        largest_free=max((figure.free for figure in figures), default=0),
        nodes=()
        if pool is None
        else _detailed(reader, index, question, pool=pool, figures=figures),
        nodes_total=len(figures),
        unweighed=unweighed_of(index, pod, pool, constraints=constraints, is_reserved=is_reserved),
        remedies=tuple(remedies),
    )


def _figures(
    reader: "AllocationReader",
    index: "IndexReader",
    pod: "PodFacts",
    *,
    pool: "PoolFacts",
    constraints: Constraints,
) -> "list[NodeExplanation]":
    """Return the figures of the pool's nodes; to the refusals the units of the pod's own reservation are free."""
    figures = figures_of_nodes(index, pool, pod, constraints=constraints)
    own = reader.ledger.of_pod(pod.uid)
    if own is None or own.node is None:
        return figures
    refusal = reader.refusal_on(own.node, pool, pod.demand, uid=pod.uid)
    return [
        msgspec.structs.replace(figure, refusal=refusal) if figure.node == own.node else figure
        for figure in figures
    ]


def _reason(
    reader: "AllocationReader",
    question: "WaitQuestion",
    *,
    pool: "PoolFacts | None",
    figures: "Sequence[NodeExplanation]",
) -> UnitWaitReason:
    pod = question.pod
    if pool is None:
        return UnitWaitReason.POOL_NOT_FOUND
    if pod.is_gated:
        return UnitWaitReason.SCHEDULING_GATED
    if pool.closed is not None:
        return UnitWaitReason.POOL_CLOSED
    own = reader.ledger.of_pod(pod.uid)
    if own is not None and not own.phase.is_uncommitted:  # its Binding is under way
        return UnitWaitReason.UNITS_AVAILABLE
    reason = wait_reason(figures, pod.demand.units)
    has_units = own is not None and own.has_units
    if reason is UnitWaitReason.UNITS_AVAILABLE and pod.awaits_capacity and not has_units:
        return UnitWaitReason.RESERVATION_PENDING
    return reason


def _detailed(
    reader: "AllocationReader",
    index: "IndexReader",
    question: "WaitQuestion",
    *,
    pool: "PoolFacts",
    figures: "Sequence[NodeExplanation]",
) -> "tuple[NodeExplanation, ...]":
    return tuple(
        msgspec.structs.replace(
            figure,
            holders=holders_on(reader, index, pool, node=NodeName(figure.node), now=question.now),
        )
        for figure in figures[: question.most_nodes]
    )
