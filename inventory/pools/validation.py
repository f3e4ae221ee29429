"""Validity of a pool: it is supported, and its configuration has no error.

An invalid pool claims no device, labels no node and runs nothing (an unsupported pool that taints nodes has
no devices behind the taint). It keeps the devices that it took while it was valid, so that a typing error
harms no running pod.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from api.kinds.gpupool import AllocationMode
from api.names import pool_name_fault
from api.text import listed, truncate
from api.vendor import NVIDIA
from inventory.pools.spec_rules import spec_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from api.names import PoolName


class PoolFaultReason(Enum):
    """Why a pool is invalid; of several faults the first names the condition's reason."""

    UNSUPPORTED_VENDOR = "unsupported vendor"
    """Only devices of other vendors than NVIDIA can match its selector."""
    BAD_SPEC = "bad spec"
    """The spec breaks a rule; the API server stored the object before it knew the rule."""
    RESOURCE_NAME_TAKEN = "resource name taken"
    """An older pool serves the resource."""
    PROFILE_NOT_SUPPORTED = "profile not supported"
    """None of the pool's devices supports its MIG profile."""


@dataclass(frozen=True, slots=True)
class PoolFault:
    """One fault and its cure."""

    reason: PoolFaultReason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolValidity:
    """The faults of a pool, if any."""

    unsupported: PoolFault | None = None
    misconfigured: tuple[PoolFault, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether the pool may touch devices, nodes and workloads."""
        return self.unsupported is None and not self.misconfigured

    @property
    def text(self) -> str:
        """All faults; empty for a valid pool."""
        faults = (self.unsupported, *self.misconfigured)
        return "; ".join(fault.text for fault in faults if fault is not None)


VALID_POOL: Final = PoolValidity()

if TYPE_CHECKING:
    PoolValidityLookup = Callable[[PoolName], PoolValidity]
    """Current validity of a pool; `VALID_POOL` for an unknown one."""


def validate_pool(
    pool: "GPUPool", pools: "Iterable[GPUPool]", *, can_make_profile: bool | None = None
) -> PoolValidity:
    """Return the validity of a pool.

    Args:
        pool: the pool.
        pools: all pools; the pool itself may be among them.
        can_make_profile: whether a device that the pool may have supports its MIG profile
            (`makes_profile`); None while no device with known profiles exists.
    """
    return PoolValidity(
        unsupported=_unsupported(pool),
        misconfigured=(
            *_bad_spec(pool),
            *_taken(pool, pools),
            *_no_profile(pool, can_make_profile),
        ),
    )


def is_older(pool: "GPUPool", than: "GPUPool") -> bool:
    """Whether a pool takes precedence over another one: by age, then by name."""
    return age_of(pool) < age_of(than)


def makes_profile(pool: "GPUPool", device: "GPUDevice") -> bool | None:
    """Whether a device supports the pool's MIG profile; None while its profiles are unknown.

    A device without MIG supports none.
    """
    mig = device.status.mig
    if mig.profiles:
        return pool.spec.allocation.mig_profile in mig.profiles
    return False if device.status.product and not mig.capable else None


def age_of(pool: "GPUPool") -> tuple[str, str]:
    """Sort key of pools: the first one takes precedence where two want the same."""
    return (pool.metadata.creation_timestamp or "", pool.name)


def _unsupported(pool: "GPUPool") -> PoolFault | None:
    include = pool.spec.device_selector.include
    vendors = (include.pci_vendors or ()) if include is not None else ()
    if not vendors or any(vendor.lower() == NVIDIA for vendor in vendors):
        return None
    text = (
        f"deviceSelector.include.pciVendors matches {listed(vendors)} only, and NVIDIA ({NVIDIA}) is the"
        f" only supported vendor: add {NVIDIA}, or delete the pool"
    )
    return PoolFault(PoolFaultReason.UNSUPPORTED_VENDOR, text)


def _bad_spec(pool: "GPUPool") -> "Iterator[PoolFault]":
    name_fault = pool_name_fault(pool.metadata.name)
    if name_fault is not None:
        yield PoolFault(PoolFaultReason.BAD_SPEC, f"metadata.name: {name_fault}")
    for fault in sorted(spec_faults(pool.spec), key=str):
        yield PoolFault(PoolFaultReason.BAD_SPEC, str(fault))


def _taken(pool: "GPUPool", pools: "Iterable[GPUPool]") -> "Iterator[PoolFault]":
    older = [
        other
        for other in pools
        if other.resource_name == pool.resource_name
        and other.name != pool.name
        and is_older(other, pool)
    ]
    if older:
        owner = min(older, key=age_of)
        text = (
            f"{truncate(pool.resource_name)} belongs to the older pool {owner.name}: delete this pool, and"
            " create it with another spec.resource.name"
        )
        yield PoolFault(PoolFaultReason.RESOURCE_NAME_TAKEN, text)


def _no_profile(pool: "GPUPool", can_make_profile: bool | None) -> "Iterator[PoolFault]":  # noqa: FBT001  # a fact, not a switch
    allocation = pool.spec.allocation
    if allocation.mode is not AllocationMode.MIG or can_make_profile is not False:
        return
    text = (
        f"no device of the pool supports the MIG profile {allocation.mig_profile}: choose a"
        " profile of status.mig.profiles of its GPUDevices, or assign devices that support it"
    )
    yield PoolFault(PoolFaultReason.PROFILE_NOT_SUPPORTED, text)
