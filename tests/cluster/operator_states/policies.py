"""The ClusterPolicy of the tests on the real control plane: its spec, its objects, and waits for its status."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from api.names import OPERAND_LABEL
from operands.nvidia.policy_states import STATE_NAMES
from reconciler.node_software.objects import RESOURCES
from reconciler.node_software.policy_controller import MOST_REFUSED_S
from tests.cluster.environment import client, polling
from tests.cluster.environment.client import ApiClient
from tests.cluster.operator_states.conftest import DAEMON_SETS, PODS
from tests.cluster.system.installation import CLUSTER_POLICIES, NAMESPACE

Json = dict[str, Any]

POLICY, POOL = "gpu-cluster-policy", "closed"
REVISIONS = f"/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"
SPEC: Json = {
    "operator": {},
    "daemonsets": {},
    "driver": {"enabled": True, "upgradePolicy": {"autoUpgrade": False}},
    "toolkit": {"enabled": True},
    "devicePlugin": {"enabled": True},
    "dcgmExporter": {"enabled": True, "serviceMonitor": {"enabled": True}},
    "dcgm": {"enabled": True},
    "nodeStatusExporter": {"enabled": True},
    "gfd": {"enabled": True},
    "migManager": {"enabled": True},
    "sandboxWorkloads": {"enabled": True},
    "vgpuManager": {"enabled": True},
    "vgpuDeviceManager": {"enabled": True},
    "vfioManager": {"enabled": True},
    "sandboxDevicePlugin": {"enabled": True},
    "kataSandboxDevicePlugin": {"enabled": True},
    "ccManager": {"enabled": True},
}
OF_KATA = {"state-kata-device-plugin": "nvidia-kata-sandbox-device-plugin-daemonset"}
OF_KATA |= {"state-cc-manager": "nvidia-cc-manager"}
"""States and DaemonSets of virtual machines of Kata Containers, which the policy does not choose."""
STATES = {*STATE_NAMES} - OF_KATA.keys() - {"state-kata-manager"}
EVERYWHERE = frozenset(
    {
        "gpu-feature-discovery",
        "nvidia-container-toolkit-daemonset",
        "nvidia-container-toolkit-daemonset-cri-o",
        "nvidia-dcgm",
        "nvidia-dcgm-exporter",
        "nvidia-device-plugin-daemonset",
        "nvidia-device-plugin-mps-control-daemon",
        "nvidia-mig-manager",
        "nvidia-node-status-exporter",
        "nvidia-operator-validator",
        "nvidia-sandbox-device-plugin-daemonset",
        "nvidia-sandbox-validator",
        "nvidia-vfio-manager",
        "nvidia-vgpu-device-manager",
    }
)
"""DaemonSets beside the driver's and the vGPU manager's."""
DISABLED_IN_SAMPLE = {
    "state-node-status-exporter",
    "state-vgpu-manager",
    "state-vgpu-device-manager",
    "state-sandbox-validation",
    "state-vfio-manager",
    "state-sandbox-device-plugin",
    "state-kata-device-plugin",
    "state-kata-manager",
    "state-cc-manager",
}


def a_policy(name: str = POLICY, **spec: Any) -> Json:
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": SPEC | spec,
    }


def a_pool(taints: list[Json]) -> Json:
    return {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": POOL},
        "spec": {"scheduling": {"taints": taints}},
    }


def a_daemon_set(name: str) -> Json:
    """A DaemonSet of another client, which no node runs."""
    labels = {"app": "foreign"}
    pod = {
        "nodeSelector": {"test.example.com/none": "true"},
        "containers": [{"name": "c", "image": "registry.test/foreign:1"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


async def objects(api: ApiClient, state: str = "") -> dict[tuple[str, str], Json]:
    """Return the objects with the label of a state by plural and name."""
    selector = f"{OPERAND_LABEL}={state}" if state else OPERAND_LABEL
    found = {}
    for resource in RESOURCES.values():
        path = resource.path(NAMESPACE if resource.namespaced else None)
        listed = await api.find(path)  # 404: a kind that is not served
        if listed:
            listed = await api.get(path, labelSelector=selector)
        for item in listed.get("items", ()):
            found[resource.plural, item["metadata"]["name"]] = item
    return found


async def daemon_sets(api: ApiClient) -> dict[str, Json]:
    listed = await api.get(DAEMON_SETS, labelSelector=OPERAND_LABEL)
    return {item["metadata"]["name"]: item for item in listed["items"]}


def driver_systems(found: Iterable[Json], state: str = "state-driver") -> Counter[str]:
    """Return the systems that the DaemonSets of drivers, or of vGPU managers, select."""
    return Counter(
        item["spec"]["template"]["spec"]["nodeSelector"]["gpu.deckhouse.io/node-os"]
        for item in found
        if item["metadata"]["labels"][OPERAND_LABEL] == state
    )


def version(item: Json) -> tuple[str, int]:
    return item["metadata"]["uid"], item["metadata"]["generation"]


async def state(api: ApiClient, name: str, path: str = f"{CLUSTER_POLICIES}/{POLICY}") -> Json:
    states = (await api.status(path)).get("states", [])
    return next((dict(item) for item in states if item["name"] == name), {})


async def until_state(
    api: ApiClient,
    name: str,
    readiness: str,
    reason: str,
    path: str = f"{CLUSTER_POLICIES}/{POLICY}",
) -> Json:
    async def is_so() -> Json:
        found = await state(api, name, path)
        assert (found.get("state"), found.get("reason")) == (readiness, reason), f"{found}"
        return found

    return await polling.eventually(is_so, what=f"{name} {readiness}")


async def until_ready(api: ApiClient, path: str = f"{CLUSTER_POLICIES}/{POLICY}") -> Json:
    """Return the status once it is that of the present generation, and Ready."""

    async def is_ready() -> Json:
        found = await api.get(path)
        status: Json = found.get("status", {})
        current = {item["type"]: item for item in status.get("conditions", ())}
        ready, error = current.get("Ready", {}), current.get("Error", {})
        assert ready.get("observedGeneration") == found["metadata"]["generation"], f"{current}"
        assert (ready["status"], ready["reason"]) == ("True", "Reconciled"), f"{current}"
        assert (error["status"], error["reason"]) == ("False", "Ready"), f"{current}"
        assert status["state"] == "ready"
        return status

    # A definition on its way out refuses objects, and the server pauses for so long then.
    within = polling.PATIENCE_S + MOST_REFUSED_S
    return await polling.eventually(is_ready, what=f"{path} is Ready", within=within)


async def put(api: ApiClient, spec: Json) -> None:
    """Make the policy's spec this one, with the defaults of its definition."""
    found = await api.find(f"{CLUSTER_POLICIES}/{POLICY}")
    if not found:
        await api.create(CLUSTER_POLICIES, a_policy() | {"spec": spec})
        return

    async def is_put() -> bool:
        body = await api.get(f"{CLUSTER_POLICIES}/{POLICY}") | {"spec": spec}
        try:
            await api.replace(f"{CLUSTER_POLICIES}/{POLICY}", body)
        except client.ApiRefusedError as refused:
            if refused.status != 409:
                raise
            return False
        return True

    await polling.eventually(is_put, what="the spec")


async def driver_pods(api: ApiClient) -> dict[str, str]:
    """Return node -> name of the driver's pod."""
    found = {}
    for item in (await api.get(PODS))["items"]:
        owner = item["metadata"]["ownerReferences"][0]["name"]
        if owner.startswith("nvidia-driver-daemonset"):
            found[item["spec"]["nodeName"]] = item["metadata"]["name"]
    return found
