"""Whole objects that admission reads: pools with their access rules, namespaces with their labels.

Kept by the reconcilers that also feed the index, so that both speak of the same moment.
"""

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.kinds.gpupool import GPUPool
    from api.names import PoolName


@final
class Catalog:
    """Pools by name and by resource, and labels by namespace."""

    def __init__(self) -> None:
        self.pools: dict[PoolName, GPUPool] = {}
        self.labels_by_namespace: dict[str, Mapping[str, str]] = {}

    def by_resource(self, resource: str) -> "GPUPool | None":
        """Return the pool that serves a resource: the older, should two claim it, or the first by name."""
        claims = [
            (pool.metadata.creation_timestamp or "", name)
            for name, pool in self.pools.items()
            if pool.resource_name == resource
        ]
        return self.pools[min(claims)[1]] if claims else None
