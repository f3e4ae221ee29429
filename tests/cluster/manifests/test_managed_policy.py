"""Fields that the control plane alone writes are refused to others, with what to do; all else is left alone."""

import contextlib
import secrets

import pytest

from api import names
from manifests import constants
from manifests.install.managed_policy import build_managed_policy
from tests.cluster.environment import client, polling
from tests.cluster.manifests import objects
from tests.cluster.manifests.conftest import created, is_refused
from tests.cluster.system.objects import a_device

GROUP = "/apis/gpu.deckhouse.io/v1alpha1"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
MASTERS = "system:masters"
KARPENTER = constants.service_account_username("kube-system", "karpenter")
POOL_LABEL = names.pool_node_label(names.PoolName("train"))
OURS = {"key": "example.test/pool", "effect": "NoSchedule"}
FOREIGN = {"key": "example.test/foreign", "effect": "NoSchedule"}
STARTUP = {"key": names.AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}
REFUSED = "only the GPU control plane writes"


@pytest.fixture
async def log_in(control_plane, api, pools):
    """`await log_in(user, *groups)`: a client with all rights of RBAC, under the policy."""
    async with contextlib.AsyncExitStack() as stack:
        for part in build_managed_policy([objects.ENGINE], namespace=constants.DEFAULT_NAMESPACE):
            await stack.enter_async_context(created(api, part))

        async def log_in(user: str, *groups: str) -> client.ApiClient:
            kubeconfig = control_plane.kubeconfig(user, groups=(*groups, MASTERS))
            return await stack.enter_async_context(client.open_client(kubeconfig))

        probe = await log_in("probe")
        node = {"metadata": {"name": "probe", "labels": {POOL_LABEL: ""}}}

        async def is_enforced() -> bool:
            try:
                await probe.create("/api/v1/nodes", node, dryRun="All")
            except client.ApiRefusedError as refused:
                return REFUSED in refused.message
            return False

        await polling.eventually(is_enforced, what="the policy in force")
        yield log_in


@pytest.fixture
async def admin(log_in):
    return await log_in("an-admin")


@pytest.fixture
async def gpus(api, pools):
    """Paths of a pool and a device, as the controllers leave them."""
    pool = objects.a_pool("train")
    pool["metadata"]["finalizers"] = [names.POOL_FINALIZER]
    await api.create(pools, pool)
    device = a_device(f"node-{secrets.token_hex(3)}", 0, "train")
    device["metadata"].setdefault("labels", {})[names.DEVICE_NODE_LABEL] = "digest"
    path = f"{GROUP}/gpudevices/{device['metadata']['name']}"
    await api.create(f"{GROUP}/gpudevices", device)
    await api.patch(f"{path}/status", {"status": device["status"]})
    status = {"phase": "Ready", "allocation": {"mode": "Exclusive"}, "capacity": {"total": 4}}
    await api.patch(f"{pools}/train/status", {"status": status})
    yield {"pool": f"{pools}/train", "device": path}
    await api.patch(f"{pools}/train", {"metadata": {"finalizers": None}})
    await api.delete(path)


@pytest.fixture
async def node(api):
    name = f"node-{secrets.token_hex(3)}"
    path = f"/api/v1/nodes/{name}"
    marks = {"labels": {POOL_LABEL: ""}}
    places = {names.POOL_TAINTS_ANNOTATION: f"{OURS['key']}:{OURS['effect']}"}
    metadata = {"name": name, **marks, "annotations": places}
    await api.create("/api/v1/nodes", {"metadata": metadata, "spec": {"taints": [OURS, STARTUP]}})
    yield path
    await api.delete(path)


async def test_api_server_finds_no_fault_with_the_expressions(log_in, api):
    async def checked():
        found = await api.get(f"{POLICIES}/{constants.MANAGED_POLICY}")
        return found.get("status", {}).get("observedGeneration") and found

    found = await polling.eventually(checked, what="type check of the policy")
    assert found["status"]["typeChecking"].get("expressionWarnings", []) == []


async def test_status_and_finalizers_of_our_kinds_are_refused(admin, api, log_in, gpus):
    edits = (
        ("device", {"state": "Faulted"}),
        ("device", {"uuid": "GPU-other"}),
        ("device", {"poolRef": {"name": "other"}}),
        ("pool", {"capacity": {"total": 8}}),
        ("pool", {"allocation": {"mode": "TimeSlice", "slicesPerDevice": 4}}),
        ("pool", {"allocation": None}),
    )
    for key, status in edits:
        with is_refused(f"{REFUSED} the status of gpu{key}s: it follows from spec"):
            await admin.patch(f"{gpus[key]}/status", {"status": status})
    with is_refused(f"{REFUSED} finalizers gpu.deckhouse.io/*"):
        await admin.patch(gpus["pool"], {"metadata": {"finalizers": None}})
    with is_refused(f"{REFUSED} {names.DEVICE_NODE_LABEL} of"):
        await admin.patch(
            gpus["device"], {"metadata": {"labels": {names.DEVICE_NODE_LABEL: "other"}}}
        )
    for user, groups in (
        (objects.ENGINE, ()),
        ("an-admin", (constants.BREAK_GLASS_GROUP,)),
    ):
        writer = await log_in(user, *groups)
        for key, status in edits[:5:4]:
            await writer.patch(f"{gpus[key]}/status", {"status": status})


async def test_nobody_else_says_who_leads(admin, api):
    path = f"{GROUP}/gpucontrolplaneterms"
    name = constants.LEASE_NAME
    kind = {"apiVersion": names.API_VERSION, "kind": "GPUControlPlaneTerm"}
    await api.create(
        path, {**kind, "metadata": {"name": name}, "spec": {"holder": "a", "number": 1}}
    )
    with is_refused(f"{REFUSED} its term of leadership"):
        await admin.patch(f"{path}/{name}", {"spec": {"holder": "b", "number": 2}})
    await api.delete(f"{path}/{name}")


@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_our_keys_of_nodes_are_refused(subresource, admin, node):
    other = names.pool_node_label(names.PoolName("other"))
    for change, key in (
        ({"labels": {POOL_LABEL: None}}, POOL_LABEL),
        ({"labels": {POOL_LABEL: "x"}}, POOL_LABEL),
        ({"labels": {other: ""}}, other),
        ({"labels": {names.REBOOT_LABEL: "true"}}, names.REBOOT_LABEL),
        ({"annotations": {names.POOL_TAINTS_ANNOTATION: None}}, names.POOL_TAINTS_ANNOTATION),
    ):
        with is_refused(f"{REFUSED} {key} of "):
            await admin.patch(f"{node}{subresource}", {"metadata": change})


async def test_our_taints_of_nodes_are_refused(admin, node):
    for taints, key in (
        ([OURS], STARTUP["key"]),
        ([STARTUP], OURS["key"]),
        ([{**OURS, "value": "x"}, STARTUP], OURS["key"]),
    ):
        with is_refused(f"{REFUSED} taint {key}:NoSchedule"):
            await admin.patch(node, {"spec": {"taints": taints}})


async def test_what_belongs_to_others_is_left_alone(admin, node, gpus):
    labels = {names.PRESENT_LABEL: "false", names.MANAGED_LABEL: "false", "foreign": "x"}
    spec = {"unschedulable": True, "taints": [OURS, STARTUP, FOREIGN]}
    await admin.patch(node, {"metadata": {"labels": labels}, "spec": spec})
    status = {"metadata": {"labels": {"foreign": None}}, "status": {"capacity": {"cpu": "4"}}}
    await admin.patch(f"{node}/status", status)
    await admin.patch(
        gpus["pool"], {"spec": {"repair": "Idle"}, "metadata": {"labels": {"a": "b"}}}
    )
    await admin.patch(
        gpus["pool"], {"metadata": {"finalizers": [names.POOL_FINALIZER, "x.test/y"]}}
    )
    await admin.patch(gpus["pool"], {"metadata": {"finalizers": [names.POOL_FINALIZER]}})
    approved = {"annotations": {names.ASSIGNMENT_ANNOTATION: "train"}}
    await admin.patch(gpus["device"], {"metadata": approved})


async def test_kubelet_and_karpenter_register_nodes_with_our_labels_and_startup_taint(log_in, api):
    name = f"node-{secrets.token_hex(3)}"
    metadata = {"name": name, "labels": {names.SCALE_REQUEST_LABEL: "a"}}
    body = {"metadata": metadata, "spec": {"taints": [STARTUP]}}
    path = f"/api/v1/nodes/{name}"
    for user, groups in (
        (f"system:node:{name}", ()),
        ("system:node:other", (names.NODES_GROUP,)),
        ("an-admin", (names.NODES_GROUP,)),
        (constants.service_account_username("other", "karpenter"), ()),
    ):
        stranger = await log_in(user, *groups)
        with is_refused("belongs to managedFields.nodeWriters"):
            await stranger.create("/api/v1/nodes", body)
    kubelet = await log_in(f"system:node:{name}", names.NODES_GROUP)
    await kubelet.create("/api/v1/nodes", body)
    karpenter = await log_in(KARPENTER)
    await karpenter.patch(path, {"metadata": {"labels": {names.SCALE_REQUEST_LABEL: "b"}}})
    await karpenter.patch(path, {"spec": {"taints": None}})
    await api.delete(path)
