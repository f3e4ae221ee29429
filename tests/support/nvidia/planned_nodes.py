"""Nodes and a ClusterPolicy for plans of operands, as `kubectl get -o yaml` shows them."""

from pathlib import Path
from typing import Any

import yaml

from api.vendor import NFD_PREFIX

Json = dict[str, Any]

POLICY = """\
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata:
  name: gpus
spec:
  operator: {}
  daemonsets: {}
  driver:
    repository: registry.example.com/nvidia
    image: driver
    version: "580.95"
    manager: {image: "registry.example.com/nvidia/k8s-driver-manager:v0.9"}
  toolkit: {image: "registry.example.com/nvidia/container-toolkit:v1.18"}
  validator: {image: "registry.example.com/nvidia/gpu-operator:v26.7"}
  devicePlugin: {image: "registry.example.com/nvidia/k8s-device-plugin:v0.19"}
  gfd: {repository: registry.example.com/nvidia, version: v0.19}
  dcgmExporter: {enabled: false}
  dcgm: {enabled: false}
  migManager: {enabled: false}
  nodeStatusExporter: {}
"""
"""The ClusterPolicy of docs/node-software.md: the image of one operand is given in half."""
GOOD_POLICY = POLICY.replace(
    "gfd: {repository: registry.example.com/nvidia, version: v0.19}", "gfd: {enabled: false}"
)
UBUNTU = ("ubuntu", "24.04", "6.8.0-60-generic", "containerd://2.1.4")
RHEL = ("rhel", "9.6", "5.14.0-570.el9.x86_64", "cri-o://1.33.1")


def a_node(
    name: str,
    software: tuple[str, str, str, str] = UBUNTU,
    *,
    has_gpu: bool = True,
    labels: dict[str, str] | None = None,
) -> Json:
    system, version, kernel, runtime = software
    found = {f"{NFD_PREFIX}kernel-version.full": kernel}
    if system:
        release = f"{NFD_PREFIX}system-os_release"
        found |= {
            f"{release}.ID": system,
            f"{release}.VERSION_ID": version,
            f"{release}.VERSION_ID.major": version.partition(".")[0],
        }
    if has_gpu:
        found[f"{NFD_PREFIX}pci-10de.present"] = "true"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**found, **(labels or {})}},
        "status": {"nodeInfo": {"kernelVersion": kernel, "containerRuntimeVersion": runtime}},
    }


def a_driver(name: str, **spec: Any) -> str:
    """An NVIDIADriver, as a document to append to a file."""
    images = {
        "repository": "registry.example.com/nvidia",
        "image": "driver",
        "version": "575.57",
        "manager": {"image": "registry.example.com/nvidia/k8s-driver-manager:v0.9"},
    }
    body = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "metadata": {"name": name},
        "spec": {"driverType": "gpu", **images, **spec},
    }
    return "---\n" + yaml.safe_dump(body)


def write_list(path: Path, *items: Json) -> Path:
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": list(items)}))
    return path
