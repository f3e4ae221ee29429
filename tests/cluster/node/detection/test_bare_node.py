"""A new node becomes ready by its devices alone: detector, label, agent, validator, inventory, readiness."""

import json
import platform
import shutil
import time
from typing import TYPE_CHECKING, Any

from api.names import PRESENT_LABEL
from manifests.constants import DETECTOR_FEATURE_PREFIX, NODE_DETECTOR
from tests.cluster.environment import client, nodes, pods, polling
from tests.cluster.system.installation import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.environment.real_node import RealNode
    from tests.cluster.node.stories.devices import NodeDevices
    from tests.cluster.system.installation import GpuSystem

READY_WITHIN_S = 60
INVENTORIES = "/apis/gpu.deckhouse.io/v1alpha1/gpunodeinventories"
FEATURES = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"
DEVICES = "/apis/gpu.deckhouse.io/v1alpha1/gpudevices"


async def found(api: "ApiClient", path: str) -> dict[str, Any] | None:
    """Return the object; None where there is none."""
    try:
        return await api.get(path)
    except client.ApiRefusedError as refused:
        if refused.status != 404:
            raise
        return None


async def mount_bus(kubectl: "Kubectl", api: "ApiClient", bus: "Path") -> None:
    """Give the detector this PCI bus."""
    volume = {"name": "bus", "hostPath": {"path": str(bus)}}
    mount = {"name": "bus", "mountPath": "/sys/bus/pci", "readOnly": True}
    container = {"name": NODE_DETECTOR, "volumeMounts": [mount]}
    patch = {"spec": {"template": {"spec": {"volumes": [volume], "containers": [container]}}}}

    async def is_there() -> bool:
        return (
            await found(api, f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{NODE_DETECTOR}")
            is not None
        )

    await polling.eventually(is_there, what="DaemonSet of the detector")
    options = ("-n", NAMESPACE, "patch", "daemonset", NODE_DETECTOR, "--type=strategic")
    await kubectl(*options, "-p", json.dumps(patch))


async def forget_node(node: "RealNode", api: "ApiClient") -> None:
    """Stop kubelet, and delete the Node with its pods: at its next start kubelet registers a new one."""
    await node.kubelet.stop()
    await api.delete(f"{nodes.NODES}/{node.name}")
    selector = f"spec.nodeName={node.name}"
    for pod in (await api.get("/api/v1/pods", fieldSelector=selector))["items"]:
        path = f"{pods.collection(pod['metadata']['namespace'])}/{pod['metadata']['name']}"
        await api.delete(path, options={"gracePeriodSeconds": 0})

    async def is_forgotten() -> bool:
        assert not await found(api, f"{INVENTORIES}/{node.name}")
        assert not (await api.get(DEVICES))["items"]
        return not (await api.get("/api/v1/pods", fieldSelector=selector))["items"]

    await polling.eventually(is_forgotten, what="nothing is known of the node")


def plug(bus: "Path", devices: "NodeDevices") -> None:
    """Put the node's devices on the bus."""
    for function in (devices.sysfs / "bus" / "pci" / "devices").iterdir():
        made = bus / function.name
        shutil.copytree(function, made)
        made.chmod(0o755)
        # As a whole, as the kernel does.
        made.rename(bus / "devices" / function.name)


async def test_a_new_node_becomes_ready(
    system: "GpuSystem",
    node: "RealNode",
    devices: "NodeDevices",
    bus: "Path",
    api: "ApiClient",
    kubectl: "Kubectl",
    progress: "Callable[[str], None]",
):
    feature = f"{FEATURES}/{DETECTOR_FEATURE_PREFIX}{node.name}"

    async def label() -> str | None:
        current = await found(api, f"{nodes.NODES}/{node.name}")
        labels: dict[str, str] = (current or {"metadata": {"labels": {}}})["metadata"]["labels"]
        return labels.get(PRESENT_LABEL)

    await mount_bus(kubectl, api, bus)
    await forget_node(node, api)
    assert await found(api, feature) is None
    plug(bus, devices)

    started = time.monotonic()
    await node.kubelet.start()
    await node.wait_ready()
    registered = time.monotonic()
    await polling.eventually(label, what=f"label {PRESENT_LABEL}", within=READY_WITHIN_S)
    labelled = time.monotonic()

    async def is_ready() -> bool:
        current = await found(api, f"{INVENTORIES}/{node.name}")
        conditions = ((current or {}).get("status") or {}).get("conditions", [])
        status = {condition["type"]: condition["status"] for condition in conditions}
        return status.get("ReadyForPooling") == "True"

    await polling.eventually(is_ready, what="node ready for pooling", within=2 * READY_WITHIN_S)
    ready = time.monotonic()
    progress(
        f"kubelet was started on a new node: Ready after {registered - started:.1f} s, labelled after"
        f" {labelled - started:.1f} s, ready for pooling after {ready - started:.1f} s"
    )
    assert ready - started <= READY_WITHIN_S
    current = await found(api, feature)
    assert current is not None
    count = str(len(devices.devices))
    assert current["spec"]["labels"]["gpu.deckhouse.io/device-count"] == count

    inventory = await api.get(f"{INVENTORIES}/{node.name}")
    machine = inventory["status"]["system"]
    assert machine["kernel"] == platform.release()
    assert machine["os"] == platform.freedesktop_os_release()["ID"]

    async def is_validated() -> bool:
        status = (await api.get(f"{INVENTORIES}/{node.name}"))["status"]
        operands = {operand["name"]: operand.get("ready") for operand in status["operands"]}
        return operands == {"validator": True}

    await polling.eventually(is_validated, what="the validator has passed", within=READY_WITHIN_S)

    # The detector takes back what it said; the label stays where a GPUDevice is.
    for function in (bus / "devices").iterdir():
        shutil.rmtree(function)

    async def is_taken_back() -> bool:
        return await found(api, feature) is None

    await polling.eventually(is_taken_back, what="no NodeFeature of the detector")
    assert await label() == "true"
