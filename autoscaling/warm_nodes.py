"""Empty nodes that minUnits and warmUnits need, so that the autoscaler must not remove them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from api.names import NodeName
    from autoscaling.scaling_model import ScalingParameters
    from pool.index.node_view import PoolNode


def keep_nodes(
    parameters: "ScalingParameters",
    nodes: "Mapping[NodeName, PoolNode]",
    *,
    permanent: "AbstractSet[NodeName]" = frozenset(),
) -> "frozenset[NodeName]":
    """Return the fewest empty nodes without which the pool would have too few units.

    Nodes with pods stay anyhow. Of equal sets the first by name counts, so that the answer does not move.

    Args:
        parameters: the pool's parameters.
        nodes: figures of the pool's nodes (`IndexFigures.state(pool).nodes()`).
        permanent: nodes that no autoscaler removes.
    """
    if parameters.pool.closed is not None:
        return frozenset()
    total = free = 0
    empty: list[tuple[int, NodeName]] = []
    for name, node in nodes.items():
        if not node.is_reservable:
            continue
        if name in permanent or node.used or node.reserved or node.unconfirmed:
            total += node.total
            free += node.free
        else:
            empty.append((-node.free, name))
    kept: set[NodeName] = set()
    for negative, name in sorted(empty):
        if total >= parameters.min_units and free >= parameters.warm_units:
            break
        kept.add(name)
        total += nodes[name].total
        free -= negative
    return frozenset(kept)
