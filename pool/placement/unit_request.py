"""What a node must be able to give: a demand, as far as it decides whether a node fits.

Views are kept by request. In most pools the number of units alone decides, so demands with different containers
share a view.
"""

import functools
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pool.model import ContainerRole, Demand


class UnitRequest(msgspec.Struct, frozen=True, cache_hash=True):
    units: int
    """Distinct units."""
    containers: "tuple[tuple[ContainerRole, int], ...]" = ()
    """Roles and units in kubelet's order; empty where they do not decide."""


@functools.lru_cache(maxsize=4096)
def request_by_containers(demand: "Demand") -> UnitRequest:
    """Return the request of a demand on a pool in which the containers decide."""
    return UnitRequest(
        demand.units, tuple((container.role, container.units) for container in demand.containers)
    )
