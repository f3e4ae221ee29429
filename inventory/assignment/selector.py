"""Device selectors of pools, and the category that a device fails.

Inside a category any value is enough; every given category must be met, and unknown facts meet nothing.
`exclude` wins over `include`.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from api.kinds.device_selector import DeviceCriteria, DeviceSelector
    from api.kinds.gpudevice import GPUDeviceStatus


class Category(Enum):
    """A field of the criteria, spelled as in a pool."""

    INVENTORY_IDS = "inventoryIDs"
    PRODUCTS = "products"
    PCI_VENDORS = "pciVendors"
    PCI_DEVICES = "pciDevices"
    MIG_CAPABLE = "migCapable"
    MIG_PROFILES = "migProfiles"
    MIN_MEMORY_MIB = "minMemoryMiB"
    COMPUTE_CAPABILITY = "computeCapability"


@dataclass(frozen=True, slots=True)
class Check:
    """One category compared with a device."""

    category: Category
    required: tuple[str, ...]
    actual: str
    """Value of the device; empty where unknown."""
    is_met: bool


@dataclass(frozen=True, slots=True)
class NotIncluded:
    """The first category of `include` that the device does not meet."""

    check: Check


@dataclass(frozen=True, slots=True)
class Excluded:
    """The device meets every category of `exclude`."""

    checks: tuple[Check, ...]


def mismatch(
    selector: "DeviceSelector", device: "GPUDeviceStatus"
) -> NotIncluded | Excluded | None:
    """Return why the selector does not match the device; None for a match.

    An `exclude` without any category excludes nothing.
    """
    if selector.exclude is not None:
        checks = tuple(_checks(selector.exclude, device))
        if checks and all(check.is_met for check in checks):
            return Excluded(checks)
    if selector.include is not None:
        for check in _checks(selector.include, device):
            if not check.is_met:
                return NotIncluded(check)
    return None


def selector_accepts(selector: "DeviceSelector", device: "GPUDeviceStatus") -> bool:
    return mismatch(selector, device) is None


_LONGEST_VERSION: Final = 16
_SEPARATORS: Final = re.compile(r"[^a-z0-9.+]+")


def canonical_product(name: str) -> str:
    """Return one spelling for a product, for comparison only.

    NVML reports `NVIDIA A100-SXM4-80GB`, the GFD label `NVIDIA-A100-SXM4-80GB`, and the PCI table
    `GA100 [A100 SXM4 80GB]`.
    """
    start, end = name.find("["), name.rfind("]")
    text = (name[start + 1 : end] if 0 <= start < end - 1 else name).lower()
    return _SEPARATORS.sub("-", text).strip("-").removeprefix("nvidia-")


def _checks(criteria: "DeviceCriteria", device: "GPUDeviceStatus") -> "Iterator[Check]":
    """Yield a check for every category that is given."""
    yield from _identity_checks(criteria, device)
    mig = device.mig
    if criteria.mig_capable is not None:
        is_met = mig.capable is criteria.mig_capable
        required = (_yes_or_no(criteria.mig_capable),)
        yield Check(Category.MIG_CAPABLE, required, _yes_or_no(mig.capable), is_met)
    if criteria.mig_profiles:
        have = mig.profiles or ()
        is_met = not set(have).isdisjoint(criteria.mig_profiles)
        yield Check(Category.MIG_PROFILES, tuple(criteria.mig_profiles), ", ".join(have), is_met)
    if criteria.min_memory_mib is not None:
        memory = str(device.memory_mib) if device.memory_mib else ""
        is_met = device.memory_mib >= criteria.min_memory_mib
        yield Check(Category.MIN_MEMORY_MIB, (str(criteria.min_memory_mib),), memory, is_met)
    if criteria.compute_capability is not None:
        lowest, actual = criteria.compute_capability, device.compute_capability
        is_met = bool(actual) and _version(actual) >= _version(lowest)
        yield Check(Category.COMPUTE_CAPABILITY, (lowest,), actual, is_met)


def _identity_checks(criteria: "DeviceCriteria", device: "GPUDeviceStatus") -> "Iterator[Check]":
    if criteria.inventory_ids:
        yield _among(Category.INVENTORY_IDS, criteria.inventory_ids, device.inventory_id)
    if criteria.products:
        required = tuple(criteria.products)
        products = {canonical_product(name) for name in required}
        is_met = bool(device.product) and canonical_product(device.product) in products
        yield Check(Category.PRODUCTS, required, device.product, is_met)
    if criteria.pci_vendors:
        yield _among(Category.PCI_VENDORS, criteria.pci_vendors, device.pci.vendor)
    if criteria.pci_devices:
        yield _among(Category.PCI_DEVICES, criteria.pci_devices, device.pci.device)


def _among(category: Category, required: "Iterable[str]", actual: str) -> Check:
    """Compare case-insensitively: hex digits come in both cases."""
    values = tuple(required)
    is_met = bool(actual) and actual.lower() in {value.lower() for value in values}
    return Check(category, values, actual, is_met)


def _yes_or_no(value: bool) -> str:  # noqa: FBT001  # a value to be shown, not a switch
    return "true" if value else "false"


def _version(text: str) -> tuple[int, ...]:
    """Return (8, 6) for `8.6`; () for anything else, which is lower than every version."""
    if len(text) > _LONGEST_VERSION:
        return ()
    try:
        return tuple(int(part) for part in text.split("."))
    except ValueError:
        return ()
