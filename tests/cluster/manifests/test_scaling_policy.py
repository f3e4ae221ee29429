"""What the server's account may write for autoscaling: gates of pods, signals, startup taints, useless NodeClaims."""

import pytest

from api.foreign.karpenter import DO_NOT_DISRUPT_ANNOTATION
from api.names import (
    AGENT_NOT_READY_TAINT,
    CAPACITY_GATE,
    COMPONENT_LABEL,
    KEEP_UNTIL_ANNOTATION,
    SCALE_REQUEST_LABEL,
    SCALE_SIGNAL,
    SIGNAL_SCHEDULER,
)
from autoscaling.scaling_model import RequestId
from manifests import constants
from manifests.scaling.signal_pod import unprivileged_pod, unschedulable_patch
from tests.cluster.environment import binaries, client, karpenter
from tests.cluster.manifests.conftest import is_refused
from tests.cluster.manifests.objects import a_pod
from tests.support.builders import EPOCH

pytestmark = pytest.mark.usefixtures("policy")

NAMESPACE = constants.DEFAULT_NAMESPACE
HOME = f"/api/v1/namespaces/{NAMESPACE}"


async def test_of_a_pods_gates_it_removes_its_own(server, api, namespace):
    pods = f"/api/v1/namespaces/{namespace}/pods"
    gates = [{"name": name} for name in ("example.test/queue", CAPACITY_GATE)]
    body = a_pod(namespace, pool="train", name="gated")
    await api.create(pods, {**body, "spec": {**body["spec"], "schedulingGates": gates}})
    foreign, ours = (
        [{"op": "remove", "path": f"/spec/schedulingGates/{number}"}] for number in range(2)
    )
    with is_refused("and nothing else"):
        await server.patch(f"{pods}/gated", foreign, kind="json")
    left = await server.patch(f"{pods}/gated", ours, kind="json")
    assert left["spec"]["schedulingGates"] == gates[:1]


def a_signal(name: str = "scale-a", **spec) -> client.JsonObject:
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}}
    body = unprivileged_pod("signal", "pause:1", resources=resources)
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {COMPONENT_LABEL: SCALE_SIGNAL}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": SIGNAL_SCHEDULER, **body, **spec},
    }


async def test_it_asks_for_nodes_by_pods_that_do_nothing(server, api):
    """Weak point 8: such a pod has a scheduler that nobody owns; it preempts and blocks nothing."""
    created = await server.create(f"{HOME}/pods", a_signal())
    patch = unschedulable_patch(RequestId("a"), uid=created["metadata"]["uid"], now=EPOCH)
    marked = await server.patch(f"{HOME}/pods/scale-a/status", patch, kind="json")
    (condition,) = marked["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    with is_refused("and nothing else"):
        await server.patch(f"{HOME}/pods/scale-a/status", {"status": {"phase": "Failed"}})
    await server.delete(f"{HOME}/pods/scale-a")


_CONTAINER = a_signal()["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param({"schedulerName": "default-scheduler"}, "has the scheduler", id="scheduler"),
        pytest.param({"nodeName": "n1"}, "has the scheduler", id="bound"),
        pytest.param({"automountServiceAccountToken": True}, "no token", id="token"),
        pytest.param({"hostNetwork": True}, "host namespace", id="host network"),
        pytest.param(
            {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}, "no token", id="host path"
        ),
        pytest.param(
            {"containers": [{**_CONTAINER, "securityContext": {"privileged": True}}]},
            "no privilege",
            id="privileged",
        ),
        pytest.param(
            {
                "containers": [
                    {**_CONTAINER, "resources": {"limits": {"gpu.deckhouse.io/train": "1"}}}
                ]
            },
            "requests no gpu.deckhouse.io/",
            id="units",
        ),
    ],
)
async def test_a_pod_that_asks_for_a_node_can_do_nothing_else(spec, text, server):
    with is_refused(text):
        await server.create(f"{HOME}/pods", a_signal(**spec), dryRun="All")


async def test_of_its_namespace_it_creates_and_deletes_no_other_pod(server, api, namespace):
    other = a_signal("agent")
    other["metadata"]["labels"] = {}
    with is_refused("the GPU control plane"):  # by two policies, either of which may be named
        await server.create(f"{HOME}/pods", other)
    await api.create(f"{HOME}/pods", other)
    with is_refused("creates and deletes no pod of its namespace"):
        await server.delete(f"{HOME}/pods/agent")
    await api.delete(f"{HOME}/pods/agent")
    elsewhere = a_signal()
    elsewhere["metadata"]["namespace"] = namespace
    with is_refused("and nothing else"):
        await server.create(f"/api/v1/namespaces/{namespace}/pods", elsewhere)


async def test_of_a_new_node_it_removes_the_startup_taint(server, api, node):
    foreign = (await api.get(node))["spec"]["taints"]
    starting = {"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}
    await api.patch(node, {"spec": {"taints": [*foreign, starting]}})
    left = await server.patch(node, {"spec": {"taints": foreign}})
    assert left["spec"]["taints"] == foreign
    with is_refused("writes no taint but those"):
        await server.patch(node, {"spec": {"taints": [*foreign, starting]}})


async def test_it_keeps_a_node_only_for_a_time(server, node):
    kept = {KEEP_UNTIL_ANNOTATION: "2026-01-01T00:00:00Z", DO_NOT_DISRUPT_ANNOTATION: "true"}
    await server.patch(node, {"metadata": {"annotations": kept}})
    await server.patch(node, {"metadata": {"annotations": dict.fromkeys(kept)}})
    with is_refused("the GPU control plane writes"):
        await server.patch(node, {"metadata": {"annotations": {DO_NOT_DISRUPT_ANNOTATION: "true"}}})


@pytest.fixture
async def node_claims(kubectl, progress):
    """Karpenter's kinds, without Karpenter; they stay."""
    await karpenter.install_definitions(kubectl, binaries.find_karpenter(progress)[1])
    return karpenter.CLAIMS


async def test_it_deletes_no_node_claim_but_one_that_never_became_useful(server, api, node_claims):
    async def exists(name: str, *, initialized: str, labels: client.JsonObject) -> str:
        claim = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "requirements": [karpenter.a_requirement("kubernetes.io/os", "linux")],
                "nodeClassRef": {**karpenter.NODE_CLASS_KIND, "name": "any"},
            },
        }
        await api.create(node_claims, claim)
        condition = {
            "type": "Initialized",
            "status": initialized,
            "reason": "Test",
            "message": "",
            "lastTransitionTime": EPOCH.isoformat(),
        }
        path = f"{node_claims}/{name}"
        await api.patch(f"{path}/status", {"status": {"conditions": [condition]}})
        return path

    asked = {SCALE_REQUEST_LABEL: "train-1"}
    foreign = await exists("foreign", initialized="False", labels={})
    useful = await exists("useful", initialized="True", labels=asked)
    useless = await exists("useless", initialized="False", labels=asked)

    for name in (foreign, useful):
        with is_refused("deletes no NodeClaim"):
            await server.delete(name)
        await api.delete(name)
    await server.delete(useless)
