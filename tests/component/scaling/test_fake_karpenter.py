"""Karpenter's double does what Karpenter was seen to do: the experiments of the notes on autoscaling, by their numbers."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final

import pytest

from api.foreign.core import Node, Pod
from api.foreign.karpenter import NODE_POOL_LABEL, NodeClaim
from api.names import AGENT_NOT_READY_TAINT, SCALE_REQUEST_LABEL
from api.vendor import GPU_RESOURCE
from api.well_known_labels import INSTANCE_TYPE_LABEL
from kube.client import KubeClient
from kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    NAMESPACES,
    NODE_CLAIMS,
    NODE_POOLS,
    NODES,
    PODS,
)
from simulator.apiserver.server import InMemoryApiServer
from simulator.karpenter.fake_karpenter import FakeKarpenter
from simulator.karpenter.karpenter_crds import karpenter_crds
from simulator.karpenter.karpenter_settings import CloudFaults
from simulator.node import nfd
from simulator.node.joining_nodes import JoiningNodes
from tests.support.client_of_api import a_client
from tests.support.loop_clock import LoopClock
from tests.support.polling import until_async

pytestmark = pytest.mark.looptime(noop_cycles=10)

Json = dict[str, Any]
POOL: Final = "gpus"


@dataclasses.dataclass
class World:
    client: KubeClient
    clock: LoopClock
    group: asyncio.TaskGroup
    faults: CloudFaults = dataclasses.field(default_factory=CloudFaults)
    karpenter: "asyncio.Task[Any] | None" = None

    def start_karpenter(self) -> None:
        double = FakeKarpenter(self.client, self.clock, faults=self.faults)
        self.karpenter = self.group.create_task(double.run())

    async def node_pool(self, name: str = POOL, **changes: Any) -> None:
        types = changes.pop("types", ("gpu-1x", "gpu-4x"))
        spec: Json = {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "g", "kind": "K", "name": "any"},
                    "requirements": [
                        {"key": SCALE_REQUEST_LABEL, "operator": "Exists"},
                        {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": list(types)},
                    ],
                    "startupTaints": [{"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}],
                }
            },
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"},
        } | changes
        head = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}}
        await self.client.create(NODE_POOLS, head | {"spec": spec})

    async def signal(self, name: str, id_: str = "", *, gpus: int = 1, **spec: Any) -> None:
        """Create a pod of a scheduler that nobody is, and write its condition."""
        selector = {SCALE_REQUEST_LABEL: id_} if id_ else {}
        requests = {"cpu": "10m", "memory": "16Mi", GPU_RESOURCE: str(gpus)}
        resources = spec.pop(
            "resources", {"requests": requests, "limits": {GPU_RESOURCE: requests[GPU_RESOURCE]}}
        )
        container = {"name": "pause", "image": "pause", "resources": resources}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "schedulerName": "nobody",
                "nodeSelector": selector,
                "containers": [container],
                **spec,
            },
        }
        await self.client.create(PODS, body)
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status = {"status": {"conditions": [condition]}}
        await self.client.merge_patch(
            PODS, status, name=name, namespace="default", subresource="status"
        )

    async def claims(self) -> list[NodeClaim]:
        return (await self.client.list_(NODE_CLAIMS, NodeClaim)).items

    async def nodes(self) -> list[Node]:
        return (await self.client.list_(NODES, Node)).items

    async def events(self, reason: str) -> list[Json]:
        found = (await self.client.list_(EVENTS, Json)).items
        return [item for item in found if item["reason"] == reason]

    async def remove_startup_taint(self, node: str) -> None:
        await self.client.merge_patch(NODES, {"spec": {"taints": None}}, name=node)

    async def end_signals(self) -> None:
        for pod in (await self.client.list_(PODS, Pod)).items:
            await self.client.delete(PODS, pod.metadata.name, namespace="default", grace_period_s=0)

    async def passed(self, what: str, *, within_s: float) -> float:
        """Return when a NodeClaim has a condition, in seconds from now."""
        since = self.clock.monotonic()

        async def is_so() -> bool:
            conditions = [
                condition
                for claim in await self.claims()
                for condition in claim.status.conditions or ()
            ]
            return any(
                (condition.type, condition.status) == (what, "True") for condition in conditions
            )

        await until_async(is_so, within_s=within_s)
        return self.clock.monotonic() - since

    async def until_gone(self, *, within_s: float) -> float:
        """Return when no NodeClaim is left, in seconds from now."""
        since = self.clock.monotonic()

        async def is_so() -> bool:
            return not await self.claims() and not await self.nodes()

        await until_async(is_so, within_s=within_s)
        return self.clock.monotonic() - since


async def has_any(found: Awaitable[list[Any]]) -> bool:
    return bool(await found)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    clock = LoopClock()
    async with (
        InMemoryApiServer(clock) as api,
        a_client(api, clock) as client,
        asyncio.TaskGroup() as group,
    ):
        for crd in (*karpenter_crds(), nfd.node_feature_crd()):
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": nfd.NAMESPACE}}
        await client.create(NAMESPACES, namespace)
        there = World(client, clock, group)
        there.start_karpenter()
        nodes = group.create_task(JoiningNodes(client, clock, {}).run())
        yield there
        nodes.cancel()
        assert there.karpenter
        there.karpenter.cancel()


async def test_e24_a_signal_of_a_scheduler_that_nobody_is_gets_a_node_of_its_id(world: World):
    await world.node_pool()
    await asyncio.sleep(1)
    since = world.clock.monotonic()
    await world.signal("s", "id-1")
    await until_async(lambda: has_any(world.claims()), within_s=5)
    claims = await world.claims()
    assert world.clock.monotonic() - since == pytest.approx(1.0, abs=0.4)
    await world.passed("Registered", within_s=10)
    await asyncio.sleep(1)  # until kubelet is ready
    (node,) = await world.nodes()
    assert claims[0].metadata.label(SCALE_REQUEST_LABEL) == "id-1"
    assert node.metadata.label(SCALE_REQUEST_LABEL) == "id-1"
    assert node.metadata.label(NODE_POOL_LABEL) == POOL
    assert node.metadata.label(INSTANCE_TYPE_LABEL) == "gpu-1x"
    assert [taint.key for taint in node.spec.taints or ()] == [AGENT_NOT_READY_TAINT]
    notes = [event["note"] for event in await world.events("Nominated")]
    assert notes[0].startswith("Pod should schedule on: nodeclaim/gpus-")


async def test_e24_a_signal_that_stays_keeps_its_node_and_gets_another_one_when_that_is_full(
    world: World,
):
    await world.node_pool()
    await world.signal("s", "id-1", resources={"requests": {"cpu": "10m"}})
    await world.passed("Registered", within_s=20)
    (node,) = await world.nodes()
    await world.remove_startup_taint(node.metadata.name)
    await world.passed("Initialized", within_s=20)
    await asyncio.sleep(75)
    assert len(await world.nodes()) == 1


async def test_e1_a_resource_that_no_type_has_gets_no_node_and_an_event(world: World):
    await world.node_pool()
    requests = {"example.com/unit": "1"}
    await world.signal("s", "id-1", resources={"requests": requests, "limits": requests})
    await asyncio.sleep(30)
    assert await world.claims() == []
    (event,) = await world.events("FailedScheduling")
    assert event["note"].startswith(
        "Failed to schedule pod, no instance type has enough resources, requirements="
    )


async def test_e22_without_the_requirement_the_label_has_no_known_values(world: World):
    await world.node_pool()
    await world.signal("s", spec=None, nodeSelector={"example.com/other": "x"})
    await asyncio.sleep(5)
    (event,) = await world.events("FailedScheduling")
    assert 'label "example.com/other" does not have known values' in event["note"]


async def test_e14_four_signals_of_one_id_share_a_node(world: World):
    await world.node_pool()
    for number in range(4):
        await world.signal(f"s{number}", "id-1")
    await world.passed("Registered", within_s=20)
    (node,) = await world.nodes()
    assert node.metadata.label(INSTANCE_TYPE_LABEL) == "gpu-4x"


async def test_e23_eight_ids_get_eight_nodes(world: World):
    await world.node_pool()
    for number in range(8):
        await world.signal(f"s{number}", f"id-{number}")
    await asyncio.sleep(2)
    assert len(await world.claims()) == 8


async def test_a_gated_pod_is_no_demand(world: World):
    await world.node_pool()
    await world.signal("s", "id-1", schedulingGates=[{"name": "example.com/wait"}])
    # kube-apiserver gives such a pod this condition
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    await world.client.merge_patch(
        PODS,
        {"status": {"conditions": [condition]}},
        name="s",
        namespace="default",
        subresource="status",
    )
    await asyncio.sleep(15)
    assert await world.claims() == []


async def test_e4_an_empty_node_goes_after_its_time_validation_and_a_look(world: World):
    await world.node_pool()
    await world.signal("s", "id-1", resources={"requests": {"cpu": "10m"}})
    await world.passed("Registered", within_s=20)
    await world.end_signals()
    (node,) = await world.nodes()
    await world.remove_startup_taint(node.metadata.name)
    await world.passed("Initialized", within_s=20)
    gone_s = await world.until_gone(within_s=120)
    assert 45 <= gone_s <= 60  # 47 s were measured: 30 s, 15 s of validation, and its loop


async def test_e5_a_node_that_never_has_the_resource_stays_for_ever(world: World):
    await world.node_pool()
    await world.signal("s", "id-1")
    await world.passed("Registered", within_s=20)
    await world.end_signals()
    (node,) = await world.nodes()
    await world.remove_startup_taint(node.metadata.name)
    await asyncio.sleep(600)
    (claim,) = await world.claims()
    reasons = {condition.type: condition.reason for condition in claim.status.conditions or ()}
    assert reasons["Initialized"] == "ResourceNotRegistered"


async def test_a_startup_taint_keeps_the_node(world: World):
    await world.node_pool()
    await world.signal("s", "id-1", resources={"requests": {"cpu": "10m"}})
    await world.passed("Registered", within_s=20)
    await world.end_signals()
    await asyncio.sleep(300)
    (claim,) = await world.claims()
    reasons = {condition.type: condition.reason for condition in claim.status.conditions or ()}
    assert reasons["Initialized"] == "StartupTaintsExist"


async def test_no_capacity_is_an_event_and_a_deleted_claim_and_the_offerings_rest(world: World):
    await world.node_pool()
    world.faults.without_capacity |= {"gpu-1x", "gpu-4x"}
    await world.signal("s", "id-1")
    await until_async(lambda: has_any(world.events("InsufficientCapacityError")), within_s=20)
    events = await world.events("InsufficientCapacityError")
    assert events[0]["regarding"]["kind"] == "NodeClaim"
    await world.until_gone(within_s=5)
    world.faults.without_capacity.clear()
    await asyncio.sleep(150)
    assert await world.claims() == []
    await asyncio.sleep(50)
    assert len(await world.claims()) == 1


async def test_limits_of_a_node_pool_end_its_growth(world: World):
    await world.node_pool(limits={"nodes": "2"})
    for number in range(3):
        await world.signal(f"s{number}", f"id-{number}")
    await asyncio.sleep(15)
    assert len(await world.claims()) == 2
    (event,) = await world.events("FailedScheduling")
    assert "node limits have been exhausted for nodepool" in event["note"]


@pytest.mark.long  # twenty minutes of Karpenter's looks
async def test_time_outs_delete_claims_that_do_not_come(world: World):
    await world.node_pool("a", types=("gpu-1x",))
    world.faults.never_launching.add("a")
    await world.signal("s", "id-1")
    await asyncio.sleep(60)
    await world.end_signals()
    assert 200 <= await world.until_gone(within_s=400) <= 260
    world.faults.never_launching.clear()
    world.faults.never_registering.add("a")
    await world.signal("t", "id-2")
    await asyncio.sleep(60)
    await world.end_signals()
    assert 800 <= await world.until_gone(within_s=1000) <= 860


async def test_a_node_that_must_not_be_disrupted_stays(world: World):
    await world.node_pool()
    await world.signal("s", "id-1", resources={"requests": {"cpu": "10m"}})
    await world.passed("Registered", within_s=20)
    await world.end_signals()
    (node,) = await world.nodes()
    note: Json = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
    await world.client.merge_patch(NODES, note, name=node.metadata.name)
    await world.remove_startup_taint(node.metadata.name)
    await asyncio.sleep(200)
    assert len(await world.nodes()) == 1
    note = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": None}}}
    await world.client.merge_patch(NODES, note, name=node.metadata.name)
    await world.until_gone(within_s=60)


async def test_a_changed_node_pool_takes_empty_nodes_and_not_those_whose_pods_fit_nowhere(
    world: World,
):
    """E12: pods of a resource that no type has block drift."""
    never = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1h"}
    await world.node_pool(disruption=never)
    await world.signal("s", "id-1", resources={"requests": {"cpu": "10m"}})
    await world.passed("Registered", within_s=20)
    await world.end_signals()
    (node,) = await world.nodes()
    await world.remove_startup_taint(node.metadata.name)
    await world.passed("Initialized", within_s=20)
    requests = {"example.com/unit": "1"}
    await world.signal(
        "app", nodeName=node.metadata.name, resources={"requests": requests, "limits": requests}
    )
    changed = {"spec": {"template": {"metadata": {"labels": {"example.com/new": "yes"}}}}}
    await world.client.merge_patch(NODE_POOLS, changed, name=POOL)
    await asyncio.sleep(60)
    assert len(await world.nodes()) == 1
    assert "Not all pods would schedule" in (await world.events("DisruptionBlocked"))[0]["note"]
    await world.end_signals()
    await world.until_gone(within_s=60)


async def test_a_restarted_karpenter_goes_on(world: World):
    await world.node_pool()
    await world.signal("s", "id-1")
    await asyncio.sleep(1.2)
    assert world.karpenter
    world.karpenter.cancel()
    await asyncio.sleep(5)
    world.start_karpenter()
    await world.passed("Registered", within_s=30)
    assert len(await world.claims()) == 1
