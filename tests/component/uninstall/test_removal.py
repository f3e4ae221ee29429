"""An uninstall removes what is ours, touches nothing else, and refuses under pods that use units."""

import asyncio
import datetime as dt
from typing import Any

import pytest

from api.annotations import ReservationNote
from api.driver_upgrade import AGENT_DEPLOY_LABEL, UPGRADE_STATE_LABEL
from api.names import OPERAND_LABEL, POOL_NODE_LABEL_PREFIX, RESERVATION_ANNOTATION
from cli.installed_objects import build_groups
from cli.uninstall.removal import RemovalError
from kube import resources
from kube.client import KubeClient
from kube.leader_election import LeaderElection, LeaseTimes
from manifests import constants
from manifests.install.values import ChartValues
from manifests.install.webhooks import (
    ServiceClient,
    WebhookSettings,
    build_mutating_configuration,
)
from server.values_file import build_installation
from tests.component.uninstall.installed_cluster import (
    NAMESPACE,
    POOL,
    WITH_NODE_SOFTWARE,
    InstalledCluster,
    a_bare_cluster,
    add_node_software,
    mark_node,
)

pytestmark = pytest.mark.looptime

OF_CACHES = {
    "GKMCache": resources.GKM_CACHES,
    "ClusterGKMCache": resources.CLUSTER_GKM_CACHES,
    "GKMCacheNode": resources.GKM_CACHE_NODES,
    "ClusterGKMCacheNode": resources.CLUSTER_GKM_CACHE_NODES,
}
KEPT_KINDS = {
    "CustomResourceDefinition /gpucontrolplaneconfigs.gpu.deckhouse.io",
    "CustomResourceDefinition /gpucontrolplaneterms.gpu.deckhouse.io",
    "CustomResourceDefinition /gpudevices.gpu.deckhouse.io",
    "CustomResourceDefinition /gpunodeinventories.gpu.deckhouse.io",
    "CustomResourceDefinition /gpupools.gpu.deckhouse.io",
    "CustomResourceDefinition /clustergkmcachenodes.gkm.io",
    "CustomResourceDefinition /clustergkmcaches.gkm.io",
    "CustomResourceDefinition /gkmcachenodes.gkm.io",
    "CustomResourceDefinition /gkmcaches.gkm.io",
    "ClusterGKMCache /llama",
    "ClusterGKMCacheNode /n1",
    "GKMCache default/llama",
    "GKMCacheNode default/n1",
    "GPUDevice /n1-0",
    f"GPUPool /{POOL}",
}
CACHE_OBJECTS = {item for item in KEPT_KINDS if item.partition(" ")[0] in OF_CACHES}
NODE_OF_THE_OPERATOR = "Node /n2"
"""Has a label that the operator set."""


async def test_nothing_of_ours_is_left_but_definitions_and_their_objects(cluster: InstalledCluster):
    await cluster.removal().run()
    assert cluster.ours() == {*KEPT_KINDS, NODE_OF_THE_OPERATOR}
    world = cluster.world()
    for item in (f"GPUPool /{POOL}", *CACHE_OBJECTS):
        assert world[item]["metadata"]["finalizers"] == ["example.com/theirs"], item


async def test_what_others_have_is_as_before(cluster: InstalledCluster):
    async with a_bare_cluster() as bare:
        before = bare.world()
    await cluster.removal().run()
    after = cluster.world()
    for key, body in before.items():
        if key.startswith("CustomResourceDefinition "):
            # Its conditions have times.
            assert after[key]["spec"] == body["spec"]
            continue
        for volatile in ("uid", "creationTimestamp"):
            body["metadata"].pop(volatile, None)
            after[key]["metadata"].pop(volatile, None)
        assert after[key] == body, key


async def test_definitions_and_objects_go_when_told_to(cluster: InstalledCluster):
    await _take_away_the_finalizers_of_others(cluster)
    await cluster.removal(with_crds=True).run()
    assert cluster.ours() == {NODE_OF_THE_OPERATOR}
    assert not any(line.startswith("left: ") for line in cluster.lines)


async def test_finalizer_of_others_ends_the_wait_with_its_name(cluster: InstalledCluster):
    with pytest.raises(RemovalError, match=r"finalizers of others .*: example.com/theirs"):
        await cluster.removal(with_crds=True, timeout_s=10).run()
    await _take_away_the_finalizers_of_others(cluster)
    await cluster.removal(with_crds=True).run()
    assert cluster.ours() == {NODE_OF_THE_OPERATOR}


async def _take_away_the_finalizers_of_others(cluster: InstalledCluster) -> None:
    """With them the objects would stay for ever."""
    for resource in (resources.GPU_POOLS, *OF_CACHES.values()):
        for key, body in cluster.world().items():
            if key.startswith(f"{resource.kind} "):
                metadata = body["metadata"]
                left = [
                    finalizer
                    for finalizer in metadata["finalizers"]
                    if finalizer != "example.com/theirs"
                ]
                await cluster.client.merge_patch(
                    resource,
                    {"metadata": {"finalizers": left}},
                    name=metadata["name"],
                    namespace=metadata.get("namespace"),
                )


async def test_pods_that_have_a_kernel_cache_are_named_and_keep_it(cluster: InstalledCluster):
    for name in ("serve", "other"):
        await cluster.add_cache_pod(name, phase="Running")
    await cluster.add_cache_pod("done", phase="Succeeded")
    before = cluster.world()
    with pytest.raises(RemovalError) as refused:
        await cluster.removal().run()
    assert str(refused.value) == (
        "2 pods mount kernel caches, which kubelet cannot unmount without a node agent: default/other, default/serve."
        " Delete them, or let them run on with --force"
    )
    assert cluster.world() == before
    await cluster.removal(is_forced=True).run()
    (line,) = [
        item for item in cluster.lines if "kernel caches" in item and item.startswith("left")
    ]
    assert line.startswith(
        "left: 2 pods keep their kernel caches mounted: default/other, default/serve. Without a node"
    )
    after = cluster.world()
    for name in ("serve", "other", "done"):
        assert after[f"Pod default/{name}"] == before[f"Pod default/{name}"]


async def test_webhooks_are_gone_before_finalizers_and_those_before_the_policies(
    cluster: InstalledCluster,
):
    """An admission of caches that nobody answers would refuse each of these writes."""
    await cluster.removal().run()
    paths = [write.path for write in cluster.api.requests.writes()]
    places = [index for index, path in enumerate(paths) if "/gkm.io/" in path]
    webhooks = [index for index, path in enumerate(paths) if "webhookconfigurations" in path]
    policies = [index for index, path in enumerate(paths) if constants.AGENT_POLICY in path]
    assert len(places) == 4
    assert max(webhooks) < min(places) <= max(places) < min(policies)


async def test_pods_that_no_webhook_mutates_are_validated_by_none(cluster: InstalledCluster):
    await cluster.removal().run()
    paths = [write.path for write in cluster.api.requests.writes()]
    assert [path.rpartition("/")[2] for path in paths if "webhookconfigurations" in path] == [
        constants.VALIDATING_CONFIGURATION,
        constants.MUTATING_CONFIGURATION,
    ]


async def test_second_run_writes_nothing(cluster: InstalledCluster):
    await cluster.removal().run()
    cluster.api.requests.clear()
    await cluster.removal().run()
    assert cluster.api.requests.writes() == []


async def test_cluster_without_the_control_plane_is_left_as_it_is():
    async with a_bare_cluster() as cluster:
        cluster.api.requests.clear()
        await cluster.removal().run()
        assert cluster.api.requests.writes() == []
        assert cluster.lines == ["0 objects removed or cleaned"]


async def test_dry_run_names_every_step_and_writes_nothing(cluster: InstalledCluster):
    before = cluster.world()
    await cluster.removal(is_dry_run=True).run()
    assert cluster.world() == before
    assert "mutation: would delete MutatingWebhookConfiguration zz-gpu-control-plane" in (
        cluster.lines
    )
    assert "server: would scale to 0 Deployment gpu-control-plane" in cluster.lines


async def test_pod_that_uses_units_is_named_and_nothing_is_written(cluster: InstalledCluster):
    await _without_webhooks(cluster)
    await cluster.add_pod("train", node="n1")
    before = cluster.world()
    with pytest.raises(RemovalError) as refused:
        await cluster.removal().run()
    assert str(refused.value) == (
        "1 pod uses units of pools: default/train (2 units of gpu.deckhouse.io/training, on n1)."
        " Delete it, or let it run on with --force"
    )
    assert cluster.world() == before


async def test_an_object_that_cannot_be_read_is_named_and_nothing_is_written(
    cluster: InstalledCluster,
):
    await _without_webhooks(cluster)
    body = {"spec": {"replicas": "of the next version"}}
    await cluster.client.merge_patch(
        resources.DEPLOYMENTS, body, name=constants.NAME, namespace=NAMESPACE
    )
    before = cluster.world()
    with pytest.raises(RemovalError, match=r"Deployment .* cannot be read by this version"):
        await cluster.removal().run()
    assert cluster.world() == before


@pytest.mark.parametrize(
    ("seconds_left", "is_refused"),
    [pytest.param(30, True, id="reserved"), pytest.param(-1, False, id="expired")],
)
async def test_waiting_pod_counts_while_its_reservation_holds(
    cluster: InstalledCluster, seconds_left: int, is_refused: bool
):
    await _without_webhooks(cluster)
    expires_at = cluster.clock.utc_now() + dt.timedelta(seconds=seconds_left)
    note = ReservationNote(id="r", pool=POOL, node="n1", expires_at=expires_at)
    await cluster.add_pod("waits", **{RESERVATION_ANNOTATION: note.encode()})
    if is_refused:
        with pytest.raises(RemovalError, match=r"default/waits \(2 units .*, reserved\)"):
            await cluster.removal().run()
    else:
        await cluster.removal().run()


async def test_forced_removal_leaves_pods_as_they_are_and_names_them(cluster: InstalledCluster):
    await _without_webhooks(cluster)
    await cluster.add_pod("train", node="n1")
    await cluster.add_pod("waits")

    def theirs() -> dict[str, Any]:
        return {
            key: body
            for key, body in cluster.world().items()
            if key.startswith("Pod ") and "scale-x" not in key
        }

    before = theirs()
    await cluster.removal(is_forced=True).run()
    assert theirs() == before
    assert "left: 1 pod keeps its devices: default/train" in cluster.lines
    assert any(line.startswith("left: 1 pod of a pool stays Pending") for line in cluster.lines)


async def test_policy_of_pods_goes_first_and_webhooks_before_the_server(cluster: InstalledCluster):
    await cluster.removal().run()
    writes = [
        (write.method, write.path.rpartition("/apis/")[2])
        for write in cluster.api.requests.writes()
    ]
    paths = [path for method, path in writes if method in {"DELETE", "PUT", "PATCH"}]
    order = [
        "validatingadmissionpolicybindings/gpu-control-plane-annotations",
        "validatingadmissionpolicies/gpu-control-plane-annotations",
        "mutatingwebhookconfigurations/zz-gpu-control-plane",
        "leases/gpu-control-plane",
        "deployments/gpu-control-plane/scale",
        "daemonsets/gpu-node-agent",
        "nodefeatures/gpu-control-plane-agent-n1",
        "nodes/n1",
        "gpupools/training",
        "validatingadmissionpolicies/gpu-control-plane-server",
        "secrets/gpu-control-plane-tls",
        "deployments/gpu-control-plane",
        "clusterroles/gpu-control-plane",
        "namespaces/gpu-control-plane",
    ]
    places = [
        next(place for place, path in enumerate(paths) if path.endswith(suffix)) for suffix in order
    ]
    assert places == sorted(places)


async def test_objects_of_helm_are_left_to_helm_but_webhooks_go(cluster: InstalledCluster):
    annotations = {"meta.helm.sh/release-name": "gpu"}
    for resource in (resources.DEPLOYMENTS, resources.SERVICES):
        await cluster.client.merge_patch(
            resource,
            {"metadata": {"annotations": annotations}},
            name=constants.NAME,
            namespace=NAMESPACE,
        )
    await cluster.client.merge_patch(
        resources.NAMESPACES, {"metadata": {"annotations": annotations}}, name=NAMESPACE
    )
    await cluster.removal().run()
    world = cluster.world()
    assert world[f"Deployment {NAMESPACE}/{constants.NAME}"]["spec"]["replicas"] == 0
    assert f"Service {NAMESPACE}/{constants.NAME}" in world
    assert not any("WebhookConfiguration" in key for key in world)
    assert "left: 3 objects of the Helm release gpu: helm uninstall deletes them" in cluster.lines


async def test_applied_objects_are_kept_for_the_tool_that_applied_them(cluster: InstalledCluster):
    await cluster.removal(with_applied=False).run()
    world = cluster.world()
    assert world[f"Deployment {NAMESPACE}/{constants.NAME}"]["spec"]["replicas"] == 0
    for kept in (
        f"Service {NAMESPACE}/{constants.NAME}",
        f"ServiceAccount {NAMESPACE}/{constants.NAME}",
        f"ClusterRole /{constants.NAME}",
        f"Namespace /{NAMESPACE}",
    ):
        assert kept in world
    kinds = {key.partition(" ")[0] for key in world}
    assert not kinds & {
        "DaemonSet",
        "Lease",
        "MutatingWebhookConfiguration",
        "NodeFeature",
        "Secret",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    }
    cluster.api.requests.clear()
    await cluster.removal(with_applied=False).run()
    assert cluster.api.requests.writes() == []


@pytest.mark.parametrize(
    ("labels", "stays"), [({}, True), ({OPERAND_LABEL: "state-driver"}, False)]
)
async def test_namespace_with_pods_of_others_stays(
    cluster: InstalledCluster, labels: dict[str, str], stays: bool
):
    """Pods of a ClusterPolicy's states are not others', and may end later than the agents."""
    spec = {"containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": "beside", "namespace": NAMESPACE, "labels": labels}
    await cluster.client.create(
        resources.PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    )
    await cluster.removal().run()
    assert (f"Namespace /{NAMESPACE}" in cluster.world()) is stays


async def test_leader_elsewhere_stops_writing_and_is_named(cluster: InstalledCluster):
    """A server outside the cluster marks a node again and again while it leads."""
    await cluster.client.delete(resources.LEASES, constants.LEASE_NAME, namespace=NAMESPACE)
    await cluster.client.merge_patch(
        resources.DEPLOYMENTS, {"spec": {"replicas": 0}}, name=constants.NAME, namespace=NAMESPACE
    )
    election = LeaderElection(
        cluster.server_client,
        cluster.clock,
        LeaseTimes(namespace=NAMESPACE, name=constants.LEASE_NAME),
        identity="outside",
    )
    async with asyncio.TaskGroup() as group:
        leads = group.create_task(election.run(lambda: None, lambda: None))
        await election.leading.wait()
        writes = group.create_task(_mark_while_leading(cluster.server_client, election))
        await cluster.removal().run()
        writes.cancel()
        leads.cancel()
    assert not _marked(cluster)
    (line,) = [line for line in cluster.lines if "left: server" in line]
    assert election.identity in line
    # Stopped, as the line says.
    await cluster.removal().run()
    assert cluster.ours() == {*KEPT_KINDS, NODE_OF_THE_OPERATOR}


async def _mark_while_leading(client: KubeClient, election: LeaderElection) -> None:
    while True:
        if election.is_leading():
            await mark_node(client, "n1")
        await asyncio.sleep(0.05)


def _marked(cluster: InstalledCluster) -> bool:
    labels = cluster.world()["Node /n1"]["metadata"]["labels"]
    return any(key.startswith(POOL_NODE_LABEL_PREFIX) for key in labels)


async def test_replica_that_follows_takes_over_at_no_step(cluster: InstalledCluster):
    follower = LeaderElection(
        cluster.server_client,
        cluster.clock,
        LeaseTimes(namespace=NAMESPACE, name=constants.LEASE_NAME, lease_duration_s=20.0),
        identity="follower",
    )
    async with asyncio.TaskGroup() as group:
        waits = group.create_task(follower.run(lambda: None, lambda: None))
        await asyncio.sleep(1.0)
        await cluster.removal().run()
        waits.cancel()
    assert follower.term is None


async def test_config_map_of_the_user_in_our_namespace_is_not_touched(cluster: InstalledCluster):
    metadata = {"name": "users", "namespace": NAMESPACE}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    await cluster.client.create(resources.CONFIG_MAPS, body)
    await cluster.removal(with_applied=False).run()
    assert f"ConfigMap {NAMESPACE}/users" in cluster.world()


async def test_taint_of_another_owner_under_the_same_key_stays(cluster: InstalledCluster):
    body = {"metadata": {"annotations": {"gpu.deckhouse.io/pool-taints": None}}}
    await cluster.client.merge_patch(resources.NODES, body, name="n1")
    await cluster.removal().run()
    taints = cluster.world()["Node /n1"]["spec"]["taints"]
    assert [taint["key"] for taint in taints] == ["example.com/other", "gpu.deckhouse.io/only"]


async def _without_webhooks(cluster: InstalledCluster) -> None:
    """Let pods of pools be created: nobody answers the webhooks here."""
    await cluster.client.delete(
        resources.MUTATING_WEBHOOK_CONFIGURATIONS, constants.MUTATING_CONFIGURATION
    )
    await cluster.client.delete(
        resources.VALIDATING_WEBHOOK_CONFIGURATIONS, constants.VALIDATING_CONFIGURATION
    )


async def test_secret_that_cert_manager_issued_is_left_while_its_certificate_is(
    cluster: InstalledCluster,
):
    annotations = {"cert-manager.io/certificate-name": constants.SERVING_SECRET}
    await cluster.client.merge_patch(
        resources.SECRETS,
        {"metadata": {"annotations": annotations}},
        name=constants.SERVING_SECRET,
        namespace=NAMESPACE,
    )
    await cluster.removal(with_applied=False).run()
    assert f"Secret {NAMESPACE}/{constants.SERVING_SECRET}" in cluster.world()
    assert f"Secret {NAMESPACE}/{constants.SCHEDULER_SECRET}" not in cluster.world()
    await cluster.removal().run()
    assert cluster.ours() == {*KEPT_KINDS, NODE_OF_THE_OPERATOR}


@pytest.mark.parametrize("is_issued", [True, False], ids=["issued", "given by the operator"])
async def test_the_console_goes_and_its_certificate_where_cert_manager_issued_it(
    cluster: InstalledCluster,
    is_issued: bool,
):
    console = {"enabled": True, "tls": {"secretName": constants.CONSOLE_SECRET}}
    values = ChartValues.model_validate({"console": console})
    groups = build_groups(build_installation(values, namespace=NAMESPACE))
    made = [
        object_
        for group in groups
        if group.name.startswith("console") and group.is_selected(values)
        for object_ in group.objects
    ]
    assert {"Deployment", "Service", "ClusterRole", "Role"} <= {item["kind"] for item in made}
    await _without_webhooks(cluster)
    await cluster.create(*made)
    annotation = {"cert-manager.io/certificate-name": constants.CONSOLE_SECRET}
    metadata = {
        "name": constants.CONSOLE_SECRET,
        "namespace": NAMESPACE,
        "annotations": annotation if is_issued else {},
    }
    await cluster.client.create(
        resources.SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    )
    # Made before, as by kubectl, so that it stays.
    body = {"metadata": {"labels": {"app.kubernetes.io/part-of": None}}}
    await cluster.client.merge_patch(resources.NAMESPACES, body, name=NAMESPACE)
    await cluster.removal().run()
    left = {key for key in cluster.world() if constants.CONSOLE in key}
    assert left == (set() if is_issued else {f"Secret {NAMESPACE}/{constants.CONSOLE_SECRET}"})


async def test_namespace_that_stays_admits_privileged_pods_no_more(cluster: InstalledCluster):
    labels = {
        # As `kubectl create namespace` makes it.
        "app.kubernetes.io/part-of": None,
        "pod-security.kubernetes.io/enforce": None,
        "pod-security.kubernetes.io/audit": None,
        "pod-security.kubernetes.io/warn": "baseline",
        "example.com/theirs": "yes",
    }
    await cluster.client.merge_patch(
        resources.NAMESPACES, {"metadata": {"labels": labels}}, name=NAMESPACE
    )
    await cluster.server_client.merge_patch(
        resources.NAMESPACES,
        {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}},
        name=NAMESPACE,
    )
    await cluster.removal().run()
    left = cluster.world()[f"Namespace /{NAMESPACE}"]["metadata"]["labels"]
    assert left == {
        "app.kubernetes.io/name": constants.NAME,
        "example.com/theirs": "yes",
        "kubernetes.io/metadata.name": NAMESPACE,
        "pod-security.kubernetes.io/warn": "baseline",
    }


async def test_wrong_namespace_is_refused_with_the_right_one(cluster: InstalledCluster):
    await _without_webhooks(cluster)
    settings = WebhookSettings(client=ServiceClient(namespace="gpu-system"))
    await cluster.create(build_mutating_configuration(settings))
    before = cluster.world()
    with pytest.raises(RemovalError, match="Then pass --namespace gpu-system"):
        await cluster.removal(is_forced=True).run()
    assert cluster.world() == before


async def test_objects_of_a_cluster_policy_go_and_the_policy_stays_without_our_finalizer(
    cluster: InstalledCluster,
):
    await add_node_software(cluster)
    await cluster.removal(own=WITH_NODE_SOFTWARE).run()
    left = {key for key, body in cluster.world().items() if OPERAND_LABEL in str(body)}
    assert left == set()
    policy = cluster.world()["ClusterPolicy /gpus"]
    assert policy["metadata"]["finalizers"] == ["example.com/theirs"]
    node = cluster.world()["Node /n1"]
    assert node["metadata"]["annotations"] == {"example.com/note": "x"}
    assert UPGRADE_STATE_LABEL not in node["metadata"]["labels"]
    assert AGENT_DEPLOY_LABEL not in node["metadata"]["labels"]
    assert "unschedulable" not in node["spec"]
    assert cluster.world()[NODE_OF_THE_OPERATOR]["spec"]["unschedulable"]
