"""Which requests reach us through the webhook configurations, and which never depend on us."""

import pytest

from api.names import ASSIGNMENT_ANNOTATION, DECIDED_BY_ANNOTATION, IGNORE_LABEL, POOL_LABEL
from manifests import constants
from tests.cluster.environment import client
from tests.cluster.manifests.objects import ENGINE, a_pod, a_pool

DEVICES = "/apis/gpu.deckhouse.io/v1alpha1/gpudevices"
BOTH = [constants.MUTATE_PODS_PATH, constants.VALIDATE_PODS_PATH]


async def create_pod(api: client.ApiClient, pod: client.JsonObject) -> client.JsonObject:
    namespace = pod["metadata"]["namespace"]
    return await api.create(f"/api/v1/namespaces/{namespace}/pods", pod)


async def test_pod_without_a_pool_does_not_depend_on_us(api, namespace, webhooks):
    await create_pod(api, a_pod(namespace))
    assert webhooks.calls == []


async def test_pod_of_a_pool_is_mutated_and_validated(api, namespace, webhooks):
    await create_pod(api, a_pod(namespace, pool="train"))
    assert webhooks.paths() == BOTH


async def test_pod_that_mutation_labelled_is_validated_once(api, namespace, webhooks):
    """One webhook is for pods with the label, the other for pods without: never both, never none."""
    pod = a_pod(namespace, pool="train", labels={POOL_LABEL: "train"})
    await create_pod(api, pod)
    assert webhooks.paths() == BOTH


async def test_label_does_not_lead_past_validation(api, namespace, webhooks):
    for number, value in enumerate(("", "train", "another")):
        webhooks.calls.clear()
        await create_pod(api, a_pod(namespace, name=f"pod-{number}", labels={POOL_LABEL: value}))
        assert webhooks.paths() == [constants.VALIDATE_PODS_PATH]


async def test_init_container_that_asks_for_a_pool_is_seen(api, namespace, webhooks):
    pod = a_pod(namespace)
    pod["spec"]["initContainers"] = a_pod(namespace, pool="train")["spec"]["containers"]
    pod["spec"]["initContainers"][0]["name"] = "first"
    await create_pod(api, pod)
    assert webhooks.paths() == BOTH


@pytest.mark.parametrize("key", ["gpu.deckhouse.io/reservation", "gpu.deckhouse.io/devices"])
async def test_pod_with_an_annotation_of_ours_is_seen(key, api, namespace, webhooks):
    await create_pod(api, a_pod(namespace, annotations={key: "forged"}))
    assert webhooks.paths() == BOTH


def a_mirror_pod(namespace: str) -> client.JsonObject:
    pod = a_pod(namespace, pool="train", annotations={"kubernetes.io/config.mirror": "x"})
    pod["spec"]["nodeName"] = "somewhere"
    return pod


async def test_user_cannot_pass_by_as_a_mirror_pod(api, namespace, webhooks):
    await create_pod(api, a_mirror_pod(namespace))
    assert webhooks.paths() == BOTH


async def test_mirror_pod_of_a_node_does_not_depend_on_us(control_plane, namespace, webhooks):
    nodes = control_plane.kubeconfig("test-node", groups=("system:nodes", "system:masters"))
    async with client.open_client(nodes) as node:
        await create_pod(node, a_mirror_pod(namespace))
    assert webhooks.calls == []


async def test_excluded_namespace_does_not_depend_on_us(api, webhooks):
    pod = a_pod("kube-system", pool="train", name="excluded")
    await api.create("/api/v1/namespaces/kube-system/pods", pod, dryRun="All")
    assert webhooks.calls == []


async def test_update_of_a_pod_does_not_depend_on_us(api, namespace, webhooks):
    """Lesson 12: pods older than the control plane can be changed without it."""
    await create_pod(api, a_pod(namespace, pool="train"))
    webhooks.calls.clear()
    path = f"/api/v1/namespaces/{namespace}/pods/pod"
    await api.patch(path, {"metadata": {"labels": {"new": "label"}}})
    assert webhooks.calls == []


async def test_pool_is_checked_when_its_spec_is_new(api, pools, webhooks):
    await api.create(pools, a_pool("train"))
    assert webhooks.paths() == [constants.VALIDATE_POOLS_PATH]
    webhooks.calls.clear()
    await api.patch(f"{pools}/train", {"spec": {"reservation": {"ttl": "1m"}}})
    assert set(webhooks.paths()) == {constants.VALIDATE_POOLS_PATH}


async def test_metadata_and_status_of_a_pool_do_not_depend_on_us(api, pools, webhooks):
    await api.create(pools, a_pool("train"))
    webhooks.calls.clear()
    await api.patch(f"{pools}/train", {"metadata": {"finalizers": ["example.com/one"]}})
    await api.patch(f"{pools}/train/status", {"status": {"phase": "Ready"}})
    await api.delete(f"{pools}/train")
    await api.patch(f"{pools}/train", {"metadata": {"finalizers": None}})
    assert webhooks.calls == []


async def test_device_is_asked_about_only_when_it_is_decided_on(api, pools, webhooks):
    device = {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {"name": "gpu", "annotations": {ASSIGNMENT_ANNOTATION: "train"}},
    }
    gpu = f"{DEVICES}/gpu"

    async def asked(metadata: client.JsonObject) -> set[str]:
        webhooks.calls.clear()
        await api.patch(gpu, {"metadata": metadata})
        return set(
            webhooks.paths()
        )  # more than one of each where the API server tries a patch again

    recorded = {constants.MUTATE_DEVICES_PATH}
    checked = {*recorded, constants.VALIDATE_DEVICES_PATH}
    await api.create(DEVICES, device)
    try:
        assert set(webhooks.paths()) == checked
        assert not await asked({"labels": {"a": "b"}})
        assert await asked({"annotations": {ASSIGNMENT_ANNOTATION: "other"}}) == checked
        assert await asked({"annotations": {ASSIGNMENT_ANNOTATION: None}}) == recorded
        assert await asked({"annotations": {ASSIGNMENT_ANNOTATION: "train"}}) == checked
        assert await asked({"annotations": {DECIDED_BY_ANNOTATION: "me"}}) == recorded
        assert await asked({"labels": {IGNORE_LABEL: "true"}}) == recorded
    finally:
        await api.delete(gpu)


async def test_a_taint_that_evicts_is_asked_about_where_it_is_ours(
    api, control_plane, node, webhooks
):
    """Other taints, other clients and taints that stay do not depend on the server."""
    ours = control_plane.kubeconfig(ENGINE, groups=("system:masters",))

    async def asks_us(writer: client.ApiClient, *effects: str) -> bool:
        webhooks.calls.clear()
        taints = [{"key": f"example.test/{effect}", "effect": effect} for effect in effects]
        await writer.patch(node, {"spec": {"taints": taints}})
        return constants.VALIDATE_NODES_PATH in webhooks.paths()

    async with client.open_client(ours) as server:
        assert not await asks_us(server, "NoSchedule", "PreferNoSchedule")
        assert await asks_us(server, "NoSchedule", "NoExecute")
        assert not await asks_us(server, "NoExecute")
        assert not await asks_us(server)
        assert not await asks_us(api, "NoExecute")


async def test_dry_run_is_announced(api, namespace, webhooks):
    pod = a_pod(namespace, pool="train")
    await api.create(f"/api/v1/namespaces/{namespace}/pods", pod, dryRun="All")
    assert [call.body["request"]["dryRun"] for call in webhooks.calls] == [True, True]
