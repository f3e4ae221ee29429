"""Everything is uninstalled under pods that run in containers, one with a kernel cache mounted, and installed again."""

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from api.driver_upgrade import UPGRADE_REQUESTED_ANNOTATION, UPGRADE_STATE_LABEL
from api.names import AGENT_NOT_READY_TAINT, COMPONENT_LABEL, SCALE_SIGNAL
from cli.uninstall.removal_plan import HOLDER
from manifests.constants import NODE_AGENT
from reconciler.assignment.other_plugin import PLUGINS
from tests.cluster.environment import nodes, pods, polling
from tests.cluster.joints.from_zero import CACHE, POD, FromZero
from tests.cluster.joints.from_zero import a_pod as a_scaled_pod
from tests.cluster.node.caches.caches import Caches, volume_of
from tests.cluster.node.caches.node_oracle import mount_options, mounted_volumes
from tests.cluster.node.environment import paths
from tests.cluster.node.stories.pools import Pools
from tests.cluster.system.installation import CLUSTER_POLICIES, LEASE, NAMESPACE, GpuSystem
from tests.cluster.system.objects import DEVICES
from tests.cluster.uninstall.leavings import until_only
from tests.cluster.uninstall.test_uninstall import uninstall

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.environment.client import ApiClient, JsonObject
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.environment.whole_cluster import WholeCluster
    from tests.cluster.node.environment.real_node import RealNode
    from tests.cluster.node.stories.devices import NodeDevices

WITHIN_S: Final = 90.0
"""Goal of the uninstall."""
SECTIONS: Final[dict[str, Any]] = {
    "driver": {"startupProbe": {"initialDelaySeconds": 1, "periodSeconds": 1}},
    "dcgm": {"enabled": True},
    "nodeStatusExporter": {"enabled": True},
}
STATES: Final = {
    "gpu-feature-discovery",
    *("nvidia-container-toolkit-daemonset", "nvidia-device-plugin-daemonset"),
    *("nvidia-dcgm", "nvidia-dcgm-exporter", "nvidia-driver-daemonset-ubuntu24.04"),
    *("nvidia-mig-manager", "nvidia-node-status-exporter", "nvidia-operator-validator"),
}
"""DaemonSets of a ClusterPolicy for containers."""
TAINT: Final = {"key": "pool.gpu.deckhouse.io/owned", "effect": "NoSchedule"}
READS: Final = "reads"
ALL_FILES: Final = "find /cache -type f | sort | xargs sha256sum"
LEFT: Final = (
    *("apiservices", "customresourcedefinitions", "gpudevices"),
    *("nodeclaims", "nodes"),  # labels that Karpenter wrote, after a NodePool of the user
    "nodefeatures",  # of the double of an agent, which has them in the namespace of NFD
)


async def test_nothing_is_left_and_pods_keep_devices_and_mounts(
    whole: "WholeCluster",
    node: "RealNode",
    devices: "NodeDevices",
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    namespace: str,
    tmp_path: "Path",
    progress: "Callable[[str], None]",
):
    api, kubeconfig = whole.api, control_plane.kubeconfig()
    story = FromZero(
        cluster=whole, namespace=namespace, folder=tmp_path, say=progress, policy=SECTIONS
    )
    await story.play()
    await polling.eventually(lambda: all_states_run(api, node.name), what="pods of all states")
    pools = Pools(api, namespace, node, devices)
    async with asyncio.TaskGroup() as group:
        group.create_task(plugin_leaves_first(api, node.name))
        resource = await pools.make(0, 1, scheduling={"taints": [TAINT]})
    caches = Caches(api, namespace, node)
    volume = volume_of(CACHE, None)
    await check_upgrade(caches, volume)
    reads = await caches.run(caches.a_pod(READS, volume, limits={resource: 1}, nodeName=None))
    files = await caches.sh(READS, ALL_FILES)

    refused = await uninstall(kubeconfig)
    assert refused.returncode == 1
    assert f"2 pods use units of pools: {namespace}/{READS}" in refused.stderr
    assert (
        f"2 pods mount kernel caches, which kubelet cannot unmount without a node agent: {namespace}/{READS}"
        in refused.stderr
    )
    await api.create(pods.collection(namespace), a_scaled_pod(namespace, "pair", units=2))
    await polling.eventually(lambda: signals(api), what="a pod that asks for a node")

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        group.create_task(ends_with_its_lease(whole))
        done = await uninstall(kubeconfig, "--force")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    again = await uninstall(kubeconfig, "--force")
    assert (again.returncode, again.stderr) == (0, ""), again.stdout
    took = time.monotonic() - began
    left = await until_only(api, *LEFT)
    progress(f"uninstall: {took:.1f} s, all objects gone after {time.monotonic() - began:.1f} s")
    progress(f"{done.stdout}{again.stdout}left: {left}")
    assert took < WITHIN_S
    assert node.name not in left["nodes"]
    await check_left(api, node, story.node)
    await check_undisturbed(caches, reads, files)

    # A pod that is deleted now has nobody who unmounts its cache, until a control plane is there again.
    missed = missed_drivers(node)
    await api.delete(f"{pods.collection(namespace)}/{READS}")
    await polling.eventually(
        lambda: missed_drivers(node) > missed, what="kubelet misses the driver"
    )
    assert mount_options(reads["metadata"]["uid"])
    returned = GpuSystem(control_plane, kubectl, prefix="returned-", settings=whole.settings)
    try:
        await returned.install()
        await pods.wait_for_pod_gone(api, namespace, READS, within=240)
        assert mounted_volumes() == []
    finally:
        await returned.uninstall()


async def plugin_leaves_first(api: "ApiClient", node: str) -> None:
    """Check that NVIDIA's device plugin, which could give it to a pod, has left the node of a device that joins a pool."""
    version = (await api.get(DEVICES))["metadata"]["resourceVersion"]
    async for event in api.watch(DEVICES, resourceVersion=version):
        status = event["object"].get("status", {})
        if status.get("nodeName") == node and "poolRef" in status:
            break
    listed = await api.get(pods.collection(NAMESPACE), fieldSelector=f"spec.nodeName={node}")
    apps = {item["metadata"]["labels"].get("app") for item in listed["items"]}
    assert not apps & PLUGINS, f"{apps}"


async def check_upgrade(caches: Caches, volume: "JsonObject") -> None:
    """Load the driver again under a pod that has a cache and no device, and end another one meanwhile.

    The first keeps its cache; the second stays until there is an agent again, which unmounts it.
    """
    api, node = caches.api, caches.node
    for name in ("stays", "ends"):
        await caches.run(caches.a_pod(name, volume))
    files, path = await caches.sh("stays", ALL_FILES), f"{nodes.NODES}/{node.name}"
    missed, requested = missed_drivers(node), {UPGRADE_REQUESTED_ANNOTATION: "true"}
    await api.patch(path, {"metadata": {"annotations": requested}})

    async def agents() -> list[str]:
        selector = f"spec.nodeName={node.name}"
        listed = await api.get(pods.collection(NAMESPACE), fieldSelector=selector)
        names = (item["metadata"]["name"] for item in listed["items"])
        return [name for name in names if name.startswith(NODE_AGENT)]

    async def is_away() -> bool:
        return not await agents()

    await polling.eventually(is_away, what="the agent has left")
    await api.delete(f"{pods.collection(caches.namespace)}/ends")
    await polling.eventually(
        lambda: missed_drivers(node) > missed, what="kubelet misses the driver"
    )
    await pods.wait_for_pod_gone(api, caches.namespace, "ends", within=240)
    assert await agents()

    async def is_done() -> bool:
        found = (await api.get(path))["metadata"]
        assert UPGRADE_REQUESTED_ANNOTATION not in found["annotations"], f"{found}"
        return bool(found["labels"][UPGRADE_STATE_LABEL] == "upgrade-done")

    await polling.eventually(is_done, what="the driver is loaded again", within=240)
    assert await caches.sh("stays", ALL_FILES) == files
    await caches.end("stays")


async def ends_with_its_lease(whole: "WholeCluster") -> None:
    """End the server, a process beside the cluster, when its Deployment would be scaled to 0."""

    async def is_held() -> bool:
        return bool((await whole.api.get(LEASE))["spec"]["holderIdentity"] == HOLDER)

    await polling.eventually(is_held, what="the uninstall has the Lease")
    await whole.system.server.terminate()


async def all_states_run(api: "ApiClient", node: str) -> bool:
    """Check that each state of the policy has a pod on the node that is ready."""
    listed = await api.get(pods.collection(NAMESPACE), fieldSelector=f"spec.nodeName={node}")
    ready = {
        owner["name"]: condition["status"] == "True"
        for pod in listed["items"]
        for owner in pod["metadata"].get("ownerReferences") or ()
        for condition in pod["status"].get("conditions") or ()
        if condition["type"] == "Ready"
    }
    assert {name for name, is_ready in ready.items() if is_ready} >= STATES, f"{ready}"
    return True


async def signals(api: "ApiClient") -> bool:
    selector = f"{COMPONENT_LABEL}={SCALE_SIGNAL}"
    return bool((await api.get("/api/v1/pods", labelSelector=selector))["items"])


async def check_left(api: "ApiClient", node: "RealNode", scaled: str) -> None:
    """Check what nodes, their files and the ClusterPolicy have of ours."""
    assert not await signals(api)
    assert not await api.find(f"/api/v1/namespaces/{NAMESPACE}")
    (policy,) = (await api.get(CLUSTER_POLICIES))["items"]
    assert not policy["metadata"].get("finalizers")
    for name in (node.name, scaled):
        found = await api.get(f"{nodes.NODES}/{name}")
        assert not [key for key in found["metadata"]["labels"] if "nvidia.com/gpu.deploy" in key]
        keys = {taint["key"] for taint in found["spec"].get("taints", ())}
        assert not keys & {AGENT_NOT_READY_TAINT, TAINT["key"]}
    assert [file.name for file in paths.DEVICE_PLUGINS.glob("*.sock")] == ["kubelet.sock"]
    assert not list((paths.KUBELET_ROOT / "plugins_registry").iterdir())


async def check_undisturbed(caches: Caches, before: dict[str, Any], files: str) -> None:
    """Check that both pods run on, and one of them reads its cache."""
    for name in (READS, POD):
        assert pods.is_running(await caches.running(name))
    after = await caches.running(READS)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [item["restartCount"] for item in after["status"]["containerStatuses"]] == [0]
    assert await caches.sh(READS, ALL_FILES) == files
    (options,) = mount_options(after["metadata"]["uid"])
    assert options >= {"ro", "nosuid", "nodev"}


def missed_drivers(node: "RealNode") -> int:
    """Return how often kubelet could not unmount a cache for want of its driver."""
    return node.kubelet.logs().count(
        "driver name csi.gkm.io not found in the list of registered CSI drivers"
    )
