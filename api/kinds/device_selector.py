"""The devices that may join a GPUPool, by facts of their status."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from api.meta import Model
from api.mig.profile import MIG_PROFILE_PATTERN

PCI_ID_PATTERN: Final = "^[0-9a-fA-F]{4}$"

Names = Annotated[list[Annotated[str, Meta(min_length=1, max_length=253)]], Meta(max_length=256)]


class DeviceCriteria(Model, frozen=True):
    """Categories are ANDed, values of one category are ORed; an empty category matches every device."""

    inventory_ids: Names | None = msgspec.field(default=None, name="inventoryIDs")
    """Single devices, as `<node>-<pci address>`."""
    products: Names | None = None
    """Product names as in a GPUDevice's status."""
    pci_vendors: (
        Annotated[list[Annotated[str, Meta(pattern=PCI_ID_PATTERN)]], Meta(max_length=64)] | None
    ) = None
    """Four hex digits without 0x; case does not matter."""
    pci_devices: (
        Annotated[list[Annotated[str, Meta(pattern=PCI_ID_PATTERN)]], Meta(max_length=256)] | None
    ) = None
    """Four hex digits without 0x; case does not matter."""
    mig_capable: bool | None = None
    """Whether the device supports MIG."""
    mig_profiles: (
        Annotated[list[Annotated[str, Meta(pattern=MIG_PROFILE_PATTERN)]], Meta(max_length=64)]
        | None
    ) = None
    """MIG profiles, such as 1g.10gb; a device matches if it supports one of them."""
    min_memory_mib: Annotated[int, Meta(ge=1)] | None = msgspec.field(
        default=None, name="minMemoryMiB"
    )
    """Minimum memory of the device in MiB."""
    compute_capability: Annotated[str, Meta(pattern="^[0-9]+\\.[0-9]+$")] | None = None
    """Minimum compute capability, such as 8.0."""


class DeviceSelector(Model, frozen=True):
    """A device is selected if `include` matches it (or is empty) and `exclude` does not."""

    include: DeviceCriteria | None = None
    """Devices to select; all devices if left out or empty."""
    exclude: DeviceCriteria | None = None
    """Devices to leave out; it overrides include. A device must match every category that is set:
    products and minMemoryMiB together exclude large devices of these products, not all large devices."""
