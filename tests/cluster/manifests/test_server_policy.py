"""The server's account writes what the server writes, and nothing else, whatever its roles allow."""

import base64

import pytest

from api import names
from manifests import constants
from manifests.node.device_plugin import WorkloadSettings
from reconciler.installation.service_endpoint import build_endpoint_slice
from reconciler.settings import EndpointParameters
from tests.cluster.environment import client, polling
from tests.cluster.manifests import objects
from tests.cluster.manifests.conftest import (
    IMAGE,
    an_eviction,
    install_node_features,
    is_refused,
)
from tests.cluster.manifests.objects import a_pod
from tests.unit.manifests.pool_objects import a_pool, objects_of

pytestmark = pytest.mark.usefixtures("policy")

NAMESPACE = constants.DEFAULT_NAMESPACE
HOME = f"/api/v1/namespaces/{NAMESPACE}"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
TAINT = {"key": "example.test/gpu", "value": "x", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    "name",
    [constants.SERVER_POLICY, constants.SERVER_OBJECTS_POLICY, constants.ANNOTATION_POLICY],
)
async def test_api_server_finds_no_fault_with_the_expressions(name, server, api):
    async def checked():
        found = await api.get(f"{POLICIES}/{name}")
        return found.get("status", {}).get("observedGeneration") and found

    found = await polling.eventually(checked, what="type check of the policy")
    assert found["status"]["typeChecking"].get("expressionWarnings", []) == []


async def test_of_a_pod_it_writes_annotations_of_ours_and_the_nomination(server, pod):
    await server.patch(pod, {"metadata": {"annotations": {names.WOKEN_ANNOTATION: "now"}}})
    nominated = [{"op": "add", "path": "/status/nominatedNodeName", "value": "somewhere"}]
    await server.patch(f"{pod}/status", nominated, kind="json")


def conditions(*types: str) -> client.JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod"},
        "status": {"conditions": [{"type": type_, "status": "False"} for type_ in types]},
    }


async def test_of_a_pods_conditions_it_writes_one(server, api, pod):
    foreign = "example.test/ready"
    by_server = {"kind": "apply", "fieldManager": "server", "force": "true"}
    await server.patch(f"{pod}/status", conditions(names.UNITS_CONDITION), **by_server)
    await api.patch(f"{pod}/status", conditions(foreign), kind="apply", fieldManager="other")
    written = await server.patch(f"{pod}/status", conditions(names.UNITS_CONDITION), **by_server)
    assert {condition["type"] for condition in written["status"]["conditions"]} >= {
        foreign,
        names.UNITS_CONDITION,
    }
    with is_refused("status.nominatedNodeName, and nothing else"):
        await server.patch(f"{pod}/status", conditions(names.UNITS_CONDITION, "mine"), **by_server)
    with is_refused("status.nominatedNodeName, and nothing else"):
        await server.patch(f"{pod}/status", {"status": {"conditions": None}})


@pytest.mark.parametrize(
    ("subresource", "change"),
    [
        pytest.param("", {"metadata": {"annotations": {"foreign": "x"}}}, id="annotation"),
        pytest.param("", {"metadata": {"labels": {"foreign": "x"}}}, id="label"),
        pytest.param("", {"metadata": {"finalizers": ["example.test/x"]}}, id="finalizer"),
        pytest.param("", {"spec": {"activeDeadlineSeconds": 1}}, id="deadline"),
        pytest.param("/status", {"status": {"phase": "Failed"}}, id="phase"),
        pytest.param("/status", {"status": {"message": "x"}}, id="message"),
        pytest.param("/status", {"metadata": {"labels": {"foreign": "x"}}}, id="label-by-status"),
    ],
)
async def test_of_a_pod_it_writes_nothing_else(subresource, change, server, pod):
    with is_refused("status.nominatedNodeName, and nothing else"):
        await server.patch(f"{pod}{subresource}", change)


async def test_it_replaces_no_image_and_creates_no_pod(server, pod, namespace):
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "other:1"}]
    with is_refused("status.nominatedNodeName, and nothing else"):
        await server.patch(pod, image, kind="json")
    with is_refused("status.nominatedNodeName, and nothing else"):
        await server.create(pod.rpartition("/")[0], a_pod(namespace, name="another"))


async def test_its_bindings_bring_devices_and_nothing_else(server, pod, namespace):
    def a_binding(space: str, labels=None, **annotations: str) -> client.JsonObject:
        metadata = {"name": "pod", "namespace": space, "annotations": annotations}
        target = {"apiVersion": "v1", "kind": "Node", "name": "somewhere"}
        named = {"apiVersion": "v1", "kind": "Binding", "target": target}
        return {**named, "metadata": {**metadata, "labels": labels or {}}}

    text = "has its annotations and labels only"
    with is_refused(text):
        await server.create(f"{pod}/binding", a_binding(namespace, foreign="x"))
    with is_refused(text):
        await server.create(f"{pod}/binding", a_binding(namespace, {"foreign": "x"}))
    with is_refused(text):
        path = "/api/v1/namespaces/kube-system/bindings"
        await server.create(path, a_binding("kube-system"), dryRun="All")
    ours = {names.DEVICES_ANNOTATION: "{}", names.LEADER_ANNOTATION: "first/1"}
    # As the API server itself adds it to a Binding to a node with a zone.
    zone = {"topology.kubernetes.io/zone": "a"}
    await server.create(
        f"{pod}/binding", a_binding(namespace, {names.FENCED_LABEL: names.FENCED} | zone, **ours)
    )


async def test_it_evicts_no_pod_of_the_system(server, pod):
    for namespace in ("kube-system", NAMESPACE):
        with is_refused("evicts no pod of"):
            path = f"/api/v1/namespaces/{namespace}/pods/none/eviction"
            await server.create(path, an_eviction("none"))
    await server.create(f"{pod}/eviction", an_eviction("pod"))


async def test_of_a_node_it_writes_labels_and_taints_of_pools(server, node):
    label = names.pool_node_label(names.PoolName("train"))
    taints = (await server.get(node))["spec"]["taints"]
    place = f"{TAINT['key']}:{TAINT['effect']}"
    marks = {"labels": {label: ""}, "annotations": {names.POOL_TAINTS_ANNOTATION: place}}
    await server.patch(node, {"metadata": marks, "spec": {"taints": [*taints, TAINT]}})
    unmarked = {"labels": {label: None}, "annotations": {names.POOL_TAINTS_ANNOTATION: None}}
    marked = await server.patch(node, {"metadata": unmarked, "spec": {"taints": taints}})
    assert marked["spec"]["taints"] == taints


async def test_of_a_node_it_says_that_a_device_is_present_unless_somebody_else_says_more(
    server, node, api
):
    def labelled(value: str | None) -> client.JsonObject:
        return {"metadata": {"labels": {names.PRESENT_LABEL: value}}}

    await server.patch(node, labelled("true"))
    await server.patch(node, labelled(None))
    text = "sets gpu.deckhouse.io/present to true"
    with is_refused(text):
        await server.patch(node, labelled("false"))
    await api.patch(node, labelled("false"))
    for value in ("true", None):
        with is_refused(text):
            await server.patch(node, labelled(value))


async def test_it_cordons_a_node_with_the_label_of_a_reboot(server, node):
    asked = {"metadata": {"labels": {names.REBOOT_LABEL: "true"}}, "spec": {"unschedulable": True}}
    await server.patch(node, asked)
    over = {"metadata": {"labels": {names.REBOOT_LABEL: None}}, "spec": {"unschedulable": None}}
    await server.patch(node, over)


async def test_it_uncordons_a_node_without_the_label_once_it_labelled_it_again(server, node, api):
    asked = {"metadata": {"labels": {names.REBOOT_LABEL: "true"}}, "spec": {"unschedulable": True}}
    await server.patch(node, asked)
    await api.patch(node, {"metadata": {"labels": {names.REBOOT_LABEL: None}}})
    over = {"metadata": {"labels": {names.REBOOT_LABEL: None}}, "spec": {"unschedulable": None}}
    with is_refused("with it spec.unschedulable"):
        await server.patch(node, over)
    await server.patch(node, asked)
    await server.patch(node, over)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"metadata": {"labels": {"foreign": None}}}, id="label removed"),
        pytest.param({"metadata": {"labels": {"kubernetes.io/hostname": "x"}}}, id="label"),
        pytest.param({"metadata": {"annotations": {"foreign": "no"}}}, id="annotation"),
        pytest.param({"spec": {"unschedulable": True}}, id="cordon"),
        pytest.param({"spec": {"taints": None}}, id="foreign taint removed"),
        pytest.param({"spec": {"taints": [TAINT]}}, id="taint without a name"),
        pytest.param(
            {
                "metadata": {
                    "annotations": {names.POOL_TAINTS_ANNOTATION: "node.kubernetes.io/x:NoExecute"}
                },
                "spec": {"taints": [{"key": "node.kubernetes.io/x", "effect": "NoExecute"}]},
            },
            id="taint of the system",
        ),
    ],
)
async def test_of_a_node_it_writes_nothing_else(change, server, node):
    with is_refused("the GPU control plane writes"):
        await server.patch(node, change)


async def test_of_a_pool_it_writes_finalizers_and_status(server, api, pools):
    await api.create(pools, objects.a_pool("train"))
    pool = f"{pools}/train"
    await server.patch(pool, {"metadata": {"finalizers": ["gpu.deckhouse.io/pool"]}})
    await server.patch(f"{pool}/status", {"status": {"phase": "Ready"}})
    for change in (
        {"spec": {"scheduling": {"taints": [{"key": "x", "effect": "NoExecute"}]}}},
        {"metadata": {"labels": {"foreign": "x"}}},
        {"metadata": {"annotations": {"foreign": "x"}}},
    ):
        with is_refused("writes finalizers and status, and nothing else"):
            await server.patch(pool, change)
    await server.patch(pool, {"metadata": {"finalizers": None}})


async def test_it_writes_no_node_feature(server, api, kubectl):
    await install_node_features(kubectl)
    features = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"
    kind = {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature"}
    labels = {"nfd.node.kubernetes.io/node-name": "somewhere"}
    body = kind | {"metadata": {"name": "somewhere", "labels": labels}, "spec": {}}
    text = "writes no NodeFeature"
    with is_refused(text):
        await server.create(features, body)
    await api.create(features, body)
    with is_refused(text):
        await server.patch(f"{features}/somewhere", {"spec": {"labels": {"a": "b"}}})
    with is_refused(text):
        await server.delete(f"{features}/somewhere")
    await api.delete(f"{features}/somewhere")


CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"


@pytest.mark.parametrize("kind", ["mutating", "validating"])
async def test_of_its_webhook_configurations_it_writes_ca_bundle(kind, server, api, control_plane):
    def a_webhook(name: str) -> client.JsonObject:
        return {
            "name": f"{name}.example.test",
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": "s", "path": "/x"}},
            "rules": [
                {
                    "apiGroups": ["example.test"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["widgets"],
                }
            ],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }

    path = CONFIGURATIONS.format(kind)
    body = {"metadata": {"name": "probe"}, "webhooks": [a_webhook("first"), a_webhook("second")]}
    await api.create(path, body)
    try:
        bundle = base64.b64encode(control_plane.ca_file.read_bytes()).decode()
        for number in (0, 1):
            at = f"/webhooks/{number}"
            written = {"op": "add", "path": f"{at}/clientConfig/caBundle", "value": bundle}
            await server.patch(f"{path}/probe", [written], kind="json")
        for change in (
            {"op": "replace", "path": "/webhooks/0/rules/0/resources", "value": ["*"]},
            {"op": "replace", "path": "/webhooks/1/clientConfig/service/path", "value": "/y"},
            {"op": "replace", "path": "/webhooks/0/clientConfig/service/namespace", "value": "y"},
            {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"},
            {"op": "add", "path": "/webhooks/-", "value": a_webhook("third")},
            {"op": "replace", "path": "/webhooks/1", "value": a_webhook("third")},
            {"op": "remove", "path": "/webhooks/0"},
            {"op": "remove", "path": "/webhooks"},
            {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        ):
            with is_refused("writes caBundle, and nothing else"):
                await server.patch(f"{path}/probe", [change], kind="json")
    finally:
        await api.delete(f"{path}/probe")


async def test_others_write_pods_and_nodes_as_before(server, api, pod, node):
    await api.patch(pod, {"metadata": {"labels": {"foreign": "x"}}})
    await api.patch(node, {"spec": {"unschedulable": True, "taints": [TAINT]}})
    await api.create(f"{HOME}/configmaps", {"metadata": {"name": "foreign"}}, dryRun="All")


@pytest.mark.parametrize(
    "name",
    [
        constants.SERVING_SECRET,
        constants.SCHEDULER_SECRET,
        constants.RESERVATION_KEY_SECRET,
        constants.CACHE_KEY_SECRET,
    ],
)
async def test_it_has_its_secrets_and_makes_no_token(name, server, api):
    await server.create(f"{HOME}/secrets", {"metadata": {"name": name}, "data": {}}, dryRun="All")
    with is_refused("writes objects of its own names only"):
        await server.create(f"{HOME}/secrets", {"metadata": {"name": "other"}}, dryRun="All")
    account = {"kubernetes.io/service-account.name": constants.SCHEDULER_SERVICE_ACCOUNT}
    token = {
        "metadata": {"name": name, "annotations": account},
        "type": "kubernetes.io/service-account-token",
    }
    with is_refused("is of type kubernetes.io/tls or Opaque"):
        await server.create(f"{HOME}/secrets", token, dryRun="All")


async def test_it_leads_one_service_to_itself(server):
    parameters = EndpointParameters(namespace=NAMESPACE, address="192.0.2.1", port=8443)
    body = build_endpoint_slice(parameters, service_uid="0")
    await server.create(SLICES, body, dryRun="All")
    other_name = body["metadata"] | {"name": "foreign"}
    other_service = body["metadata"] | {"labels": {"kubernetes.io/service-name": "foreign"}}
    for metadata in (other_name, other_service):
        with is_refused("of its own names only"):
            await server.create(SLICES, body | {"metadata": metadata}, dryRun="All")


async def test_it_has_one_lease(server):
    await server.create(LEASES, {"metadata": {"name": constants.LEASE_NAME}}, dryRun="All")
    with is_refused("writes objects of its own names only"):
        await server.create(LEASES, {"metadata": {"name": "gpu-scheduler"}}, dryRun="All")


async def test_of_its_namespace_it_writes_the_labels_of_pod_security(server, api, namespace):
    await server.patch(HOME, {"metadata": {"labels": dict(constants.POD_SECURITY_LABELS)}})
    text = "the pod security labels of its own, and nothing else"
    enforced = {"metadata": {"labels": {constants.POD_SECURITY_ENFORCE: "baseline"}}}
    for path, change in (
        (HOME, enforced),
        (HOME, {"metadata": {"labels": {"foreign": "x"}}}),
        (HOME, {"metadata": {"annotations": {"foreign": "x"}}}),
        (f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"foreign": "x"}}}),
    ):
        with is_refused(text):
            await server.patch(path, change)
    # What another client enforces may stay while a missing label is added.
    await api.patch(HOME, {"metadata": {"labels": dict.fromkeys(constants.POD_SECURITY_LABELS)}})
    await api.patch(HOME, enforced)
    audited = {"pod-security.kubernetes.io/audit": "privileged"}
    await server.patch(HOME, {"metadata": {"labels": audited}})
    await api.patch(HOME, {"metadata": {"labels": dict.fromkeys(constants.POD_SECURITY_LABELS)}})


async def test_of_kube_schedulers_deployment_it_writes_one_annotation_of_the_pods(server, api):
    name = constants.SCHEDULER_DEPLOYMENT
    labels = {"app": "scheduler"}
    body = {
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "registry.test/kube-scheduler:1"}]},
            },
        },
    }
    text = "of kube-scheduler's Deployment the GPU control plane writes the annotation"
    with is_refused(text):
        await server.create(DEPLOYMENTS, body)
    await api.create(DEPLOYMENTS, body)
    path = f"{DEPLOYMENTS}/{name}"

    def annotated(**annotations: str) -> client.JsonObject:
        return {"spec": {"template": {"metadata": {"annotations": annotations}}}}

    await server.patch(path, annotated(**{names.TRUST_HASH_ANNOTATION: "1"}))
    await server.patch(path, annotated(**{names.TRUST_HASH_ANNOTATION: "2"}))
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "o:1"}]
    for change, kind in (
        (annotated(foreign="x"), "merge"),
        ({"spec": {"replicas": 1}}, "merge"),
        ({"metadata": {"labels": {"foreign": "x"}}}, "merge"),
        ({"spec": {"template": {"metadata": {"labels": {"foreign": "x"}}}}}, "merge"),
        (image, "json"),
    ):
        with is_refused(text):
            await server.patch(path, change, kind=kind)
    with is_refused(text):
        await server.delete(path)
    await api.delete(path)
    with is_refused("writes objects of its own names only"):
        await server.create(DEPLOYMENTS, body | {"metadata": {"name": "another"}})


@pytest.mark.parametrize("settings", [WorkloadSettings(image=IMAGE)])
async def test_it_writes_what_pools_run(settings, server):
    objects = objects_of(a_pool("training"), settings=settings)
    assert {object_["kind"] for object_ in objects} == {"ConfigMap", "DaemonSet"}
    for object_ in objects:
        path = DAEMON_SETS if object_["kind"] == "DaemonSet" else f"{HOME}/configmaps"
        object_["metadata"].pop("ownerReferences", None)
        await server.create(path, object_)
        await server.delete(f"{path}/{object_['metadata']['name']}")


async def test_it_writes_no_other_workload(server, api):
    (daemon_set,) = (
        object_
        for object_ in objects_of(a_pool("training"), settings=WorkloadSettings(image=IMAGE))
        if object_["kind"] == "DaemonSet"
    )
    daemon_set["metadata"].pop("ownerReferences", None)
    spec = daemon_set["spec"]["template"]["spec"]
    for change, text in (
        ({"serviceAccountName": "gpu-control-plane"}, "run as accounts of its agents and operands"),
        ({"containers": [{**spec["containers"][0], "image": "other:1"}]}, f"run {IMAGE}"),
        ({"initContainers": [{"name": "first", "image": "other:1"}]}, f"run {IMAGE}"),
        (
            {"volumes": [*spec["volumes"], {"name": "v", "image": {"reference": "other:1"}}]},
            f"run {IMAGE}",
        ),
    ):
        template = {**daemon_set["spec"]["template"], "spec": {**spec, **change}}
        changed = {**daemon_set, "spec": {**daemon_set["spec"], "template": template}}
        with is_refused(text):
            await server.create(DAEMON_SETS, changed, dryRun="All")
    foreign = {**daemon_set, "metadata": {"name": "foreign"}}
    with is_refused("writes objects of its own names only"):
        await server.create(DAEMON_SETS, foreign, dryRun="All")
    await api.create(f"{HOME}/configmaps", {"metadata": {"name": "foreign"}})
    with is_refused("writes objects of its own names only"):
        await server.delete(f"{HOME}/configmaps/foreign")
    await api.delete(f"{HOME}/configmaps/foreign")
