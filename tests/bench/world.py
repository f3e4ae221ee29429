"""The clusters that are measured: so many nodes of eight devices, pools, bound pods; seeded."""

import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from api import names
from api.annotations import encode_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 20261121
DEVICES = 8
WHOLE = "whole"
SLICES = "slices"


MEMBERS: Final = "members"
MEMBERS_POOL: Final[dict[str, Any]] = {
    "apiVersion": names.API_VERSION,
    "kind": "GPUPool",
    "metadata": {"name": MEMBERS},
    "spec": {"access": {"groups": ["researchers"]}},
}
"""A pool that is open to a group, without a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A cluster: the pool `whole` of whole devices on every other node, or on all where it is alone;
    the other pools, `slices` first, are of time slices and share the rest.
    """

    nodes: int
    pods: int = 0
    slices: int = 4
    pool_count: int = 2

    def pool_of(self, node: int) -> str:
        """Return the pool that a node's devices are in."""
        if self.pool_count == 1 or node % 2 == 0:
            return WHOLE
        number = node // 2 % (self.pool_count - 1)
        return SLICES if number == 0 else f"{SLICES}-{number:02d}"

    def whole_nodes(self) -> list[str]:
        """Return the nodes of the pool of whole devices."""
        return [node_name(item) for item in range(self.nodes) if self.pool_of(item) == WHOLE]

    def units(self) -> int:
        """Return how many units all pools have."""
        return sum(
            DEVICES * (1 if self.pool_of(node) == WHOLE else self.slices)
            for node in range(self.nodes)
        )

    def pools(self) -> list[dict[str, Any]]:
        """Return every pool, those without a node as well."""
        others = [SLICES, *(f"{SLICES}-{number:02d}" for number in range(1, self.pool_count - 1))]
        cut = {"mode": "TimeSlice", "slicesPerDevice": self.slices}
        return [
            {
                "apiVersion": names.API_VERSION,
                "kind": "GPUPool",
                "metadata": {"name": name},
                "spec": {"allocation": {"mode": "Exclusive"} if name == WHOLE else cut},
            }
            for name in (WHOLE, *(others if self.pool_count > 1 else ()))
        ]

    def node_objects(self) -> "Iterator[dict[str, Any]]":
        """Yield the Nodes."""
        for number in range(self.nodes):
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": node_name(number),
                    "uid": f"node-{number}",
                    "labels": {
                        "kubernetes.io/hostname": node_name(number),
                        "topology.kubernetes.io/zone": f"zone-{number % 3}",
                        f"pool.gpu.deckhouse.io/{self.pool_of(number)}": "",
                    },
                },
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }

    def devices(self) -> "Iterator[dict[str, Any]]":
        """Yield the GPUDevices, with the units that the bound pods have."""
        taken = Counter((node, device) for node, device, _ in self._seats())
        for number in range(self.nodes):
            for device in range(DEVICES):
                yield {
                    "apiVersion": names.API_VERSION,
                    "kind": "GPUDevice",
                    "metadata": {
                        "name": f"{node_name(number)}-{device}",
                        "uid": f"device-{number}-{device}",
                        "annotations": {names.ASSIGNMENT_ANNOTATION: self.pool_of(number)},
                    },
                    "status": {
                        "nodeName": node_name(number),
                        "inventoryID": f"{node_name(number)}-0000:{device + 23:02x}:00.0",
                        "uuid": uuid_of(number, device),
                        "product": "NVIDIA-H200",
                        "memoryMiB": 143771,
                        "computeCapability": "9.0",
                        "pci": {"vendor": "10de", "device": "2335", "class": "0302"},
                        "state": "Assigned",
                        "poolRef": {"name": self.pool_of(number)},
                        "units": {
                            "capacity": 1 if self.pool_of(number) == WHOLE else self.slices,
                            "reserved": 0,
                            "allocated": taken[number, device],
                        },
                    },
                }

    def _seats(self) -> list[tuple[int, int, int]]:
        """Return node, device and slice of every bound pod; at most three quarters of all."""
        rng = random.Random(SEED)
        seats = [
            (node, device, turn)
            for node in range(self.nodes)
            for device in range(DEVICES)
            for turn in ((0,) if self.pool_of(node) == WHOLE else range(self.slices))
        ]
        rng.shuffle(seats)
        if self.pods > len(seats) * 3 // 4:
            raise ValueError(f"{self.pods} pods do not fit three quarters of {len(seats)} units")
        return seats[: self.pods]

    def bound_pods(self) -> "Iterator[dict[str, Any]]":
        """Yield pods that hold one unit each, spread by seed."""
        for number, (node, device, turn) in enumerate(self._seats()):
            pool = self.pool_of(node)
            unit = uuid_of(node, device) if pool == WHOLE else f"{uuid_of(node, device)}::{turn}"
            pod = a_pod(f"bound-{number}", pool, 1)
            pod["metadata"]["uid"] = f"pod-{number}"
            pod["metadata"]["annotations"] = {
                names.DEVICES_ANNOTATION: encode_devices({"main": (names.UnitId(unit),)})
            }
            pod["spec"]["nodeName"] = node_name(node)
            pod["status"] = {"phase": "Running"}
            yield pod


def node_name(number: int) -> str:
    return f"gpu-node-{number:05d}.zone-{number % 3}.example.internal"


def uuid_of(node: int, device: int) -> str:
    return f"GPU-{node:08x}-{device:04x}-4a5b-9c8d-0123456789ab"


def review(pod: dict[str, Any], uid: str) -> dict[str, Any]:
    """Return the AdmissionReview of a pod's creation; `uid` is the request's."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": pod["metadata"]["name"],
            "namespace": "ml-team",
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller",
                "groups": ["system:serviceaccounts", "system:authenticated"],
            },
            "object": pod,
            "oldObject": None,
            "dryRun": False,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        },
    }


def template_review(uid: str) -> dict[str, Any]:
    """Return the AdmissionReview of a Deployment in `MEMBERS_POOL`, by a member of its group."""
    pod = a_pod("deployment", MEMBERS, 1)
    found = review(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "train", "namespace": "ml-team"},
            "spec": {
                "replicas": 1,
                "template": {
                    "metadata": {"labels": pod["metadata"]["labels"]},
                    "spec": pod["spec"],
                },
            },
        },
        uid,
    )
    found["request"] |= {
        "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
        "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
        "userInfo": {"username": "alice", "groups": ["researchers", "system:authenticated"]},
    }
    return found


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
                            f"{names.RESOURCE_PREFIX}{pool}": str(units),
                        },
                        "requests": {
                            "cpu": "8",
                            "memory": "64Gi",
                            f"{names.RESOURCE_PREFIX}{pool}": str(units),
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
