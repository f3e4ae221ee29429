"""What is done to a running server while its metrics are watched, each thing counted as it is done."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from api.foreign.core import Pod
from api.names import DEVICES_ANNOTATION
from kube.errors import KubeError
from kube.resources import GPU_DEVICES, GPU_POOLS, MUTATING_WEBHOOK_CONFIGURATIONS, PODS
from manifests import constants
from simulator.node.kubelet import register_node
from tests.support.metric_samples import Counted, exported
from tests.support.polling import until
from tests.support.reviews import a_device_object, a_pod_object, a_pool_object, a_review
from tests.support.running_server import Cluster, RunningServer
from tests.support.scheduling import a_wire_pod, preemption_args

DEVICES = 8
WATCHED = (
    "gpupools",
    "gpudevices",
    "gpunodeinventories",
    "nodes",
    "namespaces",
    "configmaps",
    "daemonsets",
    "operand pods",
    "scale signals",
    "nodeclaims",
    "nodepools",
    "nodefeatures",
    "pods",
)
NOT_SERVED = ("gkmcaches", "clustergkmcaches", "gkmcachenodes", "clustergkmcachenodes")
"""Kinds that are not installed here, which count as listed and empty."""
SERVING = {"whole": 8, "slow": 120}
"""Pools, and the TTL of their reservations in seconds: longer than the watch may take to show a pod."""


class MetricsRun:
    """What is done to the server, each thing counted as it is done."""

    def __init__(self, cluster: Cluster, server: RunningServer) -> None:
        self.cluster = cluster
        self.server = server
        self.counted = Counted()
        self.extender: Counter[tuple[str, ...]] = Counter()
        self.admission: Counter[tuple[str, ...]] = Counter()
        self.refusals: Counter[tuple[str, ...]] = Counter()
        self.ended: Counter[tuple[str, ...]] = Counter()
        self.failed: Counter[tuple[str, ...]] = Counter()
        self.scrapes: Counter[tuple[str, ...]] = Counter()

    # --- the world ---------------------------------------------------------------------------------

    async def add_pool(self, name: str, ttl: str) -> None:
        spec = {"allocation": {"mode": "Exclusive"}, "reservation": {"ttl": ttl}}
        await self.cluster.client.create(GPU_POOLS, a_pool_object(name, **spec))
        self.admission["allowed", "validate-gpupools"] += 1

    async def add_device(self, number: int, pool: str | None) -> None:
        name, uuid = f"n1-{number}", f"GPU-{number}"
        status: dict[str, Any] = {"uuid": uuid, "inventoryID": name, "nodeName": "n1"}
        if pool is not None:
            status["poolRef"] = {"name": pool}
            self.admission["patched", "mutate-gpudevices"] += 1
            self.admission["allowed", "validate-gpudevices"] += 1
        device = a_device_object(pool, name=name, status=status)
        await self.cluster.client.create(GPU_DEVICES, device)
        await self.cluster.client.merge_patch(
            GPU_DEVICES, {"status": device["status"]}, name=name, subresource="status"
        )

    async def admit(self, name: str, pool: str = "whole", gpus: int = 1) -> str:
        body = a_pod_object(gpus, pool, name, apiVersion="v1", kind="Pod")
        body["metadata"] = {"name": name, "namespace": "default"}
        await self.cluster.client.create(PODS, body, namespace="default")
        self.admission["patched", "mutate-pods"] += 1
        self.admission["allowed", "validate-pods"] += 1
        return (await self.cluster.stored_pod(name)).metadata.uid

    async def is_refused(self, reason: str, **pod: Any) -> None:
        with pytest.raises(KubeError, match=reason):
            await self.admit("refused", **pod)
        self.admission["denied", "mutate-pods"] += 1
        self.refusals[reason,] += 1

    async def ask(self, verb: str, path: str, body: bytes, *, outcome: str) -> None:
        status, _ = await self.server.call("POST", path, body)
        assert status == 200
        self.extender[outcome, verb] += 1

    async def filter(self, name: str, *, outcome: str = "fits") -> None:
        pod = await self.cluster.client.get(PODS, dict[str, Any], name, namespace="default")
        body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": ["n1"]})
        await self.ask("filter", constants.FILTER_PATH, body, outcome=outcome)
        if outcome == "fits":
            await self.ask("prioritize", constants.PRIORITIZE_PATH, body, outcome=outcome)

    async def bind(self, name: str, uid: str, *, outcome: str = "bound") -> None:
        fields = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": "n1"}
        await self.ask("bind", constants.BIND_PATH, msgspec.json.encode(fields), outcome=outcome)

    async def bind_around(self, name: str, annotations: dict[str, str]) -> None:
        """A Binding by another client."""
        target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        body = {"metadata": {"name": name, "annotations": annotations}, "target": target}
        await self.cluster.client.create(
            PODS, body, namespace="default", name=name, subresource="binding"
        )

    # --- what is told ------------------------------------------------------------------------------

    async def pods(self) -> list[Pod]:
        return (await self.cluster.client.list_(PODS, Pod)).items

    def written_events(self) -> int:
        return sum(
            write.method == "POST" for write in self.cluster.api.requests.writes(path="/events")
        )

    def requests(self) -> Counter[str]:
        """Requests by method: of the server, and of the operator, whose client is in this process too."""
        return Counter(request.method for request in self.cluster.api.requests)


async def the_world_begins(run: MetricsRun) -> None:
    for name, ttl_s in SERVING.items():
        await run.add_pool(name, f"{ttl_s}s")
    await run.add_pool("gone", "60s")
    await register_node(run.cluster.client, "n1", {"gpu.deckhouse.io/whole": DEVICES})
    await comes_to(lambda: exported("gpupool_capacity_total"), {("whole",): 0, ("slow",): 0, ("gone",): 0})  # fmt: skip
    for number in range(DEVICES):
        await run.add_device(number, "whole")
    await run.add_device(DEVICES, "slow")
    await run.add_device(DEVICES + 1, None)
    await comes_to(lambda: exported("gpupool_capacity_total"), {("whole",): DEVICES, ("slow",): 1, ("gone",): 0})  # fmt: skip
    await run.cluster.client.delete(GPU_POOLS, "gone")
    await comes_to(lambda: exported("gpupool_capacity_total"), {("whole",): DEVICES, ("slow",): 1})


async def pods_are_admitted_bound_and_deleted(run: MetricsRun) -> None:
    first, second = await run.admit("first"), await run.admit("second")
    for name, uid in (("first", first), ("second", second)):
        await run.filter(name)
        await run.bind(name, uid)
    run.ended["bound",] += 2
    await run.bind("first", first, outcome="already_bound")
    body = preemption_args(a_wire_pod("urgent", whole=DEVICES), n1=[first, second])
    await run.ask("preempt", constants.PREEMPT_PATH, body, outcome="fits")
    await comes_to(lambda: run.counted.growth("gpu_reservations_ended_total"), dict(run.ended))
    await run.admit("leaves")
    await run.cluster.client.delete(PODS, "leaves", namespace="default", grace_period_s=0)
    run.ended["released",] += 1
    await run.admit("expires")
    run.ended["expired",] += 1
    await run.admit("reserves", "slow")
    await run.admit("queued", "slow")
    await run.filter("queued", outcome="none_fits")


async def requests_are_refused_and_malformed(run: MetricsRun) -> None:
    await run.is_refused("PoolNotFound", pool="nowhere")
    await run.is_refused("ExceedsCapacity", gpus=DEVICES + 1)
    await run.ask("filter", constants.FILTER_PATH, b"{", outcome="malformed")
    await run.ask("bind", constants.BIND_PATH, b"[]", outcome="malformed")
    await run.server.call("POST", constants.MUTATE_PODS_PATH, b"no json")
    run.admission["malformed", "mutate-pods"] += 1
    run.refusals["MalformedRequest",] += 1
    # A pod that a user after us rejects: it is held for, and never seen.
    review = a_review(a_pod_object(1, "whole", "rejected"))
    await run.server.call("POST", constants.MUTATE_PODS_PATH, review)
    run.admission["patched", "mutate-pods"] += 1
    run.ended["not_observed",] += 1


async def a_binding_is_lost(run: MetricsRun) -> None:
    uid = await run.admit("lost")
    faults = run.cluster.api.faults
    faults.reset_before("POST", "/lost/binding$")
    faults.fail("GET", "/pods/lost$", 500, times=2)
    await run.bind("lost", uid, outcome="in_doubt")
    run.failed["binding.settling",] += 2
    await comes_to(lambda: run.counted.growth("gpu_task_failures_total"), dict(run.failed))
    faults.clear()


async def strangers_bind(run: MetricsRun) -> None:
    for name in ("stranger", "thief"):
        await run.admit(name)
    (first,) = [pod for pod in await run.pods() if pod.metadata.name == "first"]
    taken = first.metadata.annotation(DEVICES_ANNOTATION) or ""
    await run.bind_around("thief", {DEVICES_ANNOTATION: taken})
    await run.bind_around("stranger", {})
    run.ended["bound",] += 2


async def the_api_server_stumbles(run: MetricsRun) -> None:
    client, faults = run.cluster.client, run.cluster.api.faults
    faults.fail("GET", "/namespaces$", 410)
    run.cluster.api.drop_watches()
    failed = {("Unreachable", resource): 1 for resource in WATCHED}
    failed["Gone", "namespaces"] = 1
    await comes_to(lambda: run.counted.growth("gpu_informer_failures_total"), failed)
    relisted = {("gone", "namespaces"): 1}
    await comes_to(lambda: run.counted.growth("gpu_informer_relists_total"), relisted)
    faults.fail("PATCH", "/gpupools/slow/status$", 500)
    await run.add_device(DEVICES + 2, "slow")
    faults.fail("PATCH", "/mutatingwebhookconfigurations/", 500, nth=2)  # the first is ours
    name, kind = constants.MUTATING_CONFIGURATION, MUTATING_WEBHOOK_CONFIGURATIONS
    spoilt = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "bm9uZQ=="}]
    await client.json_patch(kind, spoilt, name=name)
    await comes_to(lambda: run.counted.growth("gpu_certificate_errors_total"), {("inject",): 1})
    _, writer = await asyncio.open_connection("127.0.0.1", run.cluster.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await writer.drain()
    await comes_to(lambda: run.counted.growth("gpu_connections_dropped_total"), {("handshake",): 1})
    writer.close()


async def a_pool_is_cut_again(run: MetricsRun) -> None:
    """Its pods are evicted."""
    finer = {"mode": "TimeSlice", "slicesPerDevice": 4}
    spec = {"allocation": finer, "maintenance": {"policy": "Evict"}}
    await run.cluster.client.merge_patch(GPU_POOLS, {"spec": spec}, name="whole")
    bound = sum(pod.spec.node_name == "n1" for pod in await run.pods())
    await comes_to(lambda: run.counted.growth("gpu_evictions_total"), {("evicted",): bound})


async def comes_to(read: Callable[[], object], expected: object) -> None:
    """Wait until it is so; the failure shows both."""
    try:
        await until(lambda: read() == expected)
    except TimeoutError:
        found = read()
        assert found == expected, f"{found} is not {expected}"
