"""What NVIDIA's GPU Operator has in a cluster, as its assets render it: DaemonSets with the ClusterPolicy as their controller.

Names, labels, selectors and node selectors are those of its assets; of containers there is what decides something.
"""

from typing import Any

Json = dict[str, Any]

DRIVER = "nvidia-driver-daemonset"
PLUGIN = "nvidia-device-plugin-daemonset"
VALIDATOR = "nvidia-operator-validator"
_COMPONENT = "app.kubernetes.io/component"
_PART_OF = "app.kubernetes.io/part-of"
GATES: dict[str, tuple[str, str]] = {
    DRIVER: ("driver", "nvidia-driver"),
    "nvidia-container-toolkit-daemonset": ("container-toolkit", "nvidia-container-toolkit"),
    VALIDATOR: ("operator-validator", "nvidia-operator-validator"),
    PLUGIN: ("device-plugin", "nvidia-device-plugin"),
    "nvidia-dcgm": ("dcgm", "nvidia-dcgm"),
    "nvidia-dcgm-exporter": ("dcgm-exporter", "nvidia-dcgm-exporter"),
    "gpu-feature-discovery": ("gpu-feature-discovery", "nvidia-gpu-feature-discovery"),
    "nvidia-mig-manager": ("mig-manager", "nvidia-mig-manager"),
}
"""DaemonSet -> its deploy label, after `nvidia.com/gpu.deploy.`, and its ServiceAccount."""
_PARTS = {VALIDATOR: "gpu-operator", "gpu-feature-discovery": "nvidia-gpu"}


def controller(policy: Json) -> Json:
    """Return the reference that the operator puts into each object that it makes for a ClusterPolicy or NVIDIADriver."""
    return {
        "apiVersion": policy["apiVersion"],
        "kind": policy["kind"],
        "name": policy["metadata"]["name"],
        "uid": policy["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def operators_daemon_set(
    name: str, policy: Json, *, namespace: str, driver_image: str = "registry.test/driver:1"
) -> Json:
    gate, account = GATES[name]
    selector = {"app": name, **({_PART_OF: _PARTS[name]} if name in _PARTS else {})}
    labels, container = dict(selector), {"name": "c", "image": f"nvcr.io/nvidia/{gate}:1"}
    spec: Json = {"selector": {"matchLabels": selector}}
    pod: Json = {
        "nodeSelector": {f"nvidia.com/gpu.deploy.{gate}": "true"},
        "serviceAccountName": account,
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        # The operator's template has what ours lacks.
        "volumes": [{"name": "host-root", "hostPath": {"path": "/"}}],
        "containers": [container],
    }
    if name == DRIVER:
        labels |= {_COMPONENT: "nvidia-driver", "nvidia.com/precompiled": "false"}
        container |= {"name": "nvidia-driver-ctr", "image": driver_image}
        spec["updateStrategy"] = {"type": "OnDelete"}
        expression = {"key": _COMPONENT, "operator": "In", "values": ["nvidia-driver"]}
        term = {
            "labelSelector": {"matchExpressions": [expression]},
            "topologyKey": "kubernetes.io/hostname",
        }
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        pod["affinity"] = {"podAntiAffinity": required}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": {"nvidia.com/last-applied-hash": "1234567890"},
            "ownerReferences": [controller(policy)],
        },
        "spec": {**spec, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


def operators_account(name: str, policy: Json, *, namespace: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "ownerReferences": [controller(policy)],
        },
    }


def operators_cluster_role(name: str, policy: Json) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "ownerReferences": [controller(policy)]},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}],
    }


def the_operator(namespace: str, *, replicas: int = 1) -> Json:
    """Return its Deployment, as the chart renders it."""
    labels = {"app": "gpu-operator", _COMPONENT: "gpu-operator"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "gpu-operator",
            "namespace": namespace,
            "labels": {_COMPONENT: "gpu-operator", "app.kubernetes.io/name": "gpu-operator"},
            "annotations": {"meta.helm.sh/release-name": "gpu-operator-17"},
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "gpu-operator", "image": "nvcr.io/nvidia/o:1"}]},
            },
        },
    }
