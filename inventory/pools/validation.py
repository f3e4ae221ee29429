"""Validity of a pool: it is supported, and its configuration has no error.

An invalid pool claims no device, labels no node and runs nothing (an unsupported pool that taints nodes has
no devices behind the taint). It keeps the devices that it took while it was valid, so that a typing error
harms no running pod.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from api.field_errors import FieldError
from api.kinds.gpupool import AllocationMode
from api.mig.layout import instances_of, layout_text, nearest_layout
from api.mig.profile import label_form
from api.names import MAX_RESOURCE_NAME_LENGTH, pool_name_fault
from api.text import listed, truncate
from api.vendor import NVIDIA
from inventory.pools.spec_rules import spec_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from api.names import PoolName


MAX_FAULTS: Final = 3
"""Products that a text names."""


class PoolFaultReason(Enum):
    """Why a pool is invalid; of several faults the first names the condition's reason."""

    UNSUPPORTED_VENDOR = "unsupported vendor"
    """Only devices of other vendors than NVIDIA can match its selector."""
    BAD_SPEC = "bad spec"
    """The spec breaks a rule; the API server stored the object before it knew the rule."""
    RESOURCE_NAME_TAKEN = "resource name taken"
    """An older pool serves the resource."""
    PROFILE_NOT_SUPPORTED = "profile not supported"
    """None of the pool's devices can hold its MIG instances."""


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
    pool: "GPUPool", pools: "Iterable[GPUPool]", *, layouts: "Mapping[str, int] | None" = None
) -> PoolValidity:
    """Return the validity of a pool.

    Args:
        pool: the pool.
        pools: all pools; the pool itself may be among them.
        layouts: number of devices that the pool may have by what keeps them from its MIG instances (`layout_fault`);
            devices whose profiles are unknown are left out.
    """
    return PoolValidity(
        unsupported=_unsupported(pool),
        misconfigured=(
            *_bad_spec(pool),
            *_label_conflicts(pool, pools),
            *_no_layout(pool, layouts or {}),
        ),
    )


def is_older(pool: "GPUPool", than: "GPUPool") -> bool:
    """Whether a pool takes precedence over another one: by age, then by name."""
    return age_of(pool) < age_of(than)


def layout_fault(pool: "GPUPool", device: "GPUDevice") -> str | None:
    """Return why a device cannot hold the pool's MIG instances; empty where it can, None while its profiles are unknown.

    A device without MIG holds none.
    """
    status, shares = device.status, pool.desired_allocation.shares
    product, mig = status.product or device.name, status.mig
    capacities = tuple((mig.capacities or {}).items())
    if capacities:
        if instances_of(shares, capacities) is not None:
            return ""
        nearest = nearest_layout(shares, capacities)
        text = f"{product} cannot hold {layout_text(shares)}"
        return f"{text}; the nearest layout that it can hold is {nearest}" if nearest else text
    if mig.profiles:
        lacking = {profile for profile, _ in shares} - set(mig.profiles)
        return f"{product} has no profile {listed(lacking)}" if lacking else ""
    return f"{product} does not support MIG" if status.product and not mig.capable else None


def part_faults(pool: "GPUPool") -> "Iterator[FieldError]":
    """Yield the profiles whose resource has a name that kubelet does not take."""
    for share in pool.spec.allocation.mig or ():
        name = f"{pool.resource_name}.{label_form(share.profile)}"
        if len(name) > MAX_RESOURCE_NAME_LENGTH:
            text = f"resource {name} has more than {MAX_RESOURCE_NAME_LENGTH} characters: choose a shorter resource name"
            yield FieldError("spec.allocation.mig", text)


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
    for fault in sorted((*spec_faults(pool.spec), *part_faults(pool)), key=str):
        yield PoolFault(PoolFaultReason.BAD_SPEC, str(fault))


def _label_conflicts(pool: "GPUPool", pools: "Iterable[GPUPool]") -> "Iterator[PoolFault]":
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


def _no_layout(pool: "GPUPool", layouts: "Mapping[str, int]") -> "Iterator[PoolFault]":
    faults = sorted(fault for fault, count in layouts.items() if fault and count)
    if pool.spec.allocation.mode is not AllocationMode.MIG or layouts.get("") or not faults:
        return
    text = (
        f"no device of the pool can hold its MIG instances: {'; '.join(faults[:MAX_FAULTS])}: change the allocation, or"
        " assign devices that support it"
    )
    yield PoolFault(PoolFaultReason.PROFILE_NOT_SUPPORTED, text)
