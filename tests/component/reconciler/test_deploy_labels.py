"""`node.deploy-labels` as a leader runs it: one write a node, none while feature discovery restarts, nothing left behind."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import msgspec
import pytest

from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.names import (
    ASSIGNMENT_ANNOTATION,
    DEPLOY_LABELS_ANNOTATION,
    NVIDIA_PRESENT_LABEL,
    PRESENT_LABEL,
    NodeName,
    PoolName,
)
from kube.resources import GPU_DEVICES, NODES
from operands.nvidia.node_software import OS_LABEL
from reconciler.node_software import deploy_labels_controller
from reconciler.settings import NodeSoftwareParameters
from server.controllers.manager import ControllerManager
from tests.component.reconciler.label_world import SPECS, LabelWorld, a_label_world
from tests.support.controllers import a_context
from tests.support.scheduling import Time
from tests.unit.operands.nvidia.label_cases import CONTAINER, DEPLOY, GPU, MIG, NFD, a_policy

pytestmark = pytest.mark.looptime

N1 = "/api/v1/nodes/n1"
OTHERS = {"zone": "a", f"{DEPLOY}dcgm": "false"}


@dataclass
class Leader:
    """The controller alone, with a clock that is set by hand."""

    world: LabelWorld
    time: Time

    def __post_init__(self) -> None:
        stores = self.world.stores
        self.current = deploy_labels_controller.CurrentParameters(stores.operator_objects)
        stores.operator_objects.changes.subscribe(self.current.object_changed)
        self.controller = deploy_labels_controller.NodeDeployLabels(
            self.world.client,
            stores.index,
            self.current,
            stores=stores,
            recorder=self.world.recorder,
            now=self.time.now,
        )
        self.next_s: float | None = None

    async def sees(self) -> list[str]:
        """Let it see the world and reconcile the node; return the paths that it wrote."""
        await asyncio.sleep(1)
        self.world.writes()
        self.next_s = await self.controller.reconcile(NodeName("n1"))
        await asyncio.sleep(1)
        return self.world.writes()


def a_leader(world: LabelWorld, time: Time | None = None) -> Leader:
    return Leader(world, time or Time())


@pytest.fixture
async def world() -> AsyncIterator[LabelWorld]:
    async with a_label_world() as found:
        yield found


async def deployed(world: LabelWorld, name: str = "n1") -> set[str]:
    labels = await world.labels(name)
    return {
        key.removeprefix(DEPLOY)
        for key, value in labels.items()
        if key.startswith(DEPLOY) and value == "true"
    }


async def test_a_policy_that_is_deleted_leaves_only_the_labels_of_others(world: LabelWorld):
    """Lesson 50, gpu-operator#1391."""
    before = {**NFD, **MIG, **OTHERS}
    await world.add_node("n1", before)
    world.set_policy(a_policy(driver={"upgradePolicy": {"autoUpgrade": True}}))
    async with world.leading():
        await world.until_stable()
        assert await deployed(world) == CONTAINER - {"dcgm"} | {"mig-manager"}
        assert deploy_labels_controller.nodes_with_labels(world.stores.index) == ["n1"]
        policy = a_policy()
        going = type(policy.metadata)(
            name="cluster-policy", deletion_timestamp="2026-01-01T00:00:00Z"
        )
        world.set_policy(type(policy)(metadata=going, spec=policy.spec))
        assert await world.until_stable() == [N1]
        metadata = await world.metadata()
        assert metadata["labels"] == before
        assert not metadata.get("annotations")
        assert deploy_labels_controller.nodes_with_labels(world.stores.index) == []


async def test_a_policy_that_is_not_there_takes_its_labels_away_after_the_hold(world: LabelWorld):
    """An API server that forgets a definition for a moment takes no driver away."""
    await world.add_node("n1", dict(NFD))
    world.set_policy(a_policy())
    async with world.following():
        leader = a_leader(world)
        await leader.sees()
        world.set_policy(None)
        assert await leader.sees() == []
        assert leader.next_s == deploy_labels_controller.HOLD_S
        leader.time.seconds += deploy_labels_controller.HOLD_S / 2
        assert await leader.sees() == []
        world.set_policy(a_policy())
        assert await leader.sees() == []
        world.set_policy(None)
        assert await leader.sees() == []
        leader.time.seconds += deploy_labels_controller.HOLD_S - 1
        assert await leader.sees() == []
        assert leader.next_s == 1
        leader.time.seconds += 1
        assert await leader.sees() == [N1]
        assert await world.labels() == NFD


async def test_feature_discovery_that_flaps_fifty_times_a_second_moves_no_label(world: LabelWorld):
    """gpu-operator#316, #782: labels and drivers were lost when NFD restarted."""
    features = {**NFD, **MIG, "nvidia.com/gpu.product": "NVIDIA-H200"}
    await world.add_node("n1", dict(features))
    world.set_policy(a_policy())
    async with world.leading():
        await world.until_stable()
        before = await world.metadata()
        index = world.stores.index
        node = index.nodes[NodeName("n1")]
        every = [*features, None]
        for number in range(50 * 60):
            gone = every[number % len(every)]
            labels = {key: value for key, value in node.labels.items() if key != gone}
            if gone is None:
                labels = {key: value for key, value in labels.items() if key not in features}
            # As its informer would: the API server in memory is slower than this.
            world.stores.node_sink.upsert(replace(node, labels=labels))
            await asyncio.sleep(1 / 50)
        assert await world.until_stable() == []
        assert await world.metadata() == before


async def test_a_gpu_that_is_gone_takes_its_labels_with_it_after_the_hold(world: LabelWorld):
    await world.add_node("n1", dict(NFD))
    world.set_policy(a_policy())
    async with world.leading():
        await world.until_stable()
        await world.relabel("n1", dict.fromkeys(GPU))
        await asyncio.sleep(deploy_labels_controller.HOLD_S - 10)
        assert await world.until_stable() == [N1]
        assert await deployed(world) == CONTAINER
        await asyncio.sleep(10)
        assert await world.until_stable() == [N1]
        labels = await world.labels()
        assert (await deployed(world), labels[NVIDIA_PRESENT_LABEL]) == (set(), "false")
        await world.relabel("n1", dict(GPU))
        await world.until_stable()
        assert await deployed(world) == CONTAINER


async def test_a_change_of_leaders_begins_the_hold_again(world: LabelWorld):
    await world.add_node("n1", dict(NFD))
    world.set_policy(a_policy())
    async with world.following():
        first = a_leader(world)
        await first.sees()
        await world.relabel("n1", dict.fromkeys(GPU))
        await first.sees()
        assert first.next_s == deploy_labels_controller.HOLD_S
        first.time.seconds += deploy_labels_controller.HOLD_S - 10
        second = a_leader(world, first.time)
        await second.sees()
        assert second.next_s == deploy_labels_controller.HOLD_S
        first.time.seconds += deploy_labels_controller.HOLD_S - 10
        assert await second.sees() == []
        first.time.seconds += 10
        assert await second.sees() == [N1]
        assert await deployed(world) == set()


async def test_a_removal_that_conflicts_does_not_wait_for_another_hold(world: LabelWorld):
    await world.add_node("n1", dict(NFD))
    world.set_policy(a_policy())
    async with world.following():
        leader = a_leader(world)
        await leader.sees()
        await world.relabel("n1", dict.fromkeys(GPU))
        await leader.sees()
        leader.time.seconds += deploy_labels_controller.HOLD_S
        world.api.faults.fail("PATCH", "/nodes/n1", 409)
        await leader.sees()
        assert leader.next_s == deploy_labels_controller.CONFLICT_RETRY_S
        assert await leader.sees() == [N1]
        assert await deployed(world) == set()


async def test_a_label_that_another_client_removes_again_and_again_is_put_back_and_told_once(
    world: LabelWorld,
):
    """gpu-operator#1469, and a client that fights for the label."""
    await world.add_node("n1", dict(NFD))
    world.set_policy(a_policy())
    async with world.leading():
        await world.until_stable()
        assert world.events() == []
        for _ in range(20):
            await world.relabel("n1", {f"{DEPLOY}driver": None})
            await asyncio.sleep(1)
        theirs = 20
        await asyncio.sleep(deploy_labels_controller.RESTORE_PAUSE_S)
        assert await deployed(world) == CONTAINER
        assert len(world.writes()) <= theirs + 20 / deploy_labels_controller.RESTORE_PAUSE_S + 2
        ((reason, text),) = world.events()
        assert reason == "GPUOperandRestored"
        assert f"{DEPLOY}driver" in text
        assert "false" in text


async def test_a_label_of_another_client_stays_and_is_told_once(world: LabelWorld):
    await world.add_node("n1", {**NFD, "nvidia.com/gpu.workload.config": "virtual"})
    world.set_policy(a_policy(sandboxWorkloads={"enabled": True}))
    async with world.leading():
        await world.until_stable()
        ((reason, text),) = world.events()
        assert reason == "GPUOperandLabelsWrong"
        assert "virtual" in text
        await world.relabel("n1", {"zone": "b"})
        await world.until_stable()
        assert world.events() == []


async def test_a_device_in_a_pool_takes_device_plugin_and_mig_manager_off_the_node(
    world: LabelWorld,
):
    await world.add_node("n1", {**NFD, **MIG})
    world.set_policy(a_policy())
    async with world.leading():
        await world.until_stable()
        assert await deployed(world) == CONTAINER | {"mig-manager"}
        world.stores.pool_sink.replace_all(
            [msgspec.convert({"metadata": {"name": "whole"}}, GPUPool)]
        )
        meta = {"name": "n1-0", "annotations": {ASSIGNMENT_ANNOTATION: "whole"}}
        device = {"apiVersion": "gpu.deckhouse.io/v1alpha1", "kind": "GPUDevice", "metadata": meta}
        await world.client.create(GPU_DEVICES, device)
        status = {"nodeName": "n1", "uuid": "GPU-1", "poolRef": {"name": "whole"}}
        await world.client.merge_patch(
            GPU_DEVICES, {"status": status}, name="n1-0", subresource="status"
        )
        await world.until_stable()
        assert world.stores.index.pools_on(NodeName("n1")) == {PoolName("whole")}
        assert await deployed(world) == CONTAINER - {"device-plugin"}
        await world.client.delete(GPU_DEVICES, "n1-0")
        await world.until_stable()
        assert await deployed(world) == CONTAINER | {"mig-manager"}


async def test_the_system_that_the_node_agent_reports_is_on_the_node_at_once(world: LabelWorld):
    await world.add_node("n1", {PRESENT_LABEL: "true"})
    world.set_policy(a_policy())
    async with world.leading():
        await world.until_stable()
        assert OS_LABEL not in await world.labels()
        report = {"status": {"system": {"os": "ubuntu", "osVersion": "24.04"}}}
        inventory = msgspec.convert({"metadata": {"name": "n1"}, **report}, GPUNodeInventory)
        world.stores.inventory_sink.replace_all([inventory])
        assert await world.until_stable() == [N1]
        assert (await world.labels())[OS_LABEL] == "ubuntu24.04"
        assert "driver" in await deployed(world)


async def test_a_change_of_another_writer_in_the_same_moment_is_not_overwritten(world: LabelWorld):
    await world.add_node("n1", dict(NFD))
    world.set_policy(a_policy())
    async with world.following():
        await asyncio.sleep(1)
    # What the leader knows is older than this.
    await world.relabel("n1", {f"{DEPLOY}driver": "false"})
    world.writes()
    async with world.leading():
        await world.until_stable()
        assert (await world.labels())[f"{DEPLOY}driver"] == "false"
        assert await deployed(world) == CONTAINER - {"driver"}


async def test_a_node_that_is_deleted_meanwhile_is_no_error(world: LabelWorld):
    await world.add_node("n1", dict(NFD))
    async with world.leading():
        world.api.faults.delay("PATCH", "/nodes/n1", 0.5)
        world.set_policy(a_policy())
        await asyncio.sleep(0.1)
        await world.client.delete(NODES, "n1")
        await world.until_stable()
        await world.add_node("n1", {"zone": "a"})
        await world.until_stable()
        assert await world.labels() == {"zone": "a"}


async def test_a_change_of_the_policys_status_looks_at_no_node(world: LabelWorld):
    await world.add_node("n1", dict(NFD))
    world.set_policy(a_policy())
    async with world.leading():
        await world.until_stable()
        labelled = (await world.metadata())["annotations"][DEPLOY_LABELS_ANNOTATION]
        world.set_policy(a_policy(dcgm={"enabled": False}))
        assert await world.until_stable() == []
        assert (await world.metadata())["annotations"][DEPLOY_LABELS_ANNOTATION] == labelled


async def test_without_the_feature_the_controller_does_not_run():
    for is_enabled in (False, True):
        context = a_context(node_software=NodeSoftwareParameters(is_enabled=is_enabled))
        names = ControllerManager(context, SPECS).names
        assert ("node.deploy-labels" in names) is is_enabled
