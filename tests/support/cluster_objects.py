"""Objects of a cluster as `kubectl get -o json` shows them, for the command `simulate`."""

import json
from pathlib import Path
from typing import Any

from api.annotations import encode_devices
from api.names import API_VERSION, DEVICES_ANNOTATION, RESOURCE_PREFIX, UnitId

Object = dict[str, Any]


def a_pool_object(name: str = "whole", **spec: Any) -> Object:
    spec.setdefault("allocation", {"mode": "Exclusive"})
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUPool",
        "metadata": {"name": name, "uid": f"pool-{name}"},
        "spec": spec,
    }


def a_node_object(name: str, *, cpu: str = "64", **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"node-{name}",
            "labels": {"kubernetes.io/hostname": name},
        },
        "spec": spec,
        "status": {
            "allocatable": {"cpu": cpu, "memory": "512Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def a_device_object(node: str, number: int, *, pool: str = "whole", **status: Any) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUDevice",
        "metadata": {"name": f"{node}-{number}", "uid": f"device-{node}-{number}"},
        "status": {
            "nodeName": node,
            "inventoryID": f"{node}-0000:{number + 23:02x}:00.0",
            "uuid": uuid_of(node, number),
            "product": "NVIDIA-H200",
            "memoryMiB": 143771,
            "state": "Assigned",
            "poolRef": {"name": pool},
            **status,
        },
    }


def a_pod_object(
    name: str = "mine", units: int | str = 1, *, pool: str = "whole", cpu: str = "1", **spec: Any
) -> Object:
    limits = {f"{RESOURCE_PREFIX}{pool}": str(units), "cpu": cpu, "memory": "1Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"pod-{name}"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}], **spec},
    }


def a_bound_pod_object(
    name: str, node: str, numbers: "list[int]", *, pool: str = "whole", **spec: Any
) -> Object:
    pod = a_pod_object(name, len(numbers), pool=pool, nodeName=node, **spec)
    units = tuple(UnitId(uuid_of(node, number)) for number in numbers)
    pod["metadata"]["annotations"] = {DEVICES_ANNOTATION: encode_devices({"main": units})}
    pod["status"] = {"phase": "Running"}
    return pod


def uuid_of(node: str, number: int) -> str:
    return f"GPU-{node}-{number}"


def two_nodes(*, devices: int = 4) -> list[Object]:
    """Return a pool of whole devices on the nodes n1 and n2."""
    found = [a_pool_object()]
    for node in ("n1", "n2"):
        found.append(a_node_object(node))
        found += [a_device_object(node, number) for number in range(devices)]
    return found


def a_list_file(path: Path, *items: Object) -> Path:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path
