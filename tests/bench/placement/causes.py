"""Why devices stayed idle."""

from collections import Counter
from typing import TYPE_CHECKING

from pool.placement.simulation.results import IdleCause
from tests.bench.placement.node_state import Met, met

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.bench.placement.node_state import Ask, NodeState

_CAUSES = {
    Met.NOTHING: IdleCause.MODEL,
    Met.MODEL: IdleCause.HOLE,
    Met.DEVICES: IdleCause.CPU,
    Met.CPU: IdleCause.PODS,
    Met.ALL: IdleCause.MEMORY,
}


def idle(
    nodes: "Iterable[NodeState]", pending: "Iterable[tuple[Ask, int]]"
) -> dict[IdleCause, int]:
    """Return the free milli of all devices by cause.

    Args:
        nodes: at the end.
        pending: the kinds of pods that were never placed, with their memory; each fits nowhere.
    """
    by_pool: dict[str, list[Ask]] = {}
    for ask, _memory in pending:
        by_pool.setdefault(ask.pool, []).append(ask)
    milli: Counter[IdleCause] = Counter()
    for node in nodes:
        for pool, left in node.remaining.items():
            for remaining in filter(None, left):
                milli[_cause(node, remaining, by_pool.get(pool, ()))] += remaining
    return dict(milli)


def _cause(node: "NodeState", remaining: int, pending: "Sequence[Ask]") -> IdleCause:
    """Return what is lacking to the pending pod that is nearest to fitting on this device."""
    if not pending:
        return IdleCause.NOT_ASKED
    nearest = Met.NOTHING
    for ask in pending:
        reached = met(node, ask)
        # The node may have capacity for this pod on another device than this one.
        if reached > Met.MODEL and ask.devices and remaining < ask.milli:
            reached = Met.MODEL
        nearest = max(nearest, reached)
    return _CAUSES[nearest]
