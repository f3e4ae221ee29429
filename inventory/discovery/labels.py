"""Devices in a node's labels: those of the NodeFeatureRule, of gpu-feature-discovery, of NFD.

Labels of the rule number the devices in the order of their PCI addresses, without the addresses. Labels of
GFD are about all devices at once: they describe *a* device of the node, and their counts are the node's, so
that no count ever becomes a device's. Keys: gpu-feature-discovery's docs and internal/lm, and its older
spelling with `mig-` for `mig.`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

from api.kinds.gpunodeinventory import NodeSystem
from api.mig.profile import profile_in_label
from api.names import GROUP, NVIDIA_PRESENT_LABEL, PRESENT_LABEL
from api.vendor import (
    GPU_RESOURCE,
    MIG_RESOURCE_PREFIX,
    NFD_KERNEL_LABEL,
    NFD_PRESENT_LABELS,
    NFD_SYSTEM_PREFIX,
    NFD_VIRTUAL_LABELS,
)
from inventory.discovery import parsing
from inventory.discovery.sources import (
    AttributeReader,
    BadFeature,
    ReportedDevice,
    Source,
    Versions,
    two_part_capability,
)
from inventory.products import product_of_label

COUNT_LABEL: Final = f"{GROUP}/device-count"
SLOT_PREFIX: Final = f"{GROUP}/device."
KERNEL_LABEL: Final = f"{GROUP}/kernel.version.full"
OS_LABEL: Final = f"{GROUP}/os.id"
OS_VERSION_LABEL: Final = f"{GROUP}/os.version_id"
_KERNEL: Final = (KERNEL_LABEL, NFD_KERNEL_LABEL)
_OS: Final = (OS_LABEL, f"{NFD_SYSTEM_PREFIX}ID")
_OS_VERSION: Final = (OS_VERSION_LABEL, f"{NFD_SYSTEM_PREFIX}VERSION_ID")
_PRESENT: Final = (
    PRESENT_LABEL,
    NVIDIA_PRESENT_LABEL,
    *NFD_PRESENT_LABELS,
    *NFD_VIRTUAL_LABELS,
)
_COUNTS: Final = (f"{GPU_RESOURCE}.count", COUNT_LABEL)
_SLOT: Final = re.compile(rf"{re.escape(SLOT_PREFIX)}(\d{{1,4}})\.([A-Za-z][A-Za-z.]{{0,31}})")
_PROFILE: Final = re.compile(r"nvidia\.com/mig-(.+)\.(?:count|ready|available)")
_GFD: Final = f"{GPU_RESOURCE}."


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelReport:
    """Facts in the labels of a node."""

    slots: Mapping[int, ReportedDevice] = field(default_factory=dict)
    """Number of a device, in order of the PCI addresses -> its facts."""
    common: ReportedDevice = field(default_factory=ReportedDevice)
    """Facts about all devices of the node at once."""
    withheld: frozenset[str] = frozenset()
    """Fields that the labels cannot contain now, though their source is present."""
    has_devices: bool = False
    """Whether a label says that there is a device."""
    devices: int | None = None
    """Number of devices that NFD found, or the labels number."""
    model_count: int | None = None
    """Number of devices of the model that `common` is about."""
    versions: Versions = field(default_factory=Versions)
    system: NodeSystem = field(default_factory=NodeSystem)
    """System by our NodeFeatureRule, or by nfd-worker."""
    bad: frozenset[BadFeature] = frozenset()


def label_report(labels: Mapping[str, str]) -> LabelReport:
    """Return the facts in the labels; other labels are skipped."""
    slot_texts, profile_keys = _slots_and_profiles(labels)
    bad: set[BadFeature] = set()
    slots = {number: _slot(number, slot_texts[number], bad) for number in sorted(slot_texts)}
    rule = AttributeReader(Source.SLOTS, labels)
    counted = rule.read(COUNT_LABEL, parsing.count)
    gfd = AttributeReader(Source.NODE, labels)
    common, withheld = _common(gfd, profile_keys)
    versions = Versions(
        driver=gfd.read("nvidia.com/cuda.driver-version.full", parsing.version)
        or _older_driver(gfd),
        cuda=gfd.read("nvidia.com/cuda.runtime-version.full", parsing.version)
        or _joined(gfd, "nvidia.com/cuda.runtime.major", "nvidia.com/cuda.runtime.minor"),
    )
    model_count = gfd.read(f"{_GFD}count", parsing.count, unless="0")
    return LabelReport(
        slots=slots,
        common=common,
        withheld=withheld,
        has_devices=report_device(labels) or bool(slots),
        devices=counted if counted is not None else len(slots) or None,
        model_count=None if withheld else model_count,
        versions=versions,
        system=NodeSystem(
            kernel=gfd.first(_KERNEL, parsing.version) or "",
            os=gfd.first(_OS, parsing.version) or "",
            os_version=gfd.first(_OS_VERSION, parsing.version) or "",
        ),
        bad=frozenset(bad | rule.bad | gfd.bad),
    )


def report_device(labels: Mapping[str, str]) -> bool:
    """Return whether a label of NFD, of NVIDIA's components or of our NodeFeatureRule says that there is a device."""
    return any(labels.get(key) == "true" for key in _PRESENT) or any(
        parsing.count(labels.get(key, "")) for key in _COUNTS
    )


def _slots_and_profiles(
    labels: Mapping[str, str],
) -> tuple[dict[int, dict[str, str]], dict[str, str]]:
    """Return the texts of each numbered device, and the labels that count MIG instances, with their profiles."""
    slots: dict[int, dict[str, str]] = {}
    profiles = {}
    for key, text in labels.items():
        if key.startswith(SLOT_PREFIX):
            found = _SLOT.fullmatch(key)
            if found is not None:
                slots.setdefault(int(found.group(1)), {})[found.group(2)] = text
        elif key.startswith(MIG_RESOURCE_PREFIX):
            made = _PROFILE.fullmatch(key)
            profile = profile_in_label(made[1]) if made is not None else None
            if profile is not None:
                profiles[key] = profile
    return slots, profiles


def _slot(number: int, texts: dict[str, str], bad: set[BadFeature]) -> ReportedDevice:
    reading = AttributeReader(Source.SLOTS, texts, f"{SLOT_PREFIX}{number:02d}.")
    facts = ReportedDevice(
        vendor=reading.read("vendor", parsing.hex_id),
        device=reading.read("device", parsing.hex_id),
        class_=reading.read("class", parsing.pci_class),
        product=reading.read("product", parsing.product),
        memory_mib=reading.read("memoryMiB", parsing.memory_mib),
    )
    bad |= reading.bad
    return facts


def _common(
    gfd: AttributeReader, profiles: Mapping[str, str]
) -> tuple[ReportedDevice, frozenset[str]]:
    label = gfd.read(f"{_GFD}product", parsing.product)
    # Without the product the memory may be that of an instance.
    product, is_of_device = product_of_label(label) if label is not None else (None, False)
    memory = gfd.read(f"{_GFD}memory", parsing.memory_mib, unless="0")
    made = tuple(
        sorted({item for key, item in profiles.items() if gfd.read(key, parsing.count, unless="0")})
    )
    capable = gfd.first(("nvidia.com/mig.capable", "nvidia.com/mig-capable"), parsing.flag)
    gfd.first(("nvidia.com/mig.strategy", "nvidia.com/mig-strategy"), _strategy)
    facts = ReportedDevice(
        product=product,
        memory_mib=memory if is_of_device else None,
        compute_capability=two_part_capability(gfd, f"{_GFD}compute.{{}}"),
        numa_node=gfd.read(f"{_GFD}numa.node", parsing.numa_node),
        mig_capable=True if made else capable,
        mig_profiles=made or None,
    )
    is_known = is_of_device or (label is None and memory is None)
    return facts, frozenset() if is_known else frozenset({"memory_mib"})


def _strategy(text: str) -> str | None:
    return text if text in {"none", "single", "mixed"} else None


def _older_driver(gfd: AttributeReader) -> str | None:
    parts = [
        gfd.read(f"nvidia.com/cuda.driver.{part}", parsing.version)
        for part in ("major", "minor", "rev")
    ]
    if parts[0] is None or parts[1] is None:
        return None
    return ".".join(part for part in parts if part is not None)


def _joined(gfd: AttributeReader, major: str, minor: str) -> str | None:
    left, right = gfd.read(major, parsing.count), gfd.read(minor, parsing.count)
    return None if left is None or right is None else f"{left}.{right}"
