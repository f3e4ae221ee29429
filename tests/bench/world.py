"""The clusters that are measured: so many nodes of eight cards, pools, bound pods; seeded."""

import random
from typing import TYPE_CHECKING, Any

from api.annotations import encode_devices
from api.names import API_VERSION, DEVICES_ANNOTATION, RESOURCE_PREFIX, UnitId

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 20261121
CARDS = 8


def node_name(number: int) -> str:
    return f"gpu-node-{number:05d}.zone-{number % 3}.example.internal"


def pools(slices: int = 4) -> list[dict[str, Any]]:
    """A pool of whole cards on even nodes and one of time slices on odd ones."""
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "GPUPool",
            "metadata": {"name": "whole"},
            "spec": {"allocation": {"mode": "Exclusive"}},
        },
        {
            "apiVersion": API_VERSION,
            "kind": "GPUPool",
            "metadata": {"name": "slices"},
            "spec": {"allocation": {"mode": "TimeSlice", "slicesPerDevice": slices}},
        },
    ]


def nodes(count: int) -> "Iterator[dict[str, Any]]":
    for number in range(count):
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": node_name(number),
                "uid": f"node-{number}",
                "labels": {
                    "kubernetes.io/hostname": node_name(number),
                    "topology.kubernetes.io/zone": f"zone-{number % 3}",
                    f"pool.gpu.deckhouse.io/{'slices' if number % 2 else 'whole'}": "",
                },
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }


def devices(count: int) -> "Iterator[dict[str, Any]]":
    for number in range(count):
        for card in range(CARDS):
            yield {
                "apiVersion": API_VERSION,
                "kind": "GPUDevice",
                "metadata": {
                    "name": f"{node_name(number)}-{card}",
                    "uid": f"device-{number}-{card}",
                },
                "status": {
                    "nodeName": node_name(number),
                    "inventoryID": f"{node_name(number)}-0000:{card + 23:02x}:00.0",
                    "uuid": uuid_of(number, card),
                    "product": "NVIDIA-H200",
                    "memoryMiB": 143771,
                    "computeCapability": "9.0",
                    "pci": {"vendor": "10de", "device": "2335", "class": "0302"},
                    "state": "Assigned",
                    "poolRef": {"name": "slices" if number % 2 else "whole"},
                },
            }


def uuid_of(node: int, card: int) -> str:
    return f"GPU-{node:08x}-{card:04x}-4a5b-9c8d-0123456789ab"


def bound_pods(count: int, node_count: int, slices: int = 4) -> "Iterator[dict[str, Any]]":
    """Pods that hold one unit each, spread by seed; at most three quarters of a node's units."""
    rng = random.Random(SEED)
    seats = [
        (node, card, turn)
        for node in range(node_count)
        for card in range(CARDS)
        for turn in (range(slices) if node % 2 else (0,))
    ]
    rng.shuffle(seats)
    if count > len(seats) * 3 // 4:
        raise ValueError(f"{count} pods do not fit three quarters of {len(seats)} units")
    for number, (node, card, turn) in enumerate(seats[:count]):
        unit = f"{uuid_of(node, card)}::{turn}" if node % 2 else uuid_of(node, card)
        pool = "slices" if node % 2 else "whole"
        pod = a_pod(f"bound-{number}", pool, 1)
        pod["metadata"]["uid"] = f"pod-{number}"
        pod["metadata"]["annotations"] = {
            DEVICES_ANNOTATION: encode_devices({"main": (UnitId(unit),)})
        }
        pod["spec"]["nodeName"] = node_name(node)
        pod["status"] = {"phase": "Running"}
        yield pod


def a_pod(name: str, pool: str, units: int) -> dict[str, Any]:
    """A pod as a user's controller creates it: some labels, environment, volumes."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ml-team",
            "labels": {"app": "trainer", "team": "vision", "pod-template-hash": "7c9d8f6b5"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "trainer", "uid": "rs-1"}
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry/trainer:1.2.3",
                    "command": ["python", "-m", "train"],
                    "env": [{"name": f"SETTING_{n}", "value": f"value-{n}" * 3} for n in range(10)],
                    "resources": {
                        "limits": {
                            "cpu": "8",
                            "memory": "64Gi",
                            f"{RESOURCE_PREFIX}{pool}": str(units),
                        },
                        "requests": {
                            "cpu": "8",
                            "memory": "64Gi",
                            f"{RESOURCE_PREFIX}{pool}": str(units),
                        },
                    },
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "schedulerName": "default-scheduler",
            "serviceAccountName": "trainer",
            "tolerations": [
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
                {
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
            ],
        },
        "status": {"phase": "Pending"},
    }
