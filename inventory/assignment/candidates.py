"""The pools as devices see them, with what their selectors said of each model of card."""

from typing import TYPE_CHECKING, Final, final

from inventory.assignment.eligibility import is_approved, unselected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from api.names import PoolName
    from inventory.pools.validation import Verdicts


@final
class PoolCandidates:
    """The pools as devices see them. Build it anew when a pool changes."""

    def __init__(self, pools: "Iterable[GPUPool]", verdicts: "Verdicts") -> None:
        """Take all pools, and what is thought of them."""
        self.pools: dict[PoolName, GPUPool] = {pool.name: pool for pool in pools}
        self.verdicts = verdicts
        approving = (
            pool for pool in self.pools.values() if not pool.spec.assignment.require_annotation
        )
        self.approving = tuple(
            sorted(approving, key=lambda pool: (pool.metadata.creation_timestamp or "", pool.name))
        )
        """Those that take devices without an annotation, the oldest first."""
        self._takers: dict[_Shape, tuple[GPUPool, ...]] = {}
        # what deviceSelectors see of a device -> those of `approving` that may take it

    def takers(self, device: "GPUDevice") -> "Iterator[GPUPool]":
        """Yield the pools that take the device without an annotation, as far as the two of them go.

        40,000 devices are of a few models: what selectors say of a model is asked once.
        """
        shape = _shape_of(device)
        found = self._takers.get(shape)
        if found is None:
            if len(self._takers) >= _MAX_SHAPES:
                self._takers.clear()
            found = self._takers[shape] = tuple(
                pool
                for pool in self.approving
                if _names_devices(pool) or not any(unselected(pool, device))
            )
        for pool in found:
            if is_approved(pool, device) and not (
                _names_devices(pool) and any(unselected(pool, device))
            ):
                yield pool


_MAX_SHAPES: Final = 1024
"""Far more than there are models; a source that makes up products must not fill the memory."""

_Shape = tuple[str, int, str, str, str, bool, tuple[str, ...]]


def _shape_of(device: "GPUDevice") -> _Shape:
    """Return all that a deviceSelector looks at, but for the device's name (`inventory.assignment.selector`)."""
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
        one is not None and bool(one.inventory_ids) for one in (selector.include, selector.exclude)
    )
