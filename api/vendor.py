"""NVIDIA's numbers and names: on the PCI bus, among the labels of Node Feature Discovery, and of its resources.

Labels of NVIDIA's components that this control plane writes or that users set are in `api.names`.
"""

from typing import Final

NVIDIA: Final = "10de"
"""Vendor on the PCI bus."""
AMD: Final = "1002"
"""Vendor whose devices are seen on nodes, and not supported."""
AMD_RESOURCE_PREFIX: Final = "amd.com/"
VGA_CONTROLLER: Final = "0300"
ACCELERATOR: Final = "0302"
"""3D controller: a device without a display."""
GPU_CLASSES: Final = frozenset({VGA_CONTROLLER, ACCELERATOR})
"""NVIDIA's audio functions, bridges and NVSwitches have others."""

NFD_PREFIX: Final = "feature.node.kubernetes.io/"
NFD_KERNEL_LABEL: Final = f"{NFD_PREFIX}kernel-version.full"
NFD_SYSTEM_PREFIX: Final = f"{NFD_PREFIX}system-os_release."
NFD_PCI_PREFIX: Final = f"{NFD_PREFIX}pci-"
_LISTED: Final = (NVIDIA, f"{ACCELERATOR}_{NVIDIA}", f"{VGA_CONTROLLER}_{NVIDIA}")
# by the device label fields that nfd-worker is configured with: vendor, or class and vendor
NFD_PRESENT_LABELS: Final = tuple(f"{NFD_PCI_PREFIX}{device}.present" for device in _LISTED)
NFD_AMD_LABELS: Final = tuple(
    f"{NFD_PCI_PREFIX}{device}{AMD}.present" for device in ("", "0300_", "0302_", "0380_", "1200_")
)
"""AMD's accelerators are display controllers, or processing accelerators."""
NFD_VIRTUAL_LABELS: Final = tuple(f"{NFD_PCI_PREFIX}{device}.sriov.capable" for device in _LISTED)

NVIDIA_PREFIX: Final = "nvidia.com/"
"""Prefix of resources of NVIDIA's device plugin, and of labels of its components."""
GPU_RESOURCE: Final = f"{NVIDIA_PREFIX}gpu"
MIG_RESOURCE_PREFIX: Final = f"{NVIDIA_PREFIX}mig-"
