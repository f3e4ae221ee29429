"""Objects of the demo's chapters about node software: two nodes that differ, a ClusterPolicy, a pool, and a pod."""

from typing import Any, Final

from api.names import API_VERSION, WAIT_FOR_POOLS_ANNOTATION
from demo.fleet import H200, Fleet, MachineSystem, a_device
from kube.resources import CLUSTER_POLICIES
from simulator.node.node_agent import FakeDevice

UBUNTU_NODE: Final = "u1"
RHEL_NODE: Final = "r1"
NODES: Final = (RHEL_NODE, UBUNTU_NODE)
POLICY: Final = "gpus"
POOL: Final = "training"
OLD_VERSION, NEW_VERSION = "580.82.07", "580.95.05"
DEVICES_PER_NODE: Final = 2
_REGISTRY: Final = "registry.example.com/nvidia"

Json = dict[str, Any]


def device_table(node: str) -> list[FakeDevice]:
    return [a_device(H200, node, number) for number in range(DEVICES_PER_NODE)]


FLEET: Final = Fleet(
    nodes=NODES,
    devices_of=device_table,
    namespaces=(),
    # Kernel caches are served in the other cluster.
    has_caches=False,
    systems={
        UBUNTU_NODE: MachineSystem(
            os="ubuntu 22.04", kernel="5.15.0-150-generic", runtime="containerd://2.1.4"
        ),
        RHEL_NODE: MachineSystem(
            os="rhel 9.6", kernel="5.14.0-570.el9.x86_64", runtime="cri-o://1.33.4"
        ),
    },
)


def cluster_policy() -> Json:
    """Return the ClusterPolicy: drivers are upgraded node by node, and pods of the pool end first."""
    upgrade = {"autoUpgrade": True, "maxParallelUpgrades": 1, "podDeletion": {}}
    driver = {"image": "driver", "repository": _REGISTRY, "version": OLD_VERSION}
    return {
        "apiVersion": CLUSTER_POLICIES.api_version,
        "kind": CLUSTER_POLICIES.kind,
        "metadata": {"name": POLICY},
        "spec": {
            "operator": {},
            "daemonsets": {},
            "driver": {
                **driver,
                "manager": _image("k8s-driver-manager:v0.9"),
                "upgradePolicy": upgrade,
            },
            "toolkit": _image("container-toolkit:v1.18"),
            "validator": _image("gpu-operator:v26.7"),
            "devicePlugin": _image("k8s-device-plugin:v0.19"),
            "gfd": _image("k8s-device-plugin:v0.19"),
            "dcgm": {"enabled": False},
            "dcgmExporter": {"enabled": False},
            "migManager": {"enabled": False},
            "nodeStatusExporter": {"enabled": False},
        },
    }


def wait_for_pool() -> Json:
    """Return the change of the policy by which an upgrade waits for pods of the pool."""
    return {"metadata": {"annotations": {WAIT_FOR_POOLS_ANNOTATION: POOL}}}


def new_driver() -> Json:
    return {"spec": {"driver": {"version": NEW_VERSION}}}


def pool() -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUPool",
        "metadata": {"name": POOL},
        "spec": {
            "allocation": {"mode": "Exclusive"},
            "deviceSelector": {"include": {"products": ["NVIDIA-H200"]}},
            "assignment": {"requireAnnotation": False},
        },
    }


def _image(reference: str) -> Json:
    return {"image": f"{_REGISTRY}/{reference}"}
