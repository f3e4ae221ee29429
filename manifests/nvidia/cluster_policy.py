"""A ClusterPolicy with images that NVIDIA has released together.

Images and switches are those of deployments/gpu-operator/values.yaml in github.com/NVIDIA/gpu-operator, tag v26.7.0
(commit dee6983b). The vGPU manager has none: NVIDIA publishes no image of it.
"""

from typing import Any, Final

_REGISTRY: Final = "nvcr.io"
_OPERATOR: Final = ("nvidia/gpu-operator", "v26.7.0")
_DEVICE_PLUGIN: Final = ("nvidia/k8s-device-plugin", "v0.20.0")
_DRIVER_MANAGER: Final = ("nvidia/cloud-native/k8s-driver-manager", "v0.12.0")
_OPERANDS: Final = {
    "driver": (True, "nvidia/driver", "595.91.07"),
    "toolkit": (True, "nvidia/k8s/container-toolkit", "v1.20.0"),
    "devicePlugin": (True, *_DEVICE_PLUGIN),
    "dcgm": (False, "nvidia/cloud-native/dcgm", "4.6.0-1-ubuntu24.04"),
    "dcgmExporter": (True, "nvidia/k8s/dcgm-exporter", "4.6.0-4.8.3-distroless"),
    "gfd": (True, *_DEVICE_PLUGIN),
    "migManager": (True, "nvidia/cloud-native/k8s-mig-manager", "v0.15.0"),
    "nodeStatusExporter": (False, *_OPERATOR),
    "gds": (False, "nvidia/cloud-native/nvidia-fs", "2.29.4"),
    "gdrcopy": (False, "nvidia/cloud-native/gdrdrv", "v2.6"),
    # These run with sandboxWorkloads.enabled only.
    "vgpuDeviceManager": (True, "nvidia/cloud-native/vgpu-device-manager", "v0.5.0"),
    "vfioManager": (True, *_DRIVER_MANAGER),
    "sandboxDevicePlugin": (True, "nvidia/kubevirt-gpu-device-plugin", "v1.6.0"),
    "kataSandboxDevicePlugin": (
        True,
        "nvidia/cloud-native/nvidia-sandbox-device-plugin",
        "v0.0.5",
    ),
    "ccManager": (True, "nvidia/cloud-native/k8s-cc-manager", "v0.4.3"),
}
"""Key of the spec -> whether it is on, and its image."""


def build_cluster_policy(
    *,
    name: str | None = None,
    registry: str | None = None,
    driver_version: str | None = None,
    has_driver: bool = False,
    has_toolkit: bool = False,
) -> dict[str, Any]:
    """Return a ClusterPolicy that names the image of every operand, of those that are off as well.

    Args:
        name: of the object; NVIDIA's chart calls it cluster-policy.
        registry: where the images have been copied to, under their own paths.
        driver_version: another one than the release has.
        has_driver: the nodes have a driver already.
        has_toolkit: the nodes have the container toolkit already.
    """
    prefix = registry or _REGISTRY
    spec: dict[str, Any] = {"operator": {}, "daemonsets": {}, "mig": {"strategy": "single"}}
    spec["validator"] = _image(prefix, *_OPERATOR)
    for key, (is_on, path, version) in _OPERANDS.items():
        spec[key] = {"enabled": is_on, **_image(prefix, path, version)}
    spec["driver"] |= {
        "enabled": not has_driver,
        "version": driver_version or spec["driver"]["version"],
        "manager": _image(prefix, *_DRIVER_MANAGER),
        "upgradePolicy": {"autoUpgrade": True, "podDeletion": {}},
    }
    spec["toolkit"]["enabled"] = not has_toolkit
    spec["vfioManager"]["driverManager"] = _image(prefix, *_DRIVER_MANAGER)
    spec["sandboxWorkloads"] = {"enabled": False}
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name or "cluster-policy"},
        "spec": spec,
    }


def _image(registry: str, path: str, version: str) -> dict[str, str]:
    repository, _, image = f"{registry}/{path}".rpartition("/")
    return {"repository": repository, "image": image, "version": version}
