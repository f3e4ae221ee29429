"""`nvidiadriver`: the driver of the nodes that an NVIDIADriver owns; conflicts touch nothing, and its end leaves nothing."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.names import DRIVER_OWNER_LABEL
from kube.resources import DAEMON_SETS, NVIDIA_DRIVERS, Resource
from tests.component.reconciler.operator_world import (
    NAMESPACE,
    RHEL,
    OperatorWorld,
    an_operator_world,
    conditions_in,
)

pytestmark = pytest.mark.looptime

LEFT_TO_DRIVERS = {"useNvidiaDriverCRD": True}


@pytest.fixture
async def world() -> AsyncIterator[OperatorWorld]:
    async with an_operator_world(()) as opened:
        yield opened


async def daemon_sets(world: OperatorWorld) -> set[str]:
    return {item["metadata"]["name"] for item in await world.found(DAEMON_SETS)}


async def test_each_driver_has_daemon_sets_for_its_own_nodes(world: OperatorWorld):
    await world.add_node("u1", owner="blue", pool="blue")
    await world.add_node("r1", software=RHEL, owner="red", pool="red")
    await world.add_policy(driver=LEFT_TO_DRIVERS)
    await world.add_driver("blue", nodeSelector={"pool": "blue"})
    await world.add_driver("red", nodeSelector={"pool": "red"})
    await world.until_stable()
    assert {set_.split("-")[3] for set_ in await daemon_sets(world)} == {"blue", "red"}
    status = await world.driver_status("blue")
    assert status["state"] == "notReady"
    assert conditions_in(status)["Error"] == ("True", "OperandNotReady")
    await world.ready()
    for name in ("blue", "red"):
        status = await world.driver_status(name)
        assert status["state"] == "ready"
        assert conditions_in(status)["Ready"] == ("True", "Reconciled")
    assert await world.until_stable() == 0


async def test_a_driver_waits_for_the_owner_label_of_its_nodes(world: OperatorWorld):
    await world.add_node("u1", owner="blue")
    await world.add_node("u2")
    await world.add_policy(driver=LEFT_TO_DRIVERS)
    await world.add_driver("blue")
    await world.ready()
    status = await world.driver_status("blue")
    assert conditions_in(status)["Error"] == ("True", "OperandNotReady")
    assert any(
        "no labels of it yet: u2" in condition["message"] for condition in status["conditions"]
    )
    await world.label_node("u2", **{DRIVER_OWNER_LABEL: "blue"})
    await world.ready()
    assert conditions_in(await world.driver_status("blue"))["Ready"] == ("True", "Reconciled")


async def test_without_the_policys_word_a_driver_is_switched_off_and_has_nothing(
    world: OperatorWorld,
):
    await world.add_node("u1", owner="blue")
    await world.add_policy(driver=LEFT_TO_DRIVERS)
    await world.add_driver("blue")
    await world.ready()
    assert await daemon_sets(world)
    await world.change_policy(driver={"useNvidiaDriverCRD": False})
    await world.until_stable()
    assert await world.names() == set()
    status = await world.driver_status("blue")
    assert status["state"] == "disabled"
    assert any("useNvidiaDriverCRD" in condition["message"] for condition in status["conditions"])


async def test_two_that_select_one_node_say_so_and_touch_nothing(world: OperatorWorld):
    await world.add_node("u1", owner="blue", pool="blue")
    await world.add_policy(driver=LEFT_TO_DRIVERS)
    await world.add_driver("blue", nodeSelector={"pool": "blue"})
    await world.ready()
    before = await world.names()
    await world.add_driver("green", nodeSelector={"pool": "blue"})
    await world.until_stable()
    assert await world.names() == before
    for name in ("blue", "green"):
        status = await world.driver_status(name)
        assert status["state"] == "notReady"
        assert conditions_in(status)["Error"] == ("True", "ConflictingNodeSelector")
        assert any("blue, green" in condition["message"] for condition in status["conditions"])
    # gpu-operator#2259: the conflict of two stopped a third one, too.
    await world.add_node("r1", owner="red", pool="red")
    await world.add_driver("red", nodeSelector={"pool": "red"})
    await world.ready()
    assert (await world.driver_status("red"))["state"] == "ready"
    assert (await world.driver_status("blue"))["state"] == "notReady"
    await world.client.delete(NVIDIA_DRIVERS, "green")
    await world.until_stable()
    assert (await world.driver_status("blue"))["state"] == "ready"


async def test_a_daemon_set_goes_once_no_node_and_no_pod_needs_it_1368(world: OperatorWorld):
    await world.add_node("u1", owner="blue")
    await world.add_node("r1", software=RHEL, owner="blue")
    await world.add_policy(driver=LEFT_TO_DRIVERS)
    await world.add_driver("blue")
    await world.ready()
    both = await daemon_sets(world)
    assert len(both) == 2
    # The node has another owner now, and its pod is not gone yet.
    await world.label_node("r1", **{"nvidia.com/gpu-operator.driver.owner": None})
    await world.until_stable()
    assert await daemon_sets(world) == both
    await world.roll_out()
    await world.until_stable()
    assert len(await daemon_sets(world)) == 1
    assert await world.until_stable() == 0


async def test_a_driver_without_a_node_says_why(world: OperatorWorld):
    await world.add_node("u1")
    await world.add_policy(driver=LEFT_TO_DRIVERS)
    await world.add_driver("blue", nodeSelector={"pool": "blue"})
    await world.until_stable()
    status = await world.driver_status("blue")
    assert conditions_in(status)["Ready"] == ("True", "NoGPUNodes")
    assert any("selects no node" in condition["message"] for condition in status["conditions"])


async def test_a_missing_secret_is_named_by_the_pod_that_waits_for_it(world: OperatorWorld):
    await world.add_node("u1", owner="blue")
    await world.add_policy(driver=LEFT_TO_DRIVERS)
    await world.add_driver("blue", secretEnv="licence")
    await world.until_stable()
    await world.roll_out(missing=dict.fromkeys(await daemon_sets(world), 1))
    (daemon_set,) = await world.found(DAEMON_SETS)
    await world.add_waiting_pod(
        daemon_set, "u1", reason="CreateContainerConfigError", message='secret "licence" not found'
    )
    await world.until_stable()
    status = await world.driver_status("blue")
    assert (
        'node u1: container c: CreateContainerConfigError: secret "licence" not found'
        in (status["states"][0]["message"])
    )


async def test_a_deleted_driver_leaves_nothing_and_no_other_drivers_objects_go(
    world: OperatorWorld,
):
    await world.add_node("u1", owner="blue", pool="blue")
    await world.add_node("u2", owner="red", pool="red")
    await world.add_policy(driver=LEFT_TO_DRIVERS)
    await world.add_driver("blue", nodeSelector={"pool": "blue"})
    await world.add_driver("red", nodeSelector={"pool": "red"})
    await world.ready()
    await world.client.delete(NVIDIA_DRIVERS, "blue")
    await world.until_stable()
    left = await world.names()
    assert left
    assert not [name for _, name in left if "blue" in name]
    listing = await world.found(NVIDIA_DRIVERS, selector=None)
    assert [item["metadata"]["name"] for item in listing] == ["red"]


async def test_pods_of_the_policys_driver_stay_for_the_drivers_that_take_over(
    monkeypatch: pytest.MonkeyPatch,
):
    async with an_operator_world() as world:
        await world.add_node("u1", owner="blue")
        await world.add_policy()
        await world.ready()
        await world.add_driver("blue")
        await world.change_policy(driver=LEFT_TO_DRIVERS)
        delete, propagations = world.client.delete, {}

        async def recorded(resource: Resource, name: str, **options: Any) -> None:
            # The API server in memory has no garbage collector, and takes any propagation.
            propagations[name] = options["propagation"]
            await delete(resource, name, **options)

        monkeypatch.setattr(world.client, "delete", recorded)
        await world.step()
        assert propagations["nvidia-driver-daemonset-ubuntu24.04"] == "Orphan"
        await world.ready()
        assert (await world.status_of())["state"] == "ready"
        assert [
            set_ for set_ in await daemon_sets(world) if set_.startswith("nvidia-gpu-driver-blue")
        ]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({"nvidia.com/gpu-driver-upgrade-state": "drain-required"}, "DriverNotReady"),
        (
            {
                "nvidia.com/gpu-driver-upgrade-state": "drain-required",
                "nvidia.com/gpu-driver-upgrade.skip": "true",
            },
            "Ready",
        ),
        ({"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}, "Ready"),
    ],
)
async def test_a_policy_is_not_ready_while_a_node_of_a_driver_is_upgraded(
    world: OperatorWorld, labels: dict[str, str | None], reason: str
):
    await world.add_node("u1", owner="blue")
    await world.label("u1", labels)
    await world.add_policy(driver=LEFT_TO_DRIVERS)
    await world.add_driver("blue")
    await world.ready()
    assert (await world.conditions_of())["Error"][1] == reason
    assert (await world.status_of())["namespace"] == NAMESPACE
