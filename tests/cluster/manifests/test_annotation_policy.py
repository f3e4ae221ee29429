"""The policy protects our annotations and label on every path, and affects no other write."""

import contextlib

import pytest

from api.names import (
    DEVICES_ANNOTATION,
    LEADER_ANNOTATION,
    POOL_LABEL,
    RESERVATION_ANNOTATION,
    WOKEN_ANNOTATION,
)
from manifests import constants
from tests.cluster.environment import client, polling
from tests.cluster.manifests.objects import ENGINE, a_pod

pytestmark = pytest.mark.usefixtures("policy")

KEYS = [DEVICES_ANNOTATION, LEADER_ANNOTATION, RESERVATION_ANNOTATION, WOKEN_ANNOTATION]
ONLY_US = "only the GPU control plane may set or change"


@pytest.fixture
async def engine(control_plane):
    """A client under the user name of our service account, with all rights."""
    kubeconfig = control_plane.kubeconfig(ENGINE, groups=("system:masters",))
    async with client.open_client(kubeconfig) as opened:
        yield opened


@pytest.fixture
def pods(namespace):
    return f"/api/v1/namespaces/{namespace}/pods"


@contextlib.contextmanager
def is_refused(text: str):
    with pytest.raises(client.ApiRefusedError) as refused:
        yield
    assert refused.value.status == 403
    assert text in refused.value.message


def a_binding(namespace: str, annotations: dict[str, str]) -> client.JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "pod", "namespace": namespace, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "somewhere"},
    }


async def test_api_server_finds_no_fault_with_the_expressions(api):
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    async def checked():
        found = await api.get(f"{path}/{constants.ANNOTATION_POLICY}")
        return found.get("status", {}).get("observedGeneration") and found

    found = await polling.eventually(checked, what="type check of the policy")
    assert found["status"]["typeChecking"].get("expressionWarnings", []) == []


async def test_ordinary_pod_is_left_alone(api, namespace, pods):
    await api.create(pods, a_pod(namespace, annotations={"a": "b"}, labels={"c": "d"}))
    await api.patch(f"{pods}/pod", {"metadata": {"annotations": {"a": "c"}}})
    await api.patch(f"{pods}/pod/status", {"status": {"message": "fine"}})
    await api.create(f"{pods}/pod/binding", a_binding(namespace, {}))


async def test_what_admission_wrote_passes_under_the_users_name(api, namespace, pods):
    stored = await api.create(pods, a_pod(namespace, pool="train"))
    assert stored["metadata"]["annotations"][RESERVATION_ANNOTATION] == '{"id":"1"}'
    assert stored["metadata"]["labels"][POOL_LABEL] == "train"


@pytest.mark.parametrize("key", [DEVICES_ANNOTATION, LEADER_ANNOTATION, WOKEN_ANNOTATION])
async def test_new_pod_cannot_bring_what_is_written_later(key, api, namespace, pods):
    with is_refused(f"{ONLY_US} {key} on a pod"):
        await api.create(pods, a_pod(namespace, pool="train", annotations={key: "forged"}))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_annotation_cannot_be_added(key, subresource, api, namespace, pods):
    await api.create(pods, a_pod(namespace))
    with is_refused(f"{ONLY_US} {key} on a pod"):
        await api.patch(f"{pods}/pod{subresource}", {"metadata": {"annotations": {key: "forged"}}})


@pytest.mark.parametrize("value", [pytest.param("forged", id="changed"), None])
async def test_hold_cannot_be_changed_or_removed(value, api, namespace, pods):
    await api.create(pods, a_pod(namespace, pool="train"))
    with is_refused(f"{ONLY_US} {RESERVATION_ANNOTATION} on a pod"):
        await api.patch(
            f"{pods}/pod", {"metadata": {"annotations": {RESERVATION_ANNOTATION: value}}}
        )


@pytest.mark.parametrize("key", KEYS)
async def test_binding_cannot_bring_it(key, api, namespace, pods):
    await api.create(pods, a_pod(namespace, pool="train"))
    binding = a_binding(namespace, {key: "forged"})
    with is_refused(f"{ONLY_US} {key} on a pod"):
        await api.create(f"{pods}/pod/binding", binding)
    with is_refused(f"{ONLY_US} {key} on a pod"):
        await api.create(f"/api/v1/namespaces/{namespace}/bindings", binding)


async def test_we_may_do_all_of_it(engine, api, namespace, pods):
    await api.create(pods, a_pod(namespace, pool="train"))
    for key in (LEADER_ANNOTATION, RESERVATION_ANNOTATION, WOKEN_ANNOTATION):
        await engine.patch(f"{pods}/pod", {"metadata": {"annotations": {key: "ours"}}})
    await engine.create(f"{pods}/pod/binding", a_binding(namespace, {DEVICES_ANNOTATION: "{}"}))
    bound = await api.get(f"{pods}/pod")
    written = {key: bound["metadata"]["annotations"][key] for key in KEYS}
    assert written == {**dict.fromkeys(KEYS, "ours"), DEVICES_ANNOTATION: "{}"}


async def test_label_comes_with_a_pool_only(api, namespace, pods):
    with is_refused(f"{ONLY_US} the label {POOL_LABEL} on a pod"):
        await api.create(pods, a_pod(namespace, labels={POOL_LABEL: "train"}))


@pytest.mark.parametrize("value", ["other", None])
@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_label_cannot_be_changed(value, subresource, api, namespace, pods):
    await api.create(pods, a_pod(namespace, pool="train"))
    with is_refused(f"{ONLY_US} the label {POOL_LABEL} on a pod"):
        await api.patch(f"{pods}/pod{subresource}", {"metadata": {"labels": {POOL_LABEL: value}}})


async def test_excluded_namespace_has_no_pool_pods(api):
    with is_refused("no pod of namespace kube-system can ask for a GPU pool"):
        await api.create(
            "/api/v1/namespaces/kube-system/pods", a_pod("kube-system", pool="train"), dryRun="All"
        )


async def test_hold_cannot_be_forged_where_admission_is_not_asked(api):
    forged = a_pod("kube-system", pool="train", annotations={RESERVATION_ANNOTATION: "forged"})
    with is_refused(f"{ONLY_US} {RESERVATION_ANNOTATION} on a pod"):
        await api.create("/api/v1/namespaces/kube-system/pods", forged, dryRun="All")


async def test_mirror_pod_of_a_node_is_left_alone(control_plane, namespace, pods):
    pod = a_pod(namespace, pool="train", annotations={"kubernetes.io/config.mirror": "x"})
    pod["spec"]["nodeName"] = "somewhere"
    nodes = control_plane.kubeconfig("test-node", groups=("system:nodes", "system:masters"))
    async with client.open_client(nodes) as node:
        await node.create(pods, pod)


async def test_mirror_pod_cannot_bring_a_reservation(control_plane, namespace, pods):
    """No webhook of ours sees it, so that nothing takes the annotation off."""
    mirrored = {"kubernetes.io/config.mirror": "x", RESERVATION_ANNOTATION: "[" * 2000}
    pod = a_pod(namespace, pool="train", annotations=mirrored)
    pod["spec"]["nodeName"] = "somewhere"
    nodes = control_plane.kubeconfig("test-node", groups=("system:nodes", "system:masters"))
    async with client.open_client(nodes) as node:
        with is_refused(f"{ONLY_US} {RESERVATION_ANNOTATION} on a pod"):
            await node.create(pods, pod)


STATUS_WRITERS = [
    pytest.param("system:node:somewhere", "system:nodes", id="node"),
    pytest.param("system:serviceaccount:kube-system:pod-garbage-collector", "any", id="collector"),
    pytest.param("system:kube-controller-manager", "any", id="controller-manager"),
]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("kind", ["merge", "strategic"])
async def test_user_cannot_say_that_a_pool_pod_has_ended(phase, kind, api, namespace, pods):
    """Its devices would be given to the next pod while its containers run."""
    stored = await api.create(pods, a_pod(namespace, pool="train"))
    with is_refused("only its node and the pod garbage collector may say"):
        await api.patch(f"{pods}/pod/status", {"status": {"phase": phase}}, kind=kind)
    stored["status"]["phase"] = phase
    with is_refused("only its node and the pod garbage collector may say"):
        await api.replace(f"{pods}/pod/status", stored)
    await api.patch(f"{pods}/pod/status", {"status": {"message": "fine", "phase": "Running"}})


@pytest.mark.parametrize(("user", "group"), STATUS_WRITERS)
async def test_a_pool_pods_end_is_its_nodes_to_say(
    user, group, control_plane, api, namespace, pods
):
    await api.create(pods, a_pod(namespace, pool="train"))
    kubeconfig = control_plane.kubeconfig(user, groups=(group, "system:masters"))
    async with client.open_client(kubeconfig) as writer:
        await writer.patch(f"{pods}/pod/status", {"status": {"phase": "Failed"}})
    # Every other status write of an ended pod contains its phase, too.
    await api.patch(f"{pods}/pod/status", {"status": {"message": "seen"}})


async def test_end_of_an_ordinary_pod_is_anybodys_to_say(api, namespace, pods):
    await api.create(pods, a_pod(namespace))
    await api.patch(f"{pods}/pod/status", {"status": {"phase": "Succeeded"}})


async def test_profile_of_our_scheduler_is_for_pods_of_pools(api, namespace, pods):
    ordinary, ours = a_pod(namespace), a_pod(namespace, pool="train")
    for pod in (ordinary, ours):
        pod["spec"]["schedulerName"] = "gpu-scheduler"
    with is_refused("the scheduler gpu-scheduler is for pods of GPU pools"):
        await api.create(pods, ordinary)
    await api.create(pods, ours)


async def test_pool_pod_without_our_mutation_is_refused(api, namespace, pods):
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    configuration = await api.get(f"{path}/{constants.MUTATING_CONFIGURATION}")
    await api.patch(f"{path}/{constants.MUTATING_CONFIGURATION}", {"webhooks": []})

    async def is_refused_as_unmutated() -> bool:
        try:
            await api.create(pods, a_pod(namespace, pool="train"), dryRun="All")
        except client.ApiRefusedError as refused:
            return "did not pass the GPU control plane" in refused.message
        return False

    try:
        await polling.eventually(is_refused_as_unmutated, what="refusal of an unmutated pod")
    finally:
        await api.patch(
            f"{path}/{constants.MUTATING_CONFIGURATION}", {"webhooks": configuration["webhooks"]}
        )
