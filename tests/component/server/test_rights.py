"""The rights that we ask for are those that the code uses: each request is allowed, each right used.

The in-memory API server notes every request; what a real one would ask its authorizer is worked out
from the paths.
"""

from typing import Any

import pytest

from api.annotations import encode_devices
from api.cache_name import CacheName
from api.clock import Instant
from api.foreign.karpenter import NodeClaim
from api.meta import PartialObjectMetadata
from api.names import (
    AGENT_NOT_READY_TAINT,
    API_VERSION,
    COMPONENT_LABEL,
    DEVICE_NODE_LABEL,
    DEVICES_ANNOTATION,
    OPERAND_LABEL,
    SCALE_REQUEST_LABEL,
    SCALE_SIGNAL,
    NodeName,
    PodUid,
    UnitId,
)
from autoscaling.scaling_model import RequestId
from http_edge.reviews.kube_reviews import KubeReviews
from http_edge.reviews.review_cache import TokenRefusal
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.event_recorder import Event, EventRecorder, ObjectReference
from kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    GPU_POOLS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NODE_CLAIMS,
    NODE_FEATURES,
    NODE_POOLS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
    SERVICE_MONITORS,
    STORAGE_CLASSES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    VERTICAL_POD_AUTOSCALERS,
    Resource,
)
from manifests import constants
from reconciler.node_software import built_in_rights as rights
from reconciler.node_software.objects import RESOURCES
from reconciler.pod.nomination import NominationWriter
from reconciler.pod.requeue import SchedulerRequeue
from reconciler.scaling.handover import node_handover
from reconciler.scaling.node_claim_watch import node_claim_watch
from reconciler.sinks.karpenter import observe_claim
from scheduler.ports import BindWritten, BoundReading, PodBinding, PodRef
from server.binder import KubeBinder
from server.configuration.config_definition import build_config_crd
from server.configuration.config_source import ConfigSource
from server.leadership.fence import Fence
from simulator.apiserver.requestlog import LoggedRequest
from simulator.node.kubelet import register_node
from telemetry.reasons import EventReason
from tests.component.reconciler.cache_world import CacheWorld, install_cache_kinds
from tests.component.reconciler.test_node_operands import a_definition
from tests.support.allocation_state import a_reserved_pod, some_allocation_state, some_devices
from tests.support.builders import a_pod_facts, at
from tests.support.controllers import a_context
from tests.support.hand_made import a_device, a_pool
from tests.support.kernel_caches import D1, a_digest
from tests.support.loop_clock import LoopClock, ServerClock
from tests.support.module_configs import MODULE_CONFIG_CRD
from tests.support.node_features import agent_device, agent_feature
from tests.support.polling import until
from tests.support.reviews import a_pod_object
from tests.support.rights import Right, allows, asked_by, asked_in, our_rights
from tests.support.running_server import SERVER_TOKEN, SERVER_USER, Cluster, a_server, settings_for

NAMESPACE = constants.DEFAULT_NAMESPACE


async def add_objects(cluster: Cluster) -> None:
    await cluster.install_discovery()
    await register_node(cluster.client, "n1", {})
    device = a_device("n1", 0, "whole")
    # Nobody answers the webhook of an annotated device yet; the pool takes it without.
    del device["metadata"]["annotations"]
    await cluster.client.create(GPU_DEVICES, device)
    await cluster.client.merge_patch(
        GPU_DEVICES,
        {"status": device["status"]},
        name=device["metadata"]["name"],
        subresource="status",
    )
    for name in ("bound", "waiting"):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        await cluster.client.create(PODS, body)


async def add_node_pool(cluster: Cluster) -> None:
    template = {
        "requirements": [{"key": SCALE_REQUEST_LABEL, "operator": "Exists"}],
        "startupTaints": [{"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}],
    }
    body = {
        "apiVersion": NODE_POOLS.api_version,
        "kind": NODE_POOLS.kind,
        "metadata": {"name": "growing"},
        "spec": {"template": {"spec": template}},
    }
    await cluster.client.create(NODE_POOLS, body)


async def add_objects_of_an_earlier_version(cluster: Cluster) -> None:
    """A device and an inventory that their Node owns."""
    await register_node(cluster.client, "n0", {})
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "uid-n0"}
    for resource, name in ((GPU_DEVICES, "n0-0000-17-00.0"), (GPU_NODE_INVENTORIES, "n0")):
        metadata = {"name": name, "labels": {DEVICE_NODE_LABEL: "x"}, "ownerReferences": [owner]}
        body = {"apiVersion": API_VERSION, "kind": resource.kind, "metadata": metadata}
        await cluster.client.create(resource, body)
    status = {"nodeName": "n0", "pci": {"address": "0000:17:00.0"}}
    await cluster.client.merge_patch(
        GPU_DEVICES, {"status": status}, name="n0-0000-17-00.0", subresource="status"
    )


async def until_written(cluster: Cluster, method: str, path: str) -> None:
    """Wait until the server has written there."""

    def is_written() -> bool:
        writes = cluster.api.requests.writes(user=SERVER_USER, path=path)
        return any(write.method == method for write in writes)

    await until(is_written)


async def run_all_operands(cluster: Cluster) -> None:
    """Let an earlier leader run every operand, beside those of an earlier version; the next one has them run elsewhere.

    So the leaders delete all of them.
    """
    for resource in (SERVICE_MONITORS, VERTICAL_POD_AUTOSCALERS):
        await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, a_definition(resource))
    for kind, names in rights.FORMER.items():
        resource = RESOURCES[kind]
        for name in sorted(names):
            metadata = {"name": name, "labels": {OPERAND_LABEL: "of-an-earlier-version"}}
            place = {"namespace": NAMESPACE} if resource.namespaced else {}
            head = {"apiVersion": resource.api_version, "kind": kind}
            await cluster.client.create(resource, {**head, "metadata": {**metadata, **place}})
    for source, written in (("DCGM", "nvidia-dcgm-exporter"), ("NVML", "gpu-node-agent-metrics")):
        async with a_server(cluster, bootstrap=every_operand(source)) as server:
            await server.until_ready()
            await until_written(cluster, "PATCH", f"/servicemonitors/{written}")


def every_operand(source: str) -> dict[str, Any]:
    image = "registry.test/nvidia:1"
    return {
        "gfd": {"enabled": True, "image": image},
        "dcgm": {"enabled": source == "DCGM", "image": image},
        "dcgm_exporter": {"enabled": True, "source": source, "image": image},
    }


def passed_on() -> set[Right]:
    """Return the rights that the server holds to grant them to operands."""
    of = [(rights.PASSED_ON, "*"), (rights.PASSED_ON_IN_NAMESPACE, NAMESPACE)]
    return {
        (namespace, rule.group, resource, "*", verb)
        for rules, namespace in of
        for rule in rules
        for resource in rule.resources
        for verb in rule.verbs
    }


async def run_the_server(cluster: Cluster) -> None:
    """From nothing to leading, and through the life of a node and of a pool."""
    clock = ServerClock()
    for definition in (build_config_crd(), MODULE_CONFIG_CRD):
        await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    settings = settings_for(
        cluster,
        cluster.port,
        inventory={"node_gone_s": 2},
        bootstrap={"operands": "External"},
        listen={"advertised_address": "127.0.0.1"},
    )
    source = ConfigSource(installation=settings.model_dump(mode="json", exclude_unset=True))
    async with a_server(cluster, clock=clock, source=source) as server:
        await server.until_ready()
        for path in (
            "/gpudevices/n0-0000-17-00.0",
            "/gpunodeinventories/n0",
            f"/namespaces/{NAMESPACE}",
            f"/deployments/{constants.SCHEDULER_DEPLOYMENT}",
            f"/endpointslices/{constants.SERVICE_NAME}",
        ):
            await until_written(cluster, "PATCH", path)
        await a_pool_is_made(cluster)
        await a_pool_grows(cluster)
        await certificates_are_repaired(cluster)
        await a_node_comes_and_goes(cluster, clock)
        await a_pod_is_evicted(cluster)
        await cluster.client.delete(GPU_POOLS, "whole")
        for kind in ("configmaps", "daemonsets"):
            await until_written(cluster, "DELETE", f"/{kind}/")


async def a_pool_is_made(cluster: Cluster) -> None:
    pool = a_pool()
    pool["spec"] |= {
        "assignment": {"requireAnnotation": False},
        "maintenance": {"policy": "Evict"},
    }
    await cluster.client.create(GPU_POOLS, pool)
    for path in ("/gpupools/whole/status", "/gpudevices/", "/nodes/n1"):
        await until_written(cluster, "PATCH", path)
    for kind in ("configmaps", "daemonsets"):
        await until_written(cluster, "PATCH", f"/{kind}/")


async def a_pool_grows(cluster: Cluster) -> None:
    """A pod with volumes waits, a node is asked for, and the pool stops scaling."""
    pool = a_pool() | {"metadata": {"name": "growing"}}
    shapes = [{"name": "one", "devices": 1}]
    pool["spec"] = {"assignment": {"requireAnnotation": False}, "autoscaling": {"shapes": shapes}}
    await cluster.client.create(GPU_POOLS, pool)
    body = a_pod_object(1, "growing", "hopeful", apiVersion="v1", kind="Pod")
    body["metadata"] = {"name": "hopeful", "namespace": "default"}
    claims = {"bound": {"volumeName": "disk"}, "later": {"storageClassName": "late"}}
    body["spec"]["volumes"] = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims
    ]
    volumes: list[tuple[Resource, str, dict[str, Any]]] = [
        (PERSISTENT_VOLUMES, "disk", {"spec": {}}),
        (STORAGE_CLASSES, "late", {"volumeBindingMode": "WaitForFirstConsumer"}),
        *((PERSISTENT_VOLUME_CLAIMS, name, {"spec": spec}) for name, spec in claims.items()),
    ]
    for resource, name, fields in volumes:
        namespace = {"namespace": "default"} if resource.namespaced else {}
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        await cluster.client.create(
            resource, {**head, "metadata": {"name": name, **namespace}, **fields}
        )
    await cluster.client.create(PODS, body)
    await until_written(cluster, "POST", f"/namespaces/{NAMESPACE}/pods")
    await until_written(cluster, "PATCH", "/pods/scale-growing-")
    patch = {"spec": {"autoscaling": None}}
    await cluster.client.merge_patch(GPU_POOLS, patch, name="growing")
    await until_written(cluster, "DELETE", "/pods/scale-growing-")


async def certificates_are_repaired(cluster: Cluster) -> None:
    await cluster.client.merge_patch(
        SECRETS,
        {"data": {"scheduler.crt": None}},
        name=constants.SERVING_SECRET,
        namespace=NAMESPACE,
    )
    await until_written(cluster, "PATCH", f"/secrets/{constants.SERVING_SECRET}")
    await until_written(cluster, "PUT", f"/leases/{constants.LEASE_NAME}")


async def a_node_comes_and_goes(cluster: Cluster, clock: ServerClock) -> None:
    """One of its two devices is pulled before; what it leaves behind goes after a grace."""
    await register_node(cluster.client, "n2", {})
    for count in (2, 1):
        reported = [agent_device("n2", number) for number in range(count)]
        feature = agent_feature("n2", reported, heartbeat=clock.utc_now())
        await cluster.client.apply(NODE_FEATURES, feature, field_manager="agent")
        if count == 2:
            await until_written(cluster, "POST", "/gpudevices")
            await until_written(cluster, "PATCH", "/gpunodeinventories/n2/status")
    await until_written(cluster, "DELETE", "/gpudevices/")
    await cluster.client.delete(NODES, "n2")
    await until_written(cluster, "DELETE", "/gpunodeinventories/n2")


async def a_pod_is_evicted(cluster: Cluster) -> None:
    """A pool that is cut again empties its devices."""
    body = a_pod_object(1, "whole", "tenant", apiVersion="v1", kind="Pod")
    body["metadata"] = {"name": "tenant", "namespace": "default"}
    await cluster.client.create(PODS, body)
    binding = {
        "metadata": {
            "name": "tenant",
            "annotations": {DEVICES_ANNOTATION: encode_devices({"main": (UnitId("GPU-n1-0"),)})},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    await cluster.client.create(
        PODS, binding, namespace="default", name="tenant", subresource="binding"
    )
    finer = {"mode": "TimeSlice", "slicesPerDevice": 4}
    await cluster.client.merge_patch(GPU_POOLS, {"spec": {"allocation": finer}}, name="whole")
    await until_written(cluster, "POST", "/pods/tenant/eviction")


async def bind_and_read(cluster: Cluster, client: KubeClient) -> None:
    """A binding whose end is in doubt is resolved by reading the pod."""
    uid = (await cluster.stored_pod("bound")).metadata.uid
    binder = KubeBinder(client, 1.0)
    bound = await binder.bind(PodBinding("default", "bound", PodUid(uid), NodeName("n1"), {}))
    assert bound == BindWritten()
    seen = await binder.read(PodRef("default", "bound", PodUid(uid)))
    assert isinstance(seen, BoundReading)


async def take_over_from_another(client: KubeClient) -> None:
    """The server has written the first term; the next one changes it."""
    await Fence(client, constants.LEASE_NAME, "the next one").begin(lambda: True)


async def wake(cluster: Cluster, client: KubeClient) -> None:
    uid = (await cluster.stored_pod("waiting")).metadata.uid
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_pod_facts("waiting", uid=PodUid(uid)), at(0))
    times = iter(range(0, 1000, 100))

    def now() -> Instant:
        return at(next(times))

    requeue = SchedulerRequeue(client, allocation_state.index, now, reader=allocation_state.reader)
    assert requeue.due() == []
    (pod,) = requeue.due()
    await requeue._write_wake_annotation(pod)


async def nominate(cluster: Cluster, client: KubeClient) -> None:
    uid = (await cluster.stored_pod("waiting")).metadata.uid
    allocation_state = some_allocation_state(devices=some_devices(1))
    a_reserved_pod(allocation_state, "waiting", uid=PodUid(uid))
    nominating = NominationWriter(client, allocation_state.reader, lambda: at(0), head=0)
    assert await nominating.nominate(nominating.due())


async def delete_signals(cluster: Cluster, client: KubeClient) -> None:
    """A node that came for pods is handed over, which ends its request."""
    request = RequestId("whole-1")
    signal = a_pod_object(1, "whole", "signal", apiVersion="v1", kind="Pod")
    labels = {COMPONENT_LABEL: SCALE_SIGNAL, SCALE_REQUEST_LABEL: request}
    signal["metadata"] = {"name": "signal", "namespace": NAMESPACE, "labels": labels}
    signal["spec"]["containers"][0].pop("resources")
    await cluster.client.create(PODS, signal)
    await node_handover(a_context(client=client))._delete_signals(request)


async def delete_claim(cluster: Cluster, client: KubeClient) -> None:
    """A node that never has devices goes."""
    head = {"apiVersion": NODE_CLAIMS.api_version, "kind": NODE_CLAIMS.kind}
    written = await cluster.client.create(
        NODE_CLAIMS, {**head, "metadata": {"name": "whole-1"}, "spec": {}}
    )
    claim = observe_claim(written.decode(NodeClaim))
    assert await node_claim_watch(a_context(client=client))._delete(claim)


async def serve_caches(cluster: Cluster, client: KubeClient) -> None:
    """Caches of both scopes are resolved, and the objects of a node that is gone go."""
    for resource in (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS):
        for item in (await cluster.client.list_(resource, PartialObjectMetadata)).items:
            await cluster.client.delete(resource, item.metadata.name)
    world = CacheWorld(cluster.api, cluster.client, client)
    shared = CacheName(namespace="", name="shared")
    for name in (CacheName(namespace="default", name="llama"), shared):
        await world.add_cache(name, digest=D1)
        await world.report("gone", {name.name: {D1: a_digest()}}, namespace=name.namespace)
    await world.until_stable(user=SERVER_USER)
    assert (await world.cache(shared)).status.resolved_digest == D1
    assert await world.node_objects() == []


async def review(client: KubeClient) -> None:
    """A caller of /metrics/usage."""
    result = await KubeReviews(client, constants.USAGE_METRICS_PATH).review(SERVER_TOKEN)
    assert result is TokenRefusal.FORBIDDEN


async def publish_twice(client: KubeClient) -> None:
    recorder = EventRecorder(
        client, LoopClock(), reporting_controller="test/engine", reporting_instance="one"
    )
    event = Event(
        regarding=ObjectReference(
            api_version="v1", kind="Pod", name="waiting", namespace="default"
        ),
        type="Warning",
        reason=EventReason.RESERVATION_EXPIRED.value,
        action="Reserving",
        note="over",
    )
    for _ in range(2):
        recorder.emit(event)
        await recorder._write(recorder._waiting.get_nowait())
        recorder._series[next(iter(recorder._series))].is_waiting = False


@pytest.mark.looptime
async def test_every_request_is_allowed_and_every_right_is_used(cluster: Cluster):
    await cluster.install_scheduler()
    await cluster.install_service()
    await cluster.install_karpenter()
    await install_cache_kinds(cluster.client)
    await add_objects(cluster)
    await add_objects_of_an_earlier_version(cluster)
    await add_node_pool(cluster)
    await run_all_operands(cluster)
    await run_the_server(cluster)
    configuration = StaticConnection(cluster.api.url, token=SERVER_TOKEN)
    async with KubeClient(configuration, LoopClock()) as client:
        await bind_and_read(cluster, client)
        await take_over_from_another(client)
        await wake(cluster, client)
        await nominate(cluster, client)
        await delete_signals(cluster, client)
        await delete_claim(cluster, client)
        await serve_caches(cluster, client)
        await publish_twice(client)
        await review(client)
    granted, asked = our_rights(), asked_in(cluster.api.requests)
    forbidden = [item for item in asked if not any(allows(right, item) for right in granted)]
    used = (item for item in granted if any(allows(item, right) for right in asked))
    unused = sorted(granted - {*used} - passed_on())
    assert (forbidden, unused) == ([], [])


@pytest.mark.parametrize(
    ("method", "path", "want"),
    [
        ("GET", "/api/v1/pods", {("*", "", "pods", "", "list")}),
        ("GET", "/api/v1/namespaces/a/pods/p", {("a", "", "pods", "p", "get")}),
        ("GET", "/api/v1/namespaces/a", {("a", "", "namespaces", "a", "get")}),
        ("POST", "/api/v1/namespaces/a/pods/p/binding", {("a", "", "pods/binding", "p", "create")}),
        ("PATCH", "/apis/g/v1/things/t/status", {("*", "g", "things/status", "t", "patch")}),
        ("PATCH", "/apis/g/v1/things/t", {("*", "g", "things", "t", "patch")}),
    ],
)
def test_a_request_takes_the_right_that_its_path_says(method: str, path: str, want: set[Right]):
    assert asked_by(LoggedRequest(method=method, path=path, user="u")) == want


def test_a_watch_takes_a_right_of_its_own():
    request = LoggedRequest(method="GET", path="/api/v1/pods", user="u", query="watch=true")
    assert asked_by(request) == {("*", "", "pods", "", "watch")}


def test_an_apply_may_have_to_create_its_object_but_never_a_subresource():
    query = "fieldManager=m&force=true"
    whole = LoggedRequest(method="PATCH", path="/apis/g/v1/things/t", user="u", query=query)
    assert asked_by(whole) == {("*", "g", "things", "t", verb) for verb in ("create", "patch")}
    status = LoggedRequest(method="PATCH", path="/apis/g/v1/things/t/status", user="u", query=query)
    assert asked_by(status) == {("*", "g", "things/status", "t", "patch")}


def test_a_right_in_one_namespace_or_to_one_name_goes_no_further():
    secret = ("ours", "", "secrets", "*", "get")
    assert allows(secret, ("ours", "", "secrets", "any", "get"))
    assert not allows(secret, ("other", "", "secrets", "any", "get"))
    named = ("*", "g", "things", "one", "patch")
    assert allows(named, ("*", "g", "things", "one", "patch"))
    assert not allows(named, ("*", "g", "things", "two", "patch"))
