"""Display names of products: one spelling for each product, for all sources.

NVML reports `NVIDIA A100-SXM4-80GB`, the GFD label `NVIDIA-A100-SXM4-80GB`, lspci's table
`GA100 [A100 SXM4 80GB]`. The label's spelling is displayed, because it can be derived from the other two.
`inventory.assignment.selector.canonical_product` compares.
"""

import re
from typing import Final

from api.vendor import NVIDIA
from inventory.assignment.selector import canonical_product

_IN_BRACKETS: Final = re.compile(r"\[(.+)\]")
_NOT_IN_A_LABEL: Final = re.compile(r"[^A-Za-z0-9\-_. ]")
"""Characters that gpu-feature-discovery drops (internal/lm/resource.go, sanitise)."""
_PREFIX: Final = "NVIDIA-"
_SHARING: Final = re.compile(r"-SHARED$")
_MIG: Final = re.compile(r"-MIG-.+$")
_MAX_LENGTH: Final = 128

_BY_PCI_ID: Final = {
    "1db1": "Tesla V100-SXM2-16GB",
    "1db4": "Tesla V100-PCIE-16GB",
    "1db5": "Tesla V100-SXM2-32GB",
    "1db6": "Tesla V100-PCIE-32GB",
    "1eb8": "Tesla T4",
    "20b0": "NVIDIA A100-SXM4-40GB",
    "20b2": "NVIDIA A100-SXM4-80GB",
    "20b5": "NVIDIA A100 80GB PCIe",
    "20b7": "NVIDIA A30",
    "20f1": "NVIDIA A100-PCIE-40GB",
    "2235": "NVIDIA A40",
    "2236": "NVIDIA A10",
    "2321": "NVIDIA H100 NVL",
    "2330": "NVIDIA H100 80GB HBM3",
    "2331": "NVIDIA H100 PCIe",
    "2335": "NVIDIA H200",
    "233b": "NVIDIA H200 NVL",
    "26b5": "NVIDIA L40",
    "26b9": "NVIDIA L40S",
    "27b8": "NVIDIA L4",
    "2901": "NVIDIA B200",
    "2941": "NVIDIA GB200",
    "2bb5": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "31c2": "NVIDIA GB300",
}
"""Data centre devices by device id of vendor 10de, from "Supported NVIDIA GPU Products" of the driver's
README, the latest from mig-parted's config-default.yaml; the names are NVML's, and so equal to those of better sources."""


def display_product(name: str, vendor: str = NVIDIA) -> str:
    """Return the displayed spelling; empty where no character of the name is allowed in it."""
    in_brackets = _IN_BRACKETS.search(name)
    text = _NOT_IN_A_LABEL.sub("", in_brackets.group(1) if in_brackets else name)
    label = "-".join(text.split())[:_MAX_LENGTH].strip("-_.")
    if not label or vendor not in {NVIDIA, ""}:
        return label
    maker, _, remaining = label.partition("-")
    bare = (remaining if maker.upper() == "NVIDIA" else label).strip("-_.")
    return f"{_PREFIX}{bare}" if bare else ""


def is_same_product(first: str, second: str) -> bool:
    return canonical_product(first) == canonical_product(second)


def product_by_id(vendor: str, device: str) -> str:
    """Return the product of a PCI id; empty for an id that the table does not have."""
    if vendor != NVIDIA or device not in _BY_PCI_ID:
        return ""
    return display_product(_BY_PCI_ID[device])


def product_of_label(value: str) -> tuple[str, bool]:
    """Return the device behind `nvidia.com/gpu.product`, and whether the other labels describe the whole device.

    On nodes with shared or partitioned devices the label names the resource that a pod gets: `...-SHARED`,
    `...-MIG-1g.5gb`. With the latter, the memory label is an instance's.
    """
    shared = _SHARING.sub("", value)
    device = _MIG.sub("", shared)
    return device, device == shared
