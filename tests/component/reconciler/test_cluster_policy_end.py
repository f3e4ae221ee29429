"""The end of a ClusterPolicy: an order, nothing left, and nothing of others; and its objects while requests fail or end early."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from api.names import POLICY_DRIVER_LABEL, POLICY_FINALIZER, NodeName
from kube.errors import NotFound
from kube.resources import CLUSTER_POLICIES, DAEMON_SETS
from operands.nvidia.states import dcgm as state_dcgm
from operands.nvidia.states import pre_requisites
from reconciler.node_software.policy_controller import RECHECK_S
from simulator.apiserver.injection import ErrorInjection, InjectedError
from tests.component.reconciler.operator_world import (
    NAMESPACE,
    OperatorWorld,
    an_operator_world,
)
from tests.support.cancellation import runs_through

pytestmark = pytest.mark.looptime

FEW_STATES = (pre_requisites.STATE, state_dcgm.STATE)
"""RuntimeClasses, and a DaemonSet with what it needs."""


async def finalizers_of(world: OperatorWorld) -> list[str]:
    found = await world.client.get(CLUSTER_POLICIES, dict[str, Any], "gpus")
    return list(found["metadata"].get("finalizers", ()))


async def is_gone(world: OperatorWorld) -> bool:
    try:
        await finalizers_of(world)
    except NotFound:
        return True
    return False


async def test_the_end_takes_labels_then_daemon_sets_then_what_pods_needed():
    async with an_operator_world() as world:
        await world.add_node()
        await world.add_policy()
        await world.ready()
        assert await finalizers_of(world) == [POLICY_FINALIZER]
        # A pod that does not end: the garbage collector keeps its DaemonSet.
        await world.client.merge_patch(
            DAEMON_SETS,
            {"metadata": {"finalizers": ["example.com/foreground"]}},
            name="nvidia-dcgm-exporter",
            namespace=NAMESPACE,
        )
        await world.client.delete(CLUSTER_POLICIES, "gpus")
        world.labelled = [NodeName("n1")]
        before = await world.names()
        await world.until_stable()
        assert await world.names() == before
        status = await world.status_of()
        assert status["state"] == "notReady"
        assert any(
            "labels on nodes n1" in condition["message"] for condition in status["conditions"]
        )
        world.labelled = []
        await world.until_stable()
        left = await world.names()
        assert {item for item in left if item[0] == "DaemonSet"} == {
            ("DaemonSet", "nvidia-dcgm-exporter")
        }
        assert {item for item in left if item[0] != "DaemonSet"} == {
            item for item in before if item[0] != "DaemonSet"
        }
        await world.client.merge_patch(
            DAEMON_SETS,
            {"metadata": {"finalizers": None}},
            name="nvidia-dcgm-exporter",
            namespace=NAMESPACE,
        )
        world.api.requests.clear()
        await world.observe()
        await world.policy.reconcile("policy")
        kinds = [path.split("/")[-2] for method, path in world.writes() if method == "DELETE"]
        assert [kind for kind, _ in itertools.groupby(map(stage, kinds))] == [
            "rbac",
            "runtimeclasses",
            "others",
        ]
        await world.until_stable()
        assert await world.names() == set()
        assert await is_gone(world)


async def test_the_end_waits_for_what_drivers_have_but_not_for_what_no_driver_has():
    async with an_operator_world(()) as world:
        await world.add_node(owner="blue")
        await world.add_policy(driver={"useNvidiaDriverCRD": True})
        await world.add_driver("blue")
        await world.ready()
        (found,) = await world.found(DAEMON_SETS)
        name = found["metadata"]["name"]
        held = {"metadata": {"finalizers": ["example.com/foreground"]}}
        await world.client.merge_patch(DAEMON_SETS, held, name=name, namespace=NAMESPACE)
        await world.client.delete(CLUSTER_POLICIES, "gpus")
        await world.until_stable()
        status = await world.status_of()
        assert any(
            f"DaemonSet {name}" in condition["message"] for condition in status["conditions"]
        )
        forgotten = {"metadata": {"labels": {POLICY_DRIVER_LABEL: "forgotten"}}}
        await world.client.merge_patch(DAEMON_SETS, forgotten, name=name, namespace=NAMESPACE)
        await world.until_stable()
        assert await is_gone(world)


@pytest.mark.parametrize("status", [403, 404])
async def test_the_end_waits_while_objects_cannot_be_listed(status: int):
    async with an_operator_world(()) as world:
        await world.add_node(owner="blue")
        await world.add_policy(driver={"useNvidiaDriverCRD": True})
        await world.add_driver("blue")
        await world.ready()
        await world.client.delete(CLUSTER_POLICIES, "gpus")
        rule = world.api.faults.fail("GET", "/daemonsets$", status, times=10_000)
        await world.until_stable()
        assert rule.seen
        assert await finalizers_of(world)
        world.api.faults.clear()
        await world.until_stable()
        assert await is_gone(world)
        assert await world.names() == set()


def stage(kind: str) -> str:
    if "role" in kind or kind == "serviceaccounts":
        return "rbac"
    return kind if kind in {"daemonsets", "runtimeclasses"} else "others"


async def test_without_any_policy_nothing_is_removed():
    """Kinds that are not served for a moment look the same."""
    async with an_operator_world() as world:
        await world.add_node()
        await world.add_policy()
        await world.ready()
        before = await world.names()
        world.objects.policy_store.replace_all([])
        assert await world.policy.reconcile("policy") == RECHECK_S
        assert await world.names() == before


Break = Callable[[ErrorInjection, int], InjectedError]


def answered(status: int) -> Break:
    return lambda faults, nth: faults.fail("", "", status, nth=nth)


BREAKS: dict[str, Break] = {
    "409": answered(409),
    "500": answered(500),
    "reset before": lambda faults, nth: faults.reset_before("", "", nth=nth),
    "reset after": lambda faults, nth: faults.reset_after("", "", nth=nth),
}


async def fails_at(nth: int, way: str) -> bool:
    """Let the nth request of a policy's life fail; False when there are not so many."""
    async with an_operator_world(FEW_STATES) as world:
        await world.add_node()
        await world.add_policy(dcgm={"enabled": True})
        faults = world.api.faults
        rule = BREAKS[way](faults, nth)
        await world.until_stable_in_trouble()
        faults.clear()
        await world.roll_out()
        assert ("DaemonSet", "nvidia-dcgm") in await world.names()
        faults.add(rule)
        await world.until_stable_in_trouble()
        faults.clear()
        await world.client.delete(CLUSTER_POLICIES, "gpus")
        faults.add(rule)
        await world.until_stable_in_trouble()
        is_hit = rule.seen >= nth
        faults.clear()
        await world.until_stable()
        assert await world.names() == set()
        assert await is_gone(world)
        return is_hit


STRIDE = 8


@pytest.mark.parametrize(("offset", "way"), list(enumerate(BREAKS)))
async def test_a_failure_of_any_request_delays_and_loses_nothing(offset: int, way: str):
    """Each way hits other requests of a policy's life."""
    nth = 2 * offset + 1
    while await fails_at(nth, way):
        nth += STRIDE
    assert nth > 50


async def test_a_pass_cancelled_anywhere_is_taken_up_by_the_next_leader():
    for number in (1, 2, 3, 5, 9, 14, 20, 27, 33, 40):
        async with an_operator_world(FEW_STATES) as world:
            await world.add_node()
            await world.add_policy(dcgm={"enabled": True})
            await world.observe()
            await runs_through(world.policy.reconcile("policy"), cancel_at=number)
            world.begin_term()
            await world.ready()
            assert (await world.status_of())["state"] == "ready"
            assert world.recorder.taken() == []
            await world.client.delete(CLUSTER_POLICIES, "gpus")
            await world.observe()
            await runs_through(world.policy.reconcile("policy"), cancel_at=number)
            world.begin_term()
            await world.until_stable()
            assert await world.names() == set()
            assert await is_gone(world)


async def test_pauses_grow_while_the_api_server_refuses_an_object_and_others_go_on():
    async with an_operator_world() as world:
        await world.add_node()
        await world.add_policy()
        world.api.faults.fail("PATCH", "daemonsets/nvidia-dcgm-exporter", 422, times=99)
        pauses = [await world.step() for _ in range(5)]
        assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0]
        found = await world.state_of("state-dcgm-exporter")
        assert (found["state"], found["reason"]) == ("notReady", "ObjectNotApplied")
        assert "DaemonSet nvidia-dcgm-exporter" in found["message"]
        assert ("DaemonSet", "nvidia-mig-manager") in await world.names()
        world.api.faults.clear()
        await world.ready()
        assert (await world.status_of())["state"] == "ready"
