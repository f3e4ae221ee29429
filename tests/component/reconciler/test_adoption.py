"""Coming from NVIDIA's GPU Operator: what it made in our namespace is taken over, and nothing starts beside what is not."""

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.names import (
    ADOPTED_ANNOTATION,
    DEPLOY_LABELS_ANNOTATION,
    DRIVER_OWNER_LABEL,
    OPERAND_LABEL,
    OPERANDS_LABEL,
)
from cli.exit_status import FAILED, OK
from cli.operands.adopt_command import adopt
from cli.operands.operator_objects import find_operator, hand_over
from kube.resources import (
    CLUSTER_POLICIES,
    CLUSTER_ROLES,
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    NVIDIA_DRIVERS,
    SERVICE_ACCOUNTS,
)
from tests.component.reconciler.adoption_world import (
    ELSEWHERE,
    IMAGE,
    MADE,
    NODES_OF_TESTS,
    OURS,
    PLUGIN_WORK,
    Adoption,
    an_adoption,
)
from tests.component.reconciler.operator_world import NAMESPACE
from tests.support.nvidia.operator_release import (
    DRIVER,
    PLUGIN,
    operators_account,
    operators_daemon_set,
    the_operator,
)

pytestmark = pytest.mark.looptime

Json = dict[str, Any]

IN_ZONE: Json = {
    "matchExpressions": [
        {"key": "zone", "operator": "In", "values": ["legacy"]},
        {"key": "nvidia.com/gpu.present", "operator": "Exists"},
    ]
}
BY_NAME: Json = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}


@pytest.fixture(name="adoption")
async def the_adoption() -> AsyncIterator[Adoption]:
    async with an_adoption() as adoption:
        yield adoption


async def test_without_the_hand_over_nothing_starts_beside_the_operators_daemon_sets(
    adoption: Adoption,
):
    """No second driver is bound, and no second plugin registers."""
    await adoption.release(NAMESPACE)
    before = adoption.played.uids()
    await adoption.until_stable()
    found = await adoption.world.state_of("state-driver")
    assert (found["state"], found["reason"]) == ("notReady", "AlreadyRuns")
    assert f"DaemonSet {NAMESPACE}/{DRIVER} of another client" in found["message"]
    assert "operands adopt --dry-run" in found["message"]
    after = adoption.played.uids()
    assert after == before


async def test_an_account_that_the_operator_left_is_handed_over_too(adoption: Adoption):
    client = adoption.world.client
    policy = await client.get(CLUSTER_POLICIES, Json, "gpus")
    account = operators_account("nvidia-dcgm", policy, namespace=NAMESPACE)
    await client.create(SERVICE_ACCOUNTS, account)
    await adoption.until_stable()
    found = await adoption.world.state_of("state-dcgm")
    assert found["reason"] == "ObjectOwnedByAnother"
    assert "ServiceAccount nvidia-dcgm" in found["message"]
    assert found["message"].endswith("`gpu-control-plane operands adopt`")
    await adoption.adopt()
    await adoption.until_stable()
    assert (await adoption.world.state_of("state-dcgm"))["state"] == "ready"


async def test_what_is_handed_over_is_taken_over_and_no_pod_restarts(adoption: Adoption):
    await adoption.release(NAMESPACE)
    before = adoption.played.uids()
    driver = await adoption.world.daemon_set(DRIVER)
    await adoption.adopt()
    await adoption.until_stable()
    assert before.items() <= adoption.played.uids().items()
    assert adoption.played.ended == []
    status = await adoption.world.status_of()
    assert status["state"] == "ready", [
        item for item in status["states"] if item["state"] == "notReady"
    ]
    after = await adoption.world.daemon_set(DRIVER)
    assert after["spec"]["selector"] == driver["spec"]["selector"]
    # Nodes that are added may have any taint.
    driver["spec"]["template"]["spec"]["tolerations"].append({"operator": "Exists"})
    assert after["spec"]["template"] == driver["spec"]["template"]
    assert OURS not in await adoption.names()
    plugin = await adoption.world.daemon_set(PLUGIN)
    assert plugin["spec"]["updateStrategy"] == {"type": "OnDelete"}
    images = {item["image"] for item in plugin["spec"]["template"]["spec"]["containers"]}
    assert images == {"registry.example.com/device_plugin:1"}
    node = await adoption.world.client.get(NODES, Json, "n1")
    assert node["metadata"]["annotations"][DEPLOY_LABELS_ANNOTATION] == "adopt"


async def test_the_nodes_get_pods_of_ours_one_by_one_and_then_the_daemon_sets_are_ours(
    adoption: Adoption,
):
    await adoption.release(NAMESPACE)
    await adoption.adopt()
    await adoption.until_stable()
    drivers = {node: adoption.played.uids()[node, "nvidia-driver"] for node in NODES_OF_TESTS}
    for node in NODES_OF_TESTS:
        for pod in [item for item in adoption.played.pods if item.node == node]:
            if pod.work != "nvidia-driver":
                adoption.played.end(pod)
        await adoption.played.tick()
        await adoption.until_stable()
    before = adoption.played.uids()
    await adoption.until_stable()
    assert adoption.played.uids() == before
    for name in MADE:
        item = await adoption.world.daemon_set(name)
        has_mark = ADOPTED_ANNOTATION in item["metadata"]["annotations"]
        assert has_mark is (name == DRIVER), name
        if name != DRIVER:
            assert item["spec"]["updateStrategy"]["type"] == "RollingUpdate"
            managers = {entry["manager"] for entry in item["metadata"]["managedFields"]}
            assert all(manager.startswith("gpu-control-plane") for manager in managers), managers
    assert drivers == {
        node: adoption.played.uids()[node, "nvidia-driver"] for node in NODES_OF_TESTS
    }
    assert (await adoption.world.status_of())["state"] == "ready"


async def test_another_driver_reaches_the_nodes_by_their_upgrade(adoption: Adoption):
    await adoption.release(NAMESPACE)
    await adoption.adopt()
    await adoption.until_stable()
    drivers = {node: adoption.played.uids()[node, "nvidia-driver"] for node in NODES_OF_TESTS}
    await adoption.world.change_policy(
        driver={"repository": "registry.example.com", "image": "driver", "version": "2"}
    )
    await adoption.until_stable()
    now = adoption.played.uids()
    assert drivers == {node: now[node, "nvidia-driver"] for node in NODES_OF_TESTS}
    found = await adoption.world.state_of("state-driver")
    assert (found["state"], found["reason"]) == ("notReady", "PodsNotReady")
    for node in NODES_OF_TESTS:
        await adoption.played.upgrade(node)
        await adoption.until_stable()
    assert DRIVER not in await adoption.names()
    assert OURS in await adoption.names()
    before = adoption.played.uids()
    await adoption.until_stable()
    assert adoption.played.uids() == before
    assert (await adoption.world.status_of())["state"] == "ready"


async def test_a_driver_that_was_changed_before_the_hand_over_waits_for_the_upgrade_too(
    adoption: Adoption,
):
    await adoption.release(NAMESPACE, image="registry.example.com/driver:0-ubuntu24.04")
    before = adoption.played.uids()
    await adoption.adopt()
    await adoption.until_stable()
    assert before.items() <= adoption.played.uids().items()
    item = await adoption.world.daemon_set(DRIVER)
    (image,) = {item["image"] for item in item["spec"]["template"]["spec"]["containers"]}
    assert image == IMAGE
    assert (await adoption.world.state_of("state-driver"))["reason"] == "PodsNotReady"


async def test_the_driver_of_an_nvidia_driver_is_taken_over_and_keeps_its_name(adoption: Adoption):
    world, played = adoption.world, adoption.played
    await world.change_policy(driver={"useNvidiaDriverCRD": True})
    await world.add_driver("blue", version="1")
    for node in NODES_OF_TESTS:
        await world.label_node(node, **{DRIVER_OWNER_LABEL: "blue"})
    driver = await world.client.get(NVIDIA_DRIVERS, Json, "blue")
    name = "nvidia-gpu-driver-ubuntu24.04-5d7c9f"
    body = operators_daemon_set(DRIVER, driver, namespace=NAMESPACE, driver_image=IMAGE)
    for labels in (
        body["metadata"]["labels"],
        body["spec"]["selector"]["matchLabels"],
        body["spec"]["template"]["metadata"]["labels"],
    ):
        labels["app"] = name
    body["metadata"]["name"] = name
    await world.client.create(DAEMON_SETS, body)
    await played.tick()
    before = played.uids()
    await adoption.until_stable()
    assert "AlreadyRuns" in str(await world.driver_status("blue"))
    await adoption.adopt()
    await adoption.until_stable()
    drivers = {name for name in await adoption.names() if "driver" in name}
    assert drivers == {name}
    assert before.items() <= played.uids().items()
    assert (await world.driver_status("blue"))["state"] == "ready"
    await world.client.merge_patch(NVIDIA_DRIVERS, {"spec": {"version": "2"}}, name="blue")
    await adoption.until_stable()
    assert before.items() <= played.uids().items()
    for node in NODES_OF_TESTS:
        await played.upgrade(node)
    await adoption.until_stable()
    # Its pods cannot have the labels by which a DaemonSet of another `app` would adopt them.
    assert {name for name in await adoption.names() if "driver" in name} == {name}
    assert (await world.driver_status("blue"))["state"] == "ready"


async def test_nodes_without_our_labels_keep_their_pods(adoption: Adoption):
    """Our template selects the container runtime by a label, which the nodes get a moment later."""
    await adoption.world.label_node("n2", **{"gpu.deckhouse.io/node-container-runtime": None})
    await adoption.release(NAMESPACE)
    await adoption.adopt()
    await adoption.until_stable()
    assert adoption.played.ended == []
    found = await adoption.world.state_of("state-container-toolkit")
    assert found["reason"] == "AdoptionWaits"
    assert "until nodes n2 have the labels" in found["message"]
    runtime = {"gpu.deckhouse.io/node-container-runtime": "containerd"}
    await adoption.world.label_node("n2", **runtime)
    await adoption.until_stable()
    assert adoption.played.ended == []
    assert (await adoption.world.status_of())["state"] == "ready"


async def test_of_another_namespace_nothing_is_handed_over_and_nothing_is_doubled(
    adoption: Adoption,
):
    await adoption.release(ELSEWHERE)
    before = adoption.played.uids()
    await adoption.adopt()
    await adoption.until_stable()
    assert adoption.played.uids().items() >= before.items()
    for state in ("state-driver", "state-device-plugin", "state-dcgm"):
        found = await adoption.world.state_of(state)
        assert found["reason"] == "AlreadyRuns"
        assert f"DaemonSet {ELSEWHERE}/" in found["message"]
    # A state that has no such DaemonSet runs.
    assert await adoption.names() == {"nvidia-device-plugin-mps-control-daemon"}
    await adoption.world.client.delete(DAEMON_SETS, PLUGIN, namespace=ELSEWHERE)
    await adoption.played.tick()
    await adoption.until_stable()
    assert PLUGIN in await adoption.names()
    assert (await adoption.world.state_of("state-device-plugin"))["state"] == "ready"


async def test_a_daemon_set_that_comes_later_takes_nothing_away_and_is_named(adoption: Adoption):
    await adoption.until_stable()
    before = await adoption.names()
    policy = await adoption.world.client.get(CLUSTER_POLICIES, Json, "gpus")
    body = operators_daemon_set(PLUGIN, policy, namespace=ELSEWHERE)
    # Software may label nodes with it.
    body["spec"]["template"]["spec"]["nodeSelector"] = {"nvidia.com/gpu.family": "hopper"}
    await adoption.world.client.create(DAEMON_SETS, body)
    await adoption.until_stable()
    assert await adoption.names() == before
    found = await adoption.world.state_of("state-device-plugin")
    assert (found["reason"], found["nodesReady"]) == ("AlreadyRuns", 2)
    assert (
        f"DaemonSet {ELSEWHERE}/{PLUGIN}"
        in (await adoption.world.status_of())["conditions"][1]["message"]
    )


@pytest.mark.parametrize(
    ("selector", "terms"),
    [({"zone": "legacy"}, None), (None, [IN_ZONE]), ({}, [BY_NAME])],
    ids=["by node selector", "by labels in affinity", "by name in affinity"],
)
async def test_beside_a_daemon_set_of_other_nodes_a_state_starts(
    adoption: Adoption, selector: Json | None, terms: list[Json] | None
):
    client = adoption.world.client
    await adoption.world.label_node("n1", zone="legacy")
    policy = await client.get(CLUSTER_POLICIES, Json, "gpus")
    body = operators_daemon_set(PLUGIN, policy, namespace=ELSEWHERE)
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    affinity = {"nodeAffinity": required} if terms else None
    body["spec"]["template"]["spec"] |= {"nodeSelector": selector, "affinity": affinity}
    await client.create(DAEMON_SETS, body)
    await adoption.until_stable()
    found = await adoption.world.state_of("state-device-plugin")
    assert found["reason"] == "AlreadyRuns"
    assert "does the same on node n1, so that" in found["message"]
    left_to_it = {OPERANDS_LABEL: "false", "nvidia.com/gpu.deploy.device-plugin": None}
    await adoption.world.label_node("n1", **left_to_it)
    await adoption.until_stable()
    assert (await adoption.world.state_of("state-device-plugin"))["state"] == "ready"
    assert {node for node, work in adoption.played.uids() if work == PLUGIN_WORK} == {"n1", "n2"}


async def test_where_daemon_sets_of_others_cannot_be_listed_nothing_changes_and_states_say_so(
    adoption: Adoption,
):
    """So it is for a server whose roles are those of an earlier version."""
    await adoption.until_stable()
    before = await adoption.names()
    adoption.world.api.faults.fail("GET", "/apis/apps/v1/daemonsets$", 403, times=10_000)
    await adoption.world.until_stable()
    found = await adoption.world.state_of("state-device-plugin")
    assert (found["state"], found["reason"]) == ("notReady", "ObjectNotApplied")
    assert "DaemonSet *: 403" in found["message"]
    assert "apply `render rbac`" in found["message"]
    assert await adoption.names() == before
    adoption.world.api.faults.clear()
    await adoption.until_stable()
    assert (await adoption.world.status_of())["state"] == "ready"


async def test_the_end_of_the_policy_removes_what_was_taken_over(adoption: Adoption):
    await adoption.release(NAMESPACE)
    await adoption.adopt()
    await adoption.until_stable()
    await adoption.world.client.delete(CLUSTER_POLICIES, "gpus")
    await adoption.world.until_stable()
    assert await adoption.world.names() == set()
    left = await adoption.world.found(DAEMON_SETS, selector=None)
    assert left == []


async def test_the_command_says_what_becomes_of_each_and_refuses_while_the_operator_runs(
    adoption: Adoption, capsys: pytest.CaptureFixture[str]
):
    await adoption.release(NAMESPACE)
    client = adoption.world.client
    await client.create(DEPLOYMENTS, the_operator(NAMESPACE))
    adoption.world.writes()
    assert await adopt(client, NAMESPACE, is_dry_run=False) == FAILED
    lines = capsys.readouterr().out.splitlines()
    plugin = f"DaemonSet {NAMESPACE}/{PLUGIN}: would be taken over in place for state-device-plugin"
    assert f"{plugin}; its pods stay until the drivers of their nodes are upgraded" in lines
    # The ClusterPolicy switches none of them off.
    assert not [line for line in lines if "goes with its pods" in line]
    assert f"  kubectl -n {NAMESPACE} scale deployment gpu-operator --replicas=0" in lines
    assert f"  kubectl -n {NAMESPACE} delete secrets -l owner=helm,name=gpu-operator-17" in lines
    stopped = {"spec": {"replicas": 0}}
    await client.merge_patch(DEPLOYMENTS, stopped, name="gpu-operator", namespace=NAMESPACE)
    adoption.world.writes()
    assert await adopt(client, NAMESPACE, is_dry_run=True) == OK
    assert adoption.world.writes() == []
    assert await adopt(client, NAMESPACE, is_dry_run=False) == OK
    assert f"{PLUGIN}: taken over in place" in capsys.readouterr().out
    role = await client.get(CLUSTER_ROLES, Json, "nvidia-driver")
    assert role["metadata"]["labels"] == {OPERAND_LABEL: "state-driver"}
    assert "ownerReferences" not in role["metadata"]
    adoption.world.writes()
    assert await adopt(client, NAMESPACE, is_dry_run=False) == OK
    assert adoption.world.writes() == []


async def test_what_the_policy_switches_off_goes_and_the_command_says_so(
    adoption: Adoption, capsys: pytest.CaptureFixture[str]
):
    await adoption.release(NAMESPACE)
    await adoption.world.change_policy(dcgm={"enabled": False})
    await adoption.adopt()
    text = "goes with its pods, since the ClusterPolicy switches state-dcgm off"
    assert f"DaemonSet {NAMESPACE}/nvidia-dcgm: {text}" in capsys.readouterr().out
    await adoption.until_stable()
    assert "nvidia-dcgm" not in await adoption.names()
    assert {pod.work for pod in adoption.played.ended} == {"nvidia-dcgm"}


async def test_the_command_names_what_it_cannot_hand_over(
    adoption: Adoption, capsys: pytest.CaptureFixture[str]
):
    await adoption.release(ELSEWHERE)
    assert await adopt(adoption.world.client, NAMESPACE, is_dry_run=True) == FAILED
    text = f"DaemonSet {ELSEWHERE}/{DRIVER}: state-driver is not started beside it."
    assert text in capsys.readouterr().out
    await adoption.world.client.delete(CLUSTER_POLICIES, "gpus")
    assert await adopt(adoption.world.client, NAMESPACE, is_dry_run=True) == FAILED
    assert "there is no ClusterPolicy" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(4))
async def test_in_any_order_no_pod_is_doubled_and_every_node_keeps_driver_and_plugin(
    adoption: Adoption, seed: int
):
    chance = random.Random(seed)  # an order
    await adoption.release(NAMESPACE)
    uids = adoption.played.uids()
    left = [f"dcgm-{number}" for number in range(2)]
    for _ in range(30):
        match chance.choice(["adopt", "step", "step", "tick", "leader", "policy", "node"]):
            case "adopt":
                found = await find_operator(adoption.world.client, NAMESPACE)
                assert found is not None
                chance.shuffle(found.objects)
                del found.objects[3:]
                await hand_over(adoption.world.client, found)
            case "step":
                await adoption.world.step()
            case "leader":
                adoption.world.begin_term()
            case "policy" if left:
                image = {"repository": "registry.example.com", "image": left.pop(), "version": "1"}
                await adoption.world.change_policy(dcgm=image)
            case "node":
                node = chance.choice(NODES_OF_TESTS)
                pods = [pod for pod in adoption.played.pods if pod.node == node]
                for pod in pods:
                    if pod.work not in {"nvidia-driver", PLUGIN_WORK}:
                        adoption.played.end(pod)
            case _:
                pass
        await adoption.played.tick()
        now = adoption.played.uids()
        for node in NODES_OF_TESTS:
            for work in ("nvidia-driver", PLUGIN_WORK):
                assert now[node, work] == uids[node, work]
    await adoption.adopt()
    await adoption.until_stable()
    status = await adoption.world.status_of()
    unready = [item for item in status["states"] if item["state"] == "notReady"]
    assert not unready, unready
