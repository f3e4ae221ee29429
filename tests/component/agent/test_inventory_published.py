"""What the agent publishes, at an API server over HTTP, and what the control plane makes of it."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.driver.port import DriverEvent, EventKind
from agent.inventory.publisher import HEARTBEAT_S
from api.kinds.gpudevice import LastXid
from api.names import NodeName
from api.status_conditions import format_time
from kube.errors import KubeError
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NODE_FEATURES, NODES
from simulator.node.nfd import NAMESPACE, node_feature_crd
from telemetry.conditions import AgentDegraded
from tests.component.agent.inventory_node import FEATURE, FIRST, SECOND, InventoryNode
from tests.component.reconciler.inventory_run import InventoryRun, an_inventory_run, condition
from tests.support.fake_driver import H100_PROFILES, GpuInstance, a_device
from tests.support.polling import LIMIT_S

PATH = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures/{FEATURE}"


class StockClock:
    """The time of the control plane's side, which a test moves."""

    def __init__(self, world: InventoryRun) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.time.now().monotonic

    def utc_now(self) -> dt.datetime:
        return self._world.time.now().utc


class Agent:
    """One step of each part at a time."""

    def __init__(self, world: InventoryRun, folder: Path) -> None:
        devices = (
            a_device("GPU-1", address=FIRST, minor=0, profiles=H100_PROFILES),
            a_device("GPU-2", address=SECOND, minor=1),
        )
        self.world = world
        self.node = InventoryNode(
            folder, *devices, api=world.client, clock=StockClock(world), namespace=NAMESPACE
        )

    def restart(self) -> None:
        self.node.begin()

    async def step(self) -> list[str]:
        """Look, publish; return what was written."""
        self.world.api.requests.clear()
        self.node.inventory.read_bus()
        await self.node.inventory.read_driver()
        await self.node.publisher.reconcile()
        await self.node.condition.reconcile()
        return [
            f"{write.method} {write.path.rpartition('/')[2]}"
            for write in self.world.api.requests.writes()
        ]

    def pass_time(self, seconds: float) -> None:
        self.world.time.seconds += seconds


@pytest.fixture
async def world() -> AsyncIterator[InventoryRun]:
    async with an_inventory_run() as opened:
        await opened.add_node()
        yield opened


@pytest.fixture
async def agent(world: InventoryRun, tmp_path: Path) -> Agent:
    made = Agent(world, tmp_path)
    # The inventory of the node is made of what is published.
    made.node.inventory.read_bus()
    await made.node.inventory.read_driver()
    await made.node.publisher.reconcile()
    await world.until_stable()
    return made


async def feature(world: InventoryRun) -> dict[str, Any]:
    found: dict[str, Any] = await world.client.get(
        NODE_FEATURES, dict, FEATURE, namespace=NAMESPACE
    )
    return found


async def test_the_control_plane_makes_devices_of_it(agent: Agent, world: InventoryRun):
    device = (await world.gpu("n1-0000-17-00.0")).status
    assert (device.uuid, device.product) == ("GPU-1", "NVIDIA-H100-80GB-HBM3")
    assert (device.memory_mib, device.compute_capability, device.pci.device) == (
        81559,
        "9.0",
        "2335",
    )
    assert device.mig.capable
    assert not (await world.gpu("n1-0000-18-00.0")).status.mig.capable
    inventory = await world.inventory()
    assert inventory.status.driver.version == "570.124.06"
    assert world.features.health(NodeName("n1"))["GPU-1"].status == "Healthy"


async def test_the_control_plane_reads_the_last_xid(agent: Agent, world: InventoryRun):
    assert world.features.health(NodeName("n1"))["GPU-1"].last_xid is None
    agent.node.watch.take([DriverEvent(uuid="GPU-1", kind=EventKind.XID, code=31)])
    await agent.step()
    await world.observe()
    xid = world.features.health(NodeName("n1"))["GPU-1"].last_xid
    assert xid == LastXid(code=31, time=format_time(world.time.now().utc))


async def test_nothing_new_is_a_heartbeat_a_minute_that_changes_no_device(
    agent: Agent, world: InventoryRun
):
    await agent.step()
    assert await agent.step() == []
    agent.pass_time(HEARTBEAT_S + 1)
    before = await feature(world)
    assert await agent.step() == [f"PATCH {FEATURE}"]
    after = await feature(world)
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["metadata"]["annotations"] != before["metadata"]["annotations"]
    assert after["spec"] == before["spec"]
    assert await world.until_stable() == 0
    agent.pass_time(100)
    await world.observe()
    assert await world.until_stable() == 0


async def test_it_is_owned_by_its_node(agent: Agent, world: InventoryRun):
    (owner,) = (await feature(world))["metadata"]["ownerReferences"]
    node: dict[str, Any] = await world.client.get(NODES, dict, "n1")
    assert (owner["kind"], owner["uid"]) == ("Node", node["metadata"]["uid"])


async def test_a_restart_of_the_agent_writes_a_heartbeat_only(agent: Agent, world: InventoryRun):
    await agent.step()
    before = await feature(world)
    agent.restart()
    agent.pass_time(5)
    assert await agent.step() == [f"PATCH {FEATURE}"]
    assert (await feature(world))["spec"] == before["spec"]
    assert await agent.step() == []


@pytest.mark.parametrize("how", ["deleted", "cards", "label", "annotations"])
async def test_a_foreign_change_is_undone_with_the_heartbeat(
    agent: Agent, world: InventoryRun, how
):
    await agent.step()
    want = (await feature(world))["spec"]
    name, namespace = FEATURE, NAMESPACE
    if how == "deleted":
        await world.client.delete(NODE_FEATURES, name, namespace=namespace)
    else:
        changes: dict[str, dict[str, Any]] = {
            "cards": {"spec": {"features": {"instances": None}}},
            "label": {"metadata": {"labels": {"nfd.node.kubernetes.io/node-name": "n2"}}},
            "annotations": {"metadata": {"annotations": None}},
        }
        await world.client.merge_patch(NODE_FEATURES, changes[how], name=name, namespace=namespace)
    agent.pass_time(HEARTBEAT_S + 1)
    assert await agent.step() == [f"PATCH {FEATURE}"] * 2
    found = await feature(world)
    assert found["spec"] == want
    assert found["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": "n1"}
    agent.pass_time(HEARTBEAT_S + 1)
    assert await agent.step() == [f"PATCH {FEATURE}"]


async def test_without_a_driver_known_facts_stay_and_are_stale(agent: Agent, world: InventoryRun):
    agent.node.driver.go_away(AgentDegraded.DRIVER_MISSING)
    await agent.step()
    assert "attributes" not in (await feature(world))["spec"]["features"]
    await world.until_stable()
    device = await world.gpu("n1-0000-17-00.0")
    assert (device.status.uuid, device.status.memory_mib) == ("GPU-1", 81559)
    assert condition(device, "Stale")[0] == "True"
    assert world.features.health(NodeName("n1")) == {}
    agent.node.driver.come_back()
    await agent.step()
    await world.until_stable()
    assert condition(await world.gpu("n1-0000-17-00.0"), "Stale")[0] == "False"


async def test_a_lost_device_stays_a_device_and_is_reported_as_lost(
    agent: Agent, world: InventoryRun
):
    agent.node.driver.device("GPU-2").is_listed = False
    await agent.step()
    await world.until_stable()
    assert (await world.gpu("n1-0000-18-00.0")).status.uuid == "GPU-2"
    assert world.features.health(NodeName("n1"))["GPU-2"].status == "Lost"


async def test_instances_are_seen_once_they_are_complete(agent: Agent, world: InventoryRun):
    device = agent.node.driver.device("GPU-1")
    device.is_mig_enabled = True
    device.instances = [GpuInstance(1, "1g.10gb", "MIG-1"), GpuInstance(2, "1g.10gb")]
    await agent.step()
    await world.until_stable()
    mig = (await world.gpu("n1-0000-17-00.0")).status.mig
    assert [instance.uuid for instance in mig.instances or ()] == ["MIG-1"]


async def test_the_condition_stands_beside_those_of_the_control_plane(
    agent: Agent, world: InventoryRun
):
    agent.node.driver.go_away(AgentDegraded.DRIVER_HANGS, "no answer within 5 s")
    await agent.step()
    inventory = await world.inventory()
    assert condition(inventory, "AgentDegraded") == ("True", "DriverHangs", "no answer within 5 s")
    assert condition(inventory, "InventoryIncomplete")[0] == "False"
    assert await world.until_stable() == 0
    # One that had everything applied by others keeps ours.
    agent.pass_time(1)
    await world.label(nvidia="changed")
    await world.until_stable()
    assert condition(await world.inventory(), "AgentDegraded")[1] == "DriverHangs"
    assert await agent.step() == []
    agent.node.driver.come_back()
    await agent.step()
    assert condition(await world.inventory(), "AgentDegraded")[:2] == ("False", "AsExpected")


async def test_a_cluster_without_the_kind_is_a_clear_problem(world: InventoryRun, tmp_path: Path):
    agent = Agent(world, tmp_path)
    await world.client.delete(CUSTOM_RESOURCE_DEFINITIONS, "nodefeatures.nfd.k8s-sigs.io")
    agent.node.inventory.read_bus()
    await agent.node.inventory.read_driver()
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        task = group.create_task(agent.node.publisher.run())
        await agent.node.problems.changed.wait()
        task.cancel()
    problem = agent.node.problems.summary()
    assert problem.reason is AgentDegraded.NOT_PUBLISHED
    assert "is Node Feature Discovery installed" in problem.text
    await world.client.create(CUSTOM_RESOURCE_DEFINITIONS, node_feature_crd())
    await agent.node.publisher.reconcile()
    assert (await feature(world))["metadata"]["name"] == FEATURE


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("way", ["fail", "reset_before", "reset_after"])
async def test_whichever_request_breaks_the_next_try_makes_it_right(
    world: InventoryRun, tmp_path: Path, way, nth
):
    agent = Agent(world, tmp_path)
    faults = world.api.faults
    if way == "fail":
        faults.fail("", "", 500, nth=nth)
    else:
        getattr(faults, way)("", "", nth=nth)
    agent.node.inventory.read_bus()
    await agent.node.inventory.read_driver()
    for _ in range(3):
        try:
            await agent.node.publisher.reconcile()
        except KubeError:
            continue
        break
    faults.clear()
    agent.pass_time(HEARTBEAT_S + 1)
    await agent.node.publisher.reconcile()
    found = await feature(world)
    assert len(found["spec"]["features"]["instances"]["gpu.deckhouse.io/device"]["elements"]) == 2
    assert found["metadata"]["ownerReferences"]
    agent.world.api.requests.clear()
    await agent.node.publisher.reconcile()
    assert agent.world.api.requests.writes() == []
