"""Other pools that a waiting pod could use: questions of an explanation."""

from typing import TYPE_CHECKING, Final

from api.names import PoolName
from pool.node_affinity import toleration_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from api.foreign.core import Toleration
    from api.kinds.gpupool import GPUPool
    from pool.model import PodFacts

_MOST: Final = 4


def usable_pools(
    pools: "Iterable[GPUPool]",
    pod: "PodFacts",
    *,
    service_account: str,
    largest_free: "Callable[[GPUPool], int]",
) -> "list[GPUPool]":
    """Return pools that the pod may certainly use and that seem to have capacity, the one with the most first.

    Args:
        pools: all that are known.
        pod: that waits.
        service_account: of the pod; empty for the namespace's default.
        largest_free: most units of a pool that are free on one node.
    """
    found: list[tuple[int, str, GPUPool]] = []
    for pool in pools:
        if pod.demand.resource in pool.resources or pool.metadata.deletion_timestamp:
            continue
        free = largest_free(pool)
        if free >= pod.demand.units and pool.spec.access.certainly_admits(
            pod.namespace, service_account
        ):
            found.append((-free, pool.name, pool))
    found.sort(key=lambda item: item[:2])
    return [pool for _, _, pool in found[:_MOST]]


def tolerations_by_pool(pools: "Iterable[GPUPool]") -> "dict[PoolName, list[Toleration]]":
    """Return the tolerations that admission gives a pod of each pool that has none of its own."""
    return {PoolName(pool.name): [toleration_of(taint) for taint in pool.taints] for pool in pools}
