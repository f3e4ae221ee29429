"""A node that nobody labelled becomes ready by its device alone: detector, label, agent, inventory, readiness."""

import json
import platform
import shutil
import time
from typing import TYPE_CHECKING, Any

from api.names import PRESENT_LABEL
from manifests.constants import DETECTOR_FEATURE_PREFIX, NODE_DETECTOR
from tests.cluster.environment import client, nodes, polling
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
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


async def found(api: "ApiClient", path: str) -> dict[str, Any] | None:
    """Return the object; None where there is none."""
    try:
        return await api.get(path)
    except client.ApiRefusedError as refused:
        if refused.status != 404:
            raise
        return None


async def mount_bus(kubectl: "Kubectl", api: "ApiClient", bus: "Path") -> None:
    """Give the detector this PCI bus; returns when its pod runs with it."""
    volume = {"name": "bus", "hostPath": {"path": str(bus)}}
    mount = {"name": "bus", "mountPath": "/sys/bus/pci", "readOnly": True}
    container = {"name": NODE_DETECTOR, "volumeMounts": [mount]}
    patch = {"spec": {"template": {"spec": {"volumes": [volume], "containers": [container]}}}}

    async def is_there() -> bool:
        return (
            await found(api, f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{NODE_DETECTOR}")
            is not None
        )

    await polling.eventually(is_there, what="DaemonSet of the detector", within=30)
    options = ("-n", NAMESPACE, "patch", "daemonset", NODE_DETECTOR, "--type=strategic")
    await kubectl(*options, "-p", json.dumps(patch))

    async def is_running() -> bool:
        selector = f"app.kubernetes.io/name={NODE_DETECTOR}"
        pods = (await api.get(PODS, labelSelector=selector))["items"]
        return [
            (any(one["name"] == "bus" for one in pod["spec"]["volumes"]), pod["status"]["phase"])
            for pod in pods
        ] == [(True, "Running")]

    await polling.eventually(is_running, what="detector with the test's bus", within=60)


def plug(bus: "Path", devices: "NodeDevices") -> None:
    """Put the node's devices on the bus."""
    for function in (devices.sysfs / "bus" / "pci" / "devices").iterdir():
        made = bus / function.name
        shutil.copytree(function, made)
        made.chmod(0o755)
        # As a whole, as the kernel does.
        made.rename(bus / "devices" / function.name)


async def test_a_bare_node_becomes_ready(
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
        labels: dict[str, str] = (await api.get(f"{nodes.NODES}/{node.name}"))["metadata"]["labels"]
        return labels.get(PRESENT_LABEL)

    await mount_bus(kubectl, api, bus)
    assert await label() is None
    assert await found(api, feature) is None
    assert await found(api, f"{INVENTORIES}/{node.name}") is None

    started = time.monotonic()
    plug(bus, devices)
    await polling.eventually(label, what=f"label {PRESENT_LABEL}", within=READY_WITHIN_S)
    labelled = time.monotonic()

    async def is_ready() -> bool:
        shown = await found(api, f"{INVENTORIES}/{node.name}")
        conditions = ((shown or {}).get("status") or {}).get("conditions", [])
        status = {one["type"]: one["status"] for one in conditions}
        return status.get("ReadyForPooling") == "True"

    await polling.eventually(is_ready, what="node ready for pooling", within=2 * READY_WITHIN_S)
    ready = time.monotonic()
    progress(
        f"a device was plugged in: labelled after {labelled - started:.1f} s,"
        f" ready for pooling after {ready - started:.1f} s"
    )
    assert ready - started <= READY_WITHIN_S
    shown = await found(api, feature)
    assert shown is not None
    count = str(len(devices.devices))
    assert shown["spec"]["labels"]["gpu.deckhouse.io/device-count"] == count

    inventory = await api.get(f"{INVENTORIES}/{node.name}")
    machine = inventory["status"]["system"]
    assert machine["kernel"] == platform.release()
    assert machine["os"] == platform.freedesktop_os_release()["ID"]

    # The detector takes back what it said; the label stays where a GPUDevice is.
    for function in (bus / "devices").iterdir():
        shutil.rmtree(function)

    async def is_taken_back() -> bool:
        return await found(api, feature) is None

    await polling.eventually(is_taken_back, what="no NodeFeature of the detector", within=60)
    assert await label() == "true"
