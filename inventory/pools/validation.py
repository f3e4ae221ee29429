"""Whether a pool may touch anything: it is supported, and nothing is wrong with its configuration.

A pool that is not sound claims no device, marks no node and runs nothing (an unsupported pool that taints
nodes has nothing behind the taint). What it has got while it was sound it keeps as it is, so that a slip of
the pen harms no running pod.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from api.kinds.gpupool import AllocationMode
from api.names import pool_name_fault
from api.text import listed, truncate
from inventory.pools.spec_rules import spec_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from api.names import PoolName

NVIDIA_VENDOR: Final = "10de"
"""The only PCI vendor whose cards we prepare and give out."""


class Objection(Enum):
    """What speaks against a pool; of several the first names the condition's reason."""

    UNSUPPORTED_VENDOR = "unsupported vendor"
    """Only cards of other vendors than NVIDIA can match its selector."""
    BAD_SPEC = "bad spec"
    """A rule does not hold that the API server checks now: the object was written before the rule."""
    RESOURCE_NAME_TAKEN = "resource name taken"
    """An older pool serves the resource."""
    PROFILE_NOT_SUPPORTED = "profile not supported"
    """None of the pool's cards can make its MIG profile."""


@dataclass(frozen=True, slots=True)
class PoolFault:
    """One objection, and what to do about it."""

    objection: Objection
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolValidity:
    """What is wrong with a pool, if anything is."""

    unsupported: PoolFault | None = None
    misconfigured: tuple[PoolFault, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Say whether the pool may touch devices, nodes and workloads."""
        return self.unsupported is None and not self.misconfigured

    @property
    def text(self) -> str:
        """Return everything that is wrong; empty where the pool is sound."""
        faults = (self.unsupported, *self.misconfigured)
        return "; ".join(fault.text for fault in faults if fault is not None)


SOUND: Final = PoolValidity()

if TYPE_CHECKING:
    Verdicts = Callable[[PoolName], PoolValidity]
    """What is thought of a pool now; `SOUND` of one that is not known."""


def judge(
    pool: "GPUPool", pools: "Iterable[GPUPool]", *, can_make_profile: bool | None = None
) -> PoolValidity:
    """Return what is wrong with a pool.

    Args:
        pool: the pool.
        pools: all pools, itself may be among them.
        can_make_profile: whether a card that the pool may have can make its MIG profile
            (`makes_profile`); None while no card is known to tell.
    """
    return PoolValidity(
        unsupported=_unsupported(pool),
        misconfigured=(
            *_bad_spec(pool),
            *_taken(pool, pools),
            *_no_profile(pool, can_make_profile),
        ),
    )


def is_older(one: "GPUPool", than: "GPUPool") -> bool:
    """Say whether a pool goes first where two want the same: by age, then by name."""
    return _age(one) < _age(than)


def makes_profile(pool: "GPUPool", device: "GPUDevice") -> bool | None:
    """Say whether a card can make the pool's MIG profile; None while its profiles are not known.

    A card that is known to be unable of MIG can make none.
    """
    mig = device.status.mig
    if mig.profiles:
        return pool.spec.allocation.mig_profile in mig.profiles
    return False if device.status.product and not mig.capable else None


def _age(pool: "GPUPool") -> tuple[str, str]:
    return (pool.metadata.creation_timestamp or "", pool.name)


def _unsupported(pool: "GPUPool") -> PoolFault | None:
    include = pool.spec.device_selector.include
    vendors = (include.pci_vendors or ()) if include is not None else ()
    if not vendors or any(vendor.lower() == NVIDIA_VENDOR for vendor in vendors):
        return None
    text = (
        f"deviceSelector.include.pciVendors takes cards of {listed(vendors)} only, and cards of NVIDIA"
        f" ({NVIDIA_VENDOR}) alone are supported: add {NVIDIA_VENDOR}, or delete the pool"
    )
    return PoolFault(Objection.UNSUPPORTED_VENDOR, text)


def _bad_spec(pool: "GPUPool") -> "Iterator[PoolFault]":
    name_fault = pool_name_fault(pool.metadata.name)
    if name_fault is not None:
        yield PoolFault(Objection.BAD_SPEC, f"metadata.name: {name_fault}")
    for fault in sorted(spec_faults(pool.spec), key=str):
        yield PoolFault(Objection.BAD_SPEC, str(fault))


def _taken(pool: "GPUPool", pools: "Iterable[GPUPool]") -> "Iterator[PoolFault]":
    older = [
        other
        for other in pools
        if other.resource_name == pool.resource_name
        and other.name != pool.name
        and is_older(other, pool)
    ]
    if older:
        owner = min(older, key=_age)
        text = (
            f"{truncate(pool.resource_name)} is served by the older pool {owner.name}: delete this pool, and"
            " create it with another spec.resource.name"
        )
        yield PoolFault(Objection.RESOURCE_NAME_TAKEN, text)


def _no_profile(pool: "GPUPool", can_make_profile: bool | None) -> "Iterator[PoolFault]":  # noqa: FBT001  # a fact, not a switch
    allocation = pool.spec.allocation
    if allocation.mode is not AllocationMode.MIG or can_make_profile is not False:
        return
    text = (
        f"no card that the pool may have can make the MIG profile {allocation.mig_profile}: choose a"
        " profile of status.mig.profiles of its GPUDevices, or assign cards that have it"
    )
    yield PoolFault(Objection.PROFILE_NOT_SUPPORTED, text)
