"""What a node's labels say of its cards: those of the NodeFeatureRule, of gpu-feature-discovery, of NFD.

Labels of the rule number the cards in the order of their PCI addresses; they name none. Labels of GFD are
about all cards at once: they describe *a* card of the node, and their counts are the node's, so that no
count ever becomes a card's. Keys: gpu-feature-discovery's docs and internal/lm; the older spelling with
`mig-` where it has `mig.` now.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

from api.names import GROUP
from inventory.discovery import parsing as values
from inventory.discovery.sources import (
    BadFeature,
    Reading,
    ReportedDevice,
    Source,
    Versions,
    two_part_capability,
)
from inventory.products import product_of_label

PRESENT_LABEL: Final = f"{GROUP}/present"
COUNT_LABEL: Final = f"{GROUP}/device-count"
SLOT_PREFIX: Final = f"{GROUP}/device."
_NFD_PRESENT: Final = (
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
    PRESENT_LABEL,
)
"""What the GPU Operator takes for a node with a card, and our rule."""
_SLOT: Final = re.compile(rf"{re.escape(SLOT_PREFIX)}(\d{{1,4}})\.([A-Za-z][A-Za-z.]{{0,31}})")
_PROFILE: Final = re.compile(
    r"nvidia\.com/mig-(\d{1,2}g\.\d{1,4}gb)((?:\.[a-z]+)*)\.(?:count|ready|available)"
)
_GFD: Final = "nvidia.com/gpu."


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelReport:
    """What the labels of a node say."""

    slots: Mapping[int, ReportedDevice] = field(default_factory=dict)
    """Number of a card, in order of the PCI addresses -> what is said of it."""
    common: ReportedDevice = field(default_factory=ReportedDevice)
    """What is said of the node's cards at once."""
    withheld: frozenset[str] = frozenset()
    """Fields of a card that the labels cannot tell now, though their source is there."""
    has_devices: bool = False
    """NFD found a card of NVIDIA."""
    devices: int | None = None
    """How many cards NFD found, or the labels number."""
    of_one_model: int | None = None
    """How many cards are of the model that `common` is about."""
    versions: Versions = field(default_factory=Versions)
    bad: frozenset[BadFeature] = frozenset()


def label_report(labels: Mapping[str, str]) -> LabelReport:
    """Return what the labels say; those of no interest are passed over."""
    slot_texts, profiles = _sorted_out(labels)
    bad: set[BadFeature] = set()
    slots = {number: _slot(number, slot_texts[number], bad) for number in sorted(slot_texts)}
    rule = Reading(Source.SLOTS, labels)
    counted = rule.read(COUNT_LABEL, values.count)
    gfd = Reading(Source.NODE, labels)
    common, withheld = _common(gfd, profiles)
    versions = Versions(
        driver=gfd.read("nvidia.com/cuda.driver-version.full", values.version)
        or _older_driver(gfd),
        cuda=gfd.read("nvidia.com/cuda.runtime-version.full", values.version)
        or _joined(gfd, "nvidia.com/cuda.runtime.major", "nvidia.com/cuda.runtime.minor"),
    )
    of_one_model = gfd.read(f"{_GFD}count", values.count, unless="0")
    return LabelReport(
        slots=slots,
        common=common,
        withheld=withheld,
        has_devices=any(labels.get(key) == "true" for key in _NFD_PRESENT) or bool(slots),
        devices=counted if counted is not None else len(slots) or None,
        of_one_model=None if withheld else of_one_model,
        versions=versions,
        bad=frozenset(bad | rule.bad | gfd.bad),
    )


def _sorted_out(labels: Mapping[str, str]) -> tuple[dict[int, dict[str, str]], list[str]]:
    """Return the texts about each numbered card, and the MIG profiles that the node has."""
    slots: dict[int, dict[str, str]] = {}
    profiles = []
    for key, text in labels.items():
        if key.startswith(SLOT_PREFIX):
            found = _SLOT.fullmatch(key)
            if found is not None:
                slots.setdefault(int(found.group(1)), {})[found.group(2)] = text
        elif key.startswith("nvidia.com/mig-"):
            made = _PROFILE.fullmatch(key)
            if made is not None:
                profile, attributes = made.groups()
                profiles.append(f"{profile}+{attributes[1:]}" if attributes else profile)
    return slots, profiles


def _slot(number: int, texts: dict[str, str], bad: set[BadFeature]) -> ReportedDevice:
    reading = Reading(Source.SLOTS, texts, f"{SLOT_PREFIX}{number:02d}.")
    facts = ReportedDevice(
        vendor=reading.read("vendor", values.hex_id),
        device=reading.read("device", values.hex_id),
        class_=reading.read("class", values.pci_class),
        product=reading.read("product", values.product),
        memory_mib=reading.read("memoryMiB", values.memory_mib),
    )
    bad |= reading.bad
    return facts


def _common(gfd: Reading, profiles: list[str]) -> tuple[ReportedDevice, frozenset[str]]:
    label = gfd.read(f"{_GFD}product", values.product)
    product, is_of_device = product_of_label(label) if label is not None else (None, True)
    memory = gfd.read(f"{_GFD}memory", values.memory_mib, unless="0")
    made = tuple(sorted({one for one in map(values.profile, profiles) if one is not None}))
    capable = gfd.first(("nvidia.com/mig.capable", "nvidia.com/mig-capable"), values.flag)
    gfd.first(("nvidia.com/mig.strategy", "nvidia.com/mig-strategy"), _strategy)
    facts = ReportedDevice(
        product=product,
        memory_mib=memory if is_of_device else None,
        compute_capability=two_part_capability(gfd, f"{_GFD}compute.{{}}"),
        numa_node=gfd.read(f"{_GFD}numa.node", values.numa_node),
        mig_capable=True if made else capable,
        mig_profiles=made or None,
    )
    return facts, frozenset() if is_of_device else frozenset({"memory_mib"})


def _strategy(text: str) -> str | None:
    return text if text in {"none", "single", "mixed"} else None


def _older_driver(gfd: Reading) -> str | None:
    parts = [
        gfd.read(f"nvidia.com/cuda.driver.{part}", values.version)
        for part in ("major", "minor", "rev")
    ]
    if parts[0] is None or parts[1] is None:
        return None
    return ".".join(part for part in parts if part is not None)


def _joined(gfd: Reading, major: str, minor: str) -> str | None:
    left, right = gfd.read(major, values.count), gfd.read(minor, values.count)
    return None if left is None or right is None else f"{left}.{right}"
