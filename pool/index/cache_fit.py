"""Devices and nodes of a pool for a pod that mounts kernel caches: those that fit, and warm nodes before cold ones."""

from typing import TYPE_CHECKING, Final

from pool.index.fitting_devices import limited
from pool.index.node_view import MAX_SCORE, score_of
from pool.refusal import CacheIncompatibility

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from api.names import NodeName, PoolName
    from pool.index.devices import DeviceEntry
    from pool.index.reader import IndexReader
    from pool.model import Demand

WARM_SCORE: Final = 2
"""Part of a node's score that depends on whether it has the pod's caches: to extract one takes seconds, a bad fit lasts."""


def devices_for(
    index: "IndexReader", pool: "PoolName", demand: "Demand", *, node: "NodeName"
) -> "Sequence[DeviceEntry]":
    """Return the pool's devices on a node for a pod, by name, each in the place that it has without a limit."""
    entries, preference = index.devices_on(pool, node), index.cache_demand_of(demand)
    if preference is None:
        return entries
    return limited(entries, preference.devices, index.device_rules(pool, node))[0]


def is_limited(
    index: "IndexReader", pool: "PoolName", demand: "Demand", *, node: "NodeName"
) -> bool:
    """Say whether some devices of the pool on the node do not fit the pod."""
    summary = index.state_for(pool, demand).node(node)
    return summary is not None and summary.incompatibility is not None


def fits_no_device(
    index: "IndexReader", pool: "PoolName", demand: "Demand"
) -> CacheIncompatibility | None:
    """Return why no device that the pool has fits the pod; None where one does, or there is none."""
    preference = index.cache_demand_of(demand)
    if preference is None:
        return None
    capabilities = sorted(index.state(pool).capabilities)
    if not capabilities or any(map(preference.devices.fits, capabilities)):
        return None
    return CacheIncompatibility(*preference.devices.incompatibility(capabilities))


def best_node(
    index: "IndexReader",
    pool: "PoolName",
    demand: "Demand",
    *,
    accepts: "Callable[[NodeName], bool]",
) -> "NodeName | None":
    """Return the best node for a pod that `accepts` allows: the best warm one, or the best one if its score is higher."""
    state = index.state_for(pool, demand)
    request = state.request_of(demand)
    best, preference = state.best_node(request, accepts), index.cache_demand_of(demand)
    if best is None or preference is None or best in preference.warm_nodes:
        return best
    warm_nodes = preference.warm_nodes
    warm = state.best_node(request, lambda node: node in warm_nodes and accepts(node))
    if warm is None or state.facts is None:
        return best
    strategy, nodes = state.facts.strategy, state.nodes()
    cold_score, score = (
        with_warmth(score_of(nodes[name], request, strategy), is_warm=name == warm)
        for name in (best, warm)
    )
    return warm if score >= cold_score else best


def with_warmth(score: int, *, is_warm: bool) -> int:
    """Return the score of a node for a pod with caches: the strategy's, in the rest of the range, and that of warmth."""
    return score * (MAX_SCORE - WARM_SCORE) // MAX_SCORE + (WARM_SCORE if is_warm else 0)
