"""The pools that may take devices, with cached selector results for each model of device."""

from typing import TYPE_CHECKING, Final, final

from inventory.assignment.eligibility import selector_obstacles
from inventory.pools.validation import age_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from api.names import PoolName
    from inventory.pools.validation import PoolValidityLookup


@final
class PoolCandidates:
    """All pools, prepared for matching devices. Rebuilt whenever a pool changes."""

    def __init__(
        self,
        pools: "Iterable[GPUPool]",
        validity_of: "PoolValidityLookup",
        *,
        unread: "Collection[str]" = (),
    ) -> None:
        self.unread: Final = frozenset(unread)
        """Names of pools that exist and cannot be read."""
        self.pools: dict[PoolName, GPUPool] = {pool.name: pool for pool in pools}
        self.validity_of = validity_of
        self._by_age: Final = tuple(sorted(self.pools.values(), key=age_of))
        self._matching: dict[_Shape, tuple[GPUPool, ...]] = {}
        # fields that deviceSelectors read -> the pools whose selector matches

    def matching(self, device: "GPUDevice") -> "Iterator[GPUPool]":
        """Yield the pools whose deviceSelector matches, the oldest first; room and the node are not checked.

        40,000 devices are of a few models: deviceSelectors are evaluated once for a model.
        """
        shape = _shape_of(device)
        found = self._matching.get(shape)
        if found is None:
            if len(self._matching) >= _MAX_SHAPES:
                self._matching.clear()
            found = self._matching[shape] = tuple(
                pool
                for pool in self._by_age
                if _names_devices(pool) or not any(selector_obstacles(pool, device))
            )
        for pool in found:
            if not (_names_devices(pool) and any(selector_obstacles(pool, device))):
                yield pool


_MAX_SHAPES: Final = 1024
"""Far more than there are models; a source that invents products must not fill the memory."""

_Shape = tuple[str, int, str, str, str, bool, tuple[str, ...]]


def _shape_of(device: "GPUDevice") -> _Shape:
    """Return every field that a deviceSelector reads, but for the device's name (`inventory.assignment.selector`)."""
    status = device.status
    return (
        status.product,
        status.memory_mib,
        status.compute_capability,
        status.pci.vendor,
        status.pci.device,
        status.mig.capable,
        tuple(status.mig.profiles or ()),
    )


def _names_devices(pool: "GPUPool") -> bool:
    selector = pool.spec.device_selector
    return any(
        item is not None and bool(item.inventory_ids)
        for item in (selector.include, selector.exclude)
    )
