"""Owners of DaemonSets: the ClusterPolicy or NVIDIADriver, by which NVIDIA's validator knows the driver, and an account."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube.resources import CLUSTER_POLICIES, DAEMON_SETS, NVIDIA_DRIVERS, SERVICE_ACCOUNTS, Resource
from reconciler.node_software.objects import RESOURCES
from tests.component.reconciler.adoption_world import MADE, an_adoption
from tests.component.reconciler.operator_world import NAMESPACE, OperatorWorld, an_operator_world
from tests.unit.operands.operand_cases import ALL_ON

pytestmark = pytest.mark.looptime

Json = dict[str, Any]


@pytest.fixture(name="world")
async def a_world_with_a_node() -> AsyncIterator[OperatorWorld]:
    async with an_operator_world() as world:
        await world.add_node(owner="blue")
        yield world


async def owners_of(world: OperatorWorld) -> dict[str, list[tuple[str, str, str, bool]]]:
    """Return kind, name, uid of each owner of each DaemonSet, and whether it is the controller."""
    return {
        item["metadata"]["name"]: [
            (owner["kind"], owner["name"], owner["uid"], owner.get("controller", False))
            for owner in item["metadata"].get("ownerReferences", ())
        ]
        for item in await world.found(DAEMON_SETS)
    }


async def uid_of(world: OperatorWorld, resource: Resource, name: str) -> str:
    namespace = NAMESPACE if resource.namespaced else None
    found = await world.client.get(resource, Json, name, namespace=namespace)
    return str(found["metadata"]["uid"])


async def lose_policy(world: OperatorWorld) -> None:
    """Let the policy vanish: nobody waits for its finalizer."""
    await world.client.merge_patch(
        CLUSTER_POLICIES, {"metadata": {"finalizers": None}}, name="gpus"
    )
    await world.client.delete(CLUSTER_POLICIES, "gpus")


async def test_every_daemon_set_is_controlled_by_what_describes_it_and_nothing_else_has_an_owner(
    world: OperatorWorld,
):
    await world.add_policy(driver={"useNvidiaDriverCRD": True})
    await world.add_driver("blue")
    await world.until_stable()
    policy = await uid_of(world, CLUSTER_POLICIES, "gpus")
    driver = await uid_of(world, NVIDIA_DRIVERS, "blue")
    owners = await owners_of(world)
    of_driver = {name for name in owners if name.startswith("nvidia-gpu-driver-blue")}
    assert len(of_driver) == 1
    assert "nvidia-operator-validator" in owners
    for name, (controller, account) in owners.items():
        expected = ("NVIDIADriver", "blue", driver) if name in of_driver else None
        assert controller == (*(expected or ("ClusterPolicy", "gpus", policy)), True)
        daemon_set = await world.daemon_set(name)
        used = daemon_set["spec"]["template"]["spec"]["serviceAccountName"]
        uid = await uid_of(world, SERVICE_ACCOUNTS, used)
        assert account == ("ServiceAccount", used, uid, False)
    for kind, resource in RESOURCES.items():
        if kind != "DaemonSet":
            for item in await world.objects_of(resource):
                assert "ownerReferences" not in item["metadata"]


@pytest.mark.parametrize("is_new_leader", [False, True])
async def test_a_policy_that_is_created_again_takes_its_daemon_sets_over(
    world: OperatorWorld, *, is_new_leader: bool
):
    await world.add_policy()
    await world.ready()
    before = {item["metadata"]["name"]: item for item in await world.found(DAEMON_SETS)}
    await lose_policy(world)
    await world.until_stable()
    if is_new_leader:
        world.begin_term()
    await world.add_policy()
    await world.until_stable()
    uid = await uid_of(world, CLUSTER_POLICIES, "gpus")
    for name, owners in (await owners_of(world)).items():
        assert [owner[2] for owner in owners if owner[0] == "ClusterPolicy"] == [uid]
        after = await world.daemon_set(name)
        assert after["metadata"]["uid"] == before[name]["metadata"]["uid"]
        assert after["metadata"]["generation"] == before[name]["metadata"]["generation"]
        assert after["spec"]["template"] == before[name]["spec"]["template"]
    assert (await world.status_of())["state"] == "ready"


async def test_an_owner_that_somebody_takes_off_is_put_back(world: OperatorWorld):
    await world.add_policy()
    await world.until_stable()
    before = await owners_of(world)
    no_owners = {"metadata": {"ownerReferences": None}}
    name = "nvidia-operator-validator"
    await world.client.merge_patch(DAEMON_SETS, no_owners, name=name, namespace=NAMESPACE)
    await world.until_stable()
    assert await owners_of(world) == before


async def test_the_end_removes_daemon_sets_whose_owner_the_garbage_collector_took_off(
    world: OperatorWorld,
):
    """So it does while a policy is deleted with its dependents in the foreground."""
    await world.add_policy()
    await world.ready()
    await world.client.delete(CLUSTER_POLICIES, "gpus")
    for item in await world.found(DAEMON_SETS):
        accounts = [
            owner
            for owner in item["metadata"]["ownerReferences"]
            if owner["kind"] == "ServiceAccount"
        ]
        await world.client.merge_patch(
            DAEMON_SETS,
            {"metadata": {"ownerReferences": accounts}},
            name=item["metadata"]["name"],
            namespace=NAMESPACE,
        )
    await world.until_stable()
    assert await world.names() == set()


async def test_the_settings_are_no_object_that_could_own(world: OperatorWorld):
    world.built_in = ALL_ON
    world.begin_term()
    await world.until_stable()
    assert set(map(len, (await owners_of(world)).values())) == {0}


async def test_daemon_sets_that_were_taken_over_follow_a_policy_that_is_created_again():
    """With the policy of before as their only owner the garbage collector would end their pods, drivers among them."""
    async with an_adoption() as adoption:
        world = adoption.world
        await adoption.release(NAMESPACE)
        await adoption.adopt()
        await adoption.until_stable()
        before = await owners_of(world)
        assert {len(before[name]) for name in MADE} == {2}
        policy = await world.client.get(CLUSTER_POLICIES, Json, "gpus")
        await lose_policy(world)
        await world.add_policy("gpus", **policy["spec"])
        await adoption.until_stable()
        uid = await uid_of(world, CLUSTER_POLICIES, "gpus")
        after = await owners_of(world)
        for name in MADE:
            controller, account = after[name]
            assert controller == ("ClusterPolicy", "gpus", uid, True)
            assert account == before[name][1]
        assert adoption.played.ended == []
