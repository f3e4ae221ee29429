"""API objects that admission reads: pools with their access rules, namespaces with their labels.

The informers that feed the index write both in one step, so index and catalog show the same moment.
"""

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.kinds.gpupool import GPUPool
    from api.names import PoolName


@final
class Catalog:
    """Pools by name, and labels by namespace."""

    def __init__(self) -> None:
        self.pools: dict[PoolName, GPUPool] = {}
        self.unread_pools: frozenset[PoolName] = frozenset()
        """Pools that exist and cannot be read: nothing of them is deleted, released or taken by another pool."""
        self.labels_by_namespace: dict[str, Mapping[str, str]] = {}
