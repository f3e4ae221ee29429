"""The NodeFeatureRule by which Node Feature Discovery labels nodes with a device.

It is for clusters where NFD runs. `inventory.discovery.labels` reads them. Devices are numbered in the order in
which nfd-worker lists the PCI bus, which is that of their addresses. Semantics:
github.com/kubernetes-sigs/node-feature-discovery, pkg/apis/nfd/nodefeaturerule; values that begin
with @ need NFD 0.14.
"""

from typing import Any, Final

from api.foreign.nodefeature import PCI_INSTANCES
from api.names import GROUP, PRESENT_LABEL
from api.vendor import GPU_CLASSES, NVIDIA
from inventory.discovery import labels
from manifests import constants

Json = dict[str, Any]

DRIVER_MODULES: Final = ("nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm")
_SLOT_FIELDS: Final = ("vendor", "device", "class")


def build_node_feature_rule() -> Json:
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeatureRule",
        "metadata": {"name": constants.NAME, "labels": dict(constants.LABELS)},
        "spec": {
            "rules": [
                {
                    "name": "gpu devices",
                    "labels": {PRESENT_LABEL: "true"},
                    "labelsTemplate": _slots(),
                    "matchFeatures": [_is_device()],
                },
                *(
                    {
                        "name": f"gpu driver module {module}",
                        "labels": {f"{GROUP}/driver.module.{module}": "true"}
                        | ({f"{GROUP}/driver.name": module} if module == "nvidia" else {}),
                        "matchFeatures": [_has_device(), _has("kernel.loadedmodule", module)],
                    }
                    for module in DRIVER_MODULES
                ),
                {
                    "name": "kernel of gpu nodes",
                    "labels": {
                        labels.KERNEL_LABEL: "@kernel.version.full",
                        f"{GROUP}/kernel.version.major": "@kernel.version.major",
                        f"{GROUP}/kernel.version.minor": "@kernel.version.minor",
                    },
                    "matchFeatures": [
                        _has_device(),
                        _has("kernel.version", "full", "major", "minor"),
                    ],
                },
                {
                    "name": "operating system of gpu nodes",
                    "labels": {
                        labels.OS_LABEL: "@system.osrelease.ID",
                        labels.OS_VERSION_LABEL: "@system.osrelease.VERSION_ID",
                    },
                    "matchFeatures": [
                        _has_device(),
                        _has("system.osrelease", "ID", "VERSION_ID"),
                    ],
                },
            ]
        },
    }


def _slots() -> str:
    """Return the template of the labels that number the devices."""
    fields = "".join(
        f'{labels.SLOT_PREFIX}{{{{ printf "%02d" $number }}}}.{field}={{{{ $device.{field} }}}}\n'
        for field in _SLOT_FIELDS
    )
    return (
        f"{labels.COUNT_LABEL}={{{{ len .{PCI_INSTANCES} }}}}\n"
        f"{{{{ range $number, $device := .{PCI_INSTANCES} }}}}{fields}{{{{ end }}}}"
    )


def _is_device() -> Json:
    return {
        "feature": PCI_INSTANCES,
        "matchExpressions": {
            "vendor": {"op": "In", "value": [NVIDIA]},
            "class": {"op": "In", "value": sorted(GPU_CLASSES)},
        },
    }


def _has_device() -> Json:
    """Return the condition that the first rule has set its label, which later rules see as a feature."""
    return {"feature": "rule.matched", "matchExpressions": {PRESENT_LABEL: {"op": "IsTrue"}}}


def _has(feature: str, *names: str) -> Json:
    return {"feature": feature, "matchExpressions": {name: {"op": "Exists"} for name in names}}
