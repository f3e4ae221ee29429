"""A ClusterPolicy or an NVIDIADriver that this version cannot read, or whose kind is gone for a moment: no driver leaves a node."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from api.driver_upgrade import UPGRADE_STATE_LABEL
from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from api.names import DRIVER_OWNER_LABEL
from kube.resources import CLUSTER_POLICIES, DAEMON_SETS, NVIDIA_DRIVERS
from kube.unread_objects import UnreadObject
from manifests.nvidia.operator_crds import build_operator_crds
from reconciler.node_software.deploy_labels_controller import HOLD_S
from tests.component.reconciler.label_world import LabelWorld, a_label_world
from tests.component.reconciler.operator_world import OperatorWorld, an_operator_world
from tests.component.reconciler.test_deploy_labels import a_leader, deployed
from tests.component.reconciler.upgrade_run import an_upgrade_run
from tests.support.next_version import NEXT, allow_next_version
from tests.unit.operands.nvidia.label_cases import CONTAINER, NFD, a_driver, a_policy

pytestmark = pytest.mark.looptime

LEFT_TO_DRIVERS = {"useNvidiaDriverCRD": True}


def unread(name: str) -> UnreadObject:
    return UnreadObject(namespace="", name=name, uid="u")


@pytest.fixture
async def world() -> AsyncIterator[OperatorWorld]:
    async with an_operator_world(()) as opened:
        yield opened


@pytest.fixture
async def labels() -> AsyncIterator[LabelWorld]:
    async with a_label_world() as opened:
        yield opened


async def drivers_of(world: OperatorWorld) -> set[str]:
    return {found["metadata"]["name"] for found in await world.found(DAEMON_SETS)}


async def a_driver_on_a_node(world: OperatorWorld) -> set[str]:
    await world.add_node("u1", owner="blue", pool="blue")
    await world.add_policy(driver=LEFT_TO_DRIVERS)
    await world.add_driver("blue", nodeSelector={"pool": "blue"})
    await world.ready()
    found = await drivers_of(world)
    assert found
    return found


async def make_policy_unreadable(world: OperatorWorld) -> None:
    await allow_next_version(
        world.client, build_operator_crds(), "ClusterPolicy", "spec", "driver", "kernelModuleType"
    )
    await world.change_policy(driver={"kernelModuleType": NEXT})


async def written_by_the_next_leader(world: OperatorWorld) -> list[tuple[str, str]]:
    world.begin_term()
    world.writes()
    await world.step()
    return world.writes()


async def test_a_leader_that_cannot_read_the_policy_changes_nothing(world: OperatorWorld):
    before = await a_driver_on_a_node(world)
    await make_policy_unreadable(world)
    assert await written_by_the_next_leader(world) == []
    assert await drivers_of(world) == before


async def test_a_younger_policy_does_not_count_instead_of_one_that_cannot_be_read(
    world: OperatorWorld,
):
    before = await a_driver_on_a_node(world)
    await asyncio.sleep(2)
    await world.add_policy("younger", driver={"enabled": False})
    await world.until_stable()
    await make_policy_unreadable(world)
    assert await written_by_the_next_leader(world) == []
    assert await drivers_of(world) == before


async def test_drivers_stay_without_a_policy_and_say_why(world: OperatorWorld):
    before = await a_driver_on_a_node(world)
    world.objects.policy_store.replace_all([])
    await world.drivers.reconcile("blue")
    assert await drivers_of(world) == before
    status = await world.driver_status("blue")
    assert "what this driver has stays" in str(status["conditions"])


async def test_a_leader_that_cannot_read_a_driver_changes_no_driver(world: OperatorWorld):
    before = await a_driver_on_a_node(world)
    await world.add_driver("fallback", default=True)
    await world.until_stable()
    await allow_next_version(
        world.client, build_operator_crds(), "NVIDIADriver", "spec", "kernelModuleType"
    )
    await world.client.merge_patch(
        NVIDIA_DRIVERS, {"spec": {"kernelModuleType": NEXT}}, name="blue"
    )
    assert await written_by_the_next_leader(world) == []
    assert await drivers_of(world) >= before


async def test_a_policy_that_is_deleted_waits_for_the_objects_of_a_driver_that_cannot_be_read(
    world: OperatorWorld,
):
    before = await a_driver_on_a_node(world)
    await allow_next_version(
        world.client, build_operator_crds(), "NVIDIADriver", "spec", "kernelModuleType"
    )
    await world.client.merge_patch(
        NVIDIA_DRIVERS, {"spec": {"kernelModuleType": NEXT}}, name="blue"
    )
    await world.client.delete(CLUSTER_POLICIES, "gpus")
    world.begin_term()
    for _ in range(3):
        await world.step()
    assert await drivers_of(world) == before
    assert (await world.client.get(CLUSTER_POLICIES, ClusterPolicy, "gpus")).metadata.finalizers


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([a_driver("fallback", default=True)], id="a-default"),
        pytest.param([a_driver("green", nodeSelector={"rack": "green"})], id="no-other"),
    ],
)
async def test_a_node_keeps_the_owner_of_its_driver_while_that_cannot_be_read(
    labels: LabelWorld, others: list[NVIDIADriver]
):
    await labels.add_node("n1", {**NFD, "rack": "blue"})
    labels.set_policy(a_policy(driver=LEFT_TO_DRIVERS))
    store = labels.stores.operator_objects.driver_store
    store.replace_all([a_driver("blue", nodeSelector={"rack": "blue"}), *others])
    async with labels.following():
        await a_leader(labels).sees()
        assert (await labels.labels())[DRIVER_OWNER_LABEL] == "blue"
        store.replace_unread([unread("blue")])
        store.replace_all(others)
        assert await a_leader(labels).sees() == []


async def test_nodes_keep_all_labels_as_long_as_the_policy_cannot_be_read(labels: LabelWorld):
    await labels.add_node("n1", dict(NFD))
    labels.set_policy(a_policy())
    async with labels.following():
        await a_leader(labels).sees()
        labels.stores.operator_objects.policy_store.replace_unread([unread("cluster-policy")])
        labels.set_policy(None)
        leader = a_leader(labels)
        for _ in range(3):
            assert await leader.sees() == []
            leader.time.seconds += HOLD_S + 1
        assert await deployed(labels) == CONTAINER


async def test_a_hold_begins_when_a_policy_that_could_not_be_read_is_gone(labels: LabelWorld):
    await labels.add_node("n1", dict(NFD))
    labels.set_policy(a_policy())
    async with labels.following():
        await a_leader(labels).sees()
        store = labels.stores.operator_objects.policy_store
        store.replace_unread([unread("cluster-policy")])
        labels.set_policy(None)
        leader = a_leader(labels)
        await leader.sees()
        leader.time.seconds += HOLD_S + 1
        store.replace_unread([])
        await leader.sees()
        assert await deployed(labels) == CONTAINER
        leader.time.seconds += HOLD_S + 1
        await leader.sees()
        assert await deployed(labels) == set()


@pytest.mark.parametrize("is_unread", [True, False], ids=["unread", "absent"])
async def test_a_node_whose_new_driver_is_not_validated_stays_out_of_service_without_a_policy(
    is_unread: bool,
):
    async with an_upgrade_run(1) as run:
        await run.roll_out(2)
        await run.step()
        await run.until("validation-required", node="n0")
        before = await run.marks("n0")
        assert "cordoned" in before
        assert "withheld" in before
        if is_unread:
            run.objects.policy_store.replace_unread([unread("policy")])
        run.objects.policy_store.replace_all([])
        await run.run_pass()
        await run.run_pass()
        node = await run.node("n0")
        assert await run.marks("n0") == before
        assert node["metadata"]["labels"][UPGRADE_STATE_LABEL] == "validation-required"


async def test_a_node_that_is_being_emptied_stays_out_of_service_without_a_policy():
    async with an_upgrade_run(1, podDeletion={"timeoutSeconds": 0}) as run:
        await run.add_pod("n0")
        await run.add_budget(allowed=0)
        await run.roll_out(2)
        await run.step()
        await run.until("pod-deletion-required", node="n0")
        before = await run.marks("n0")
        run.objects.policy_store.replace_all([])
        await run.run_pass()
        await run.run_pass()
        assert await run.marks("n0") == before
