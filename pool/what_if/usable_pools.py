"""Other pools that a waiting pod could use: questions of an explanation."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
    """Return pools that the pod may certainly use and that seem to have room, the one with most room first.

    Args:
        pools: all that are known.
        pod: that waits.
        service_account: of the pod; empty for the namespace's default.
        largest_free: most units of a pool that are free on one node.
    """
    found: list[tuple[int, str, GPUPool]] = []
    for pool in pools:
        if pool.resource_name == pod.demand.resource or pool.metadata.deletion_timestamp:
            continue
        free = largest_free(pool)
        if free >= pod.demand.units and pool.spec.access.certainly_admits(
            pod.namespace, service_account
        ):
            found.append((-free, pool.name, pool))
    found.sort(key=lambda one: one[:2])
    return [pool for _, _, pool in found[:_MOST]]
