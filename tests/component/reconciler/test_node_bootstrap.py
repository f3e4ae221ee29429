"""What is written of a node's software, when, and what is left alone."""

import datetime as dt
from collections.abc import AsyncIterator

import pytest

from api.status_conditions import format_time
from kube.errors import Conflict
from kube.resources import GPU_NODE_INVENTORIES
from reconciler.readiness.controller import FIELD_MANAGER, SPEC
from telemetry.metrics import REGISTRY
from tests.component.reconciler.readiness import N1, World, a_world
from tests.support.allocation_state import a_bound_pod
from tests.support.controllers import connected

STATUS = ("PATCH", "gpunodeinventories/n1/status")
VALIDATOR, GFD = "nvidia-operator-validator", "gpu-feature-discovery"
READY = "driver, toolkit and operands are ready"
AS_EXPECTED = "no component that was ready has failed"
DCGM, EXPORTER = "nvidia-dcgm", "nvidia-dcgm-exporter"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as opened:
        yield opened


def gauge(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"node": "n1", **labels})


async def test_with_default_settings_a_fresh_node_is_ready_for_pooling_at_once(world: World):
    """Lesson 1: a fresh device gets as far as it can with nothing configured."""
    assert await world.process.run_pass() is None
    assert (await world.inventory())["phase"] == "Ready"
    assert (await world.conditions())["ReadyForPooling"] == ("True", "Ready")


async def test_fresh_node_with_operands_is_ready_for_pooling_after_three_looks(world: World):
    for app in (VALIDATOR, GFD):
        await world.run_operand(app)
    assert await world.process.run_pass(times=2) == 10
    assert (await world.conditions())["ReadyForPooling"] == ("False", "Validating")
    world.time.seconds += 10
    assert await world.process.run_pass() is None
    assert (await world.inventory())["phase"] == "Ready"
    assert (await world.conditions())["ReadyForPooling"] == ("True", "Ready")


async def test_operands_are_waited_for_and_shown_where_they_exist(world: World):
    for app in (VALIDATOR, GFD, DCGM):
        await world.run_operand(app)
    await world.run_operand(EXPORTER, ready=False)
    await world.process.run_pass(times=3)
    status = await world.inventory()
    assert status["phase"] == "Monitoring"
    message = "pod gpu-operator/nvidia-dcgm-exporter-n1 is not ready"
    operands = {operand["name"]: operand for operand in status["operands"]}
    since = operands["gfd"].pop("since")
    assert operands["gfd"] == {"name": "gfd", "ready": True, "reason": "Ready"}
    assert operands["dcgm-exporter"] == {
        "name": "dcgm-exporter",
        "ready": False,
        "reason": "PodNotReady",
        "message": message,
        "since": since,
    }
    assert (await world.conditions())["ReadyForPooling"] == ("False", "MonitoringMissing")
    world.time.seconds += 60
    await world.run_operand(EXPORTER)
    await world.process.run_pass(times=3)
    status = await world.inventory()
    assert status["phase"] == "Ready"
    # Since when it is as it is; a look that finds no change keeps the time.
    times = {operand["name"]: operand["since"] for operand in status["operands"]}
    assert times["gfd"] == since
    assert times["dcgm-exporter"] > since


async def test_the_steps_of_the_validator_tell_driver_and_toolkit_apart(world: World):
    """Lesson 51."""
    inits: dict[str, int | None] = {"driver-validation": 0, "toolkit-validation": None}
    await world.run_operand(VALIDATOR, ready=False, inits=inits)
    await world.process.run_pass(times=3)
    conditions = await world.conditions()
    assert conditions["DriverMissing"] == ("False", "Ready")
    assert conditions["ToolkitMissing"] == ("True", "NotReady")
    assert conditions["ReadyForPooling"] == ("False", "ToolkitMissing")
    assert (await world.inventory())["phase"] == "ValidatingFailed"


async def test_each_condition_has_an_event_when_it_turns_bad_and_one_when_it_is_good_again(
    world: World,
):
    recorder = world.process.bootstrap_recorder
    operands = (VALIDATOR, GFD, DCGM, EXPORTER)
    for app in operands:
        await world.run_operand(app)
    await world.process.run_pass(times=2)
    assert recorder.events == [], "a node that starts has lost nothing"
    world.time.seconds += 10
    await world.process.run_pass()
    assert recorder.seen() == [("GPUNodeReadyForPooling", "GPUNodeInventory", "n1")]
    for _ in range(2):
        await world.run_operand(VALIDATOR, ready=False, inits={"driver-validation": None})
        await world.run_operand(GFD, ready=False)
        await world.run_operand(EXPORTER, ready=False)
        await world.process.run_pass(times=4)
        world.process.pods.upsert(a_bound_pod("p", "GPU-n1-0"))
        await world.process.bootstrap.reconcile(N1)
        lost = recorder.taken()
        assert {event.type for event in lost} == {"Warning"}
        assert "nvidia-operator-validator-n1" in lost[0].note
        assert sorted(event.reason for event in lost) == [
            "GPUDegradedWorkloads",
            "GPUDriverMissing",
            "GPUFeatureDiscoveryMissing",
            "GPUInfraDegraded",
            "GPUMonitoringMissing",
            "GPUNodeNotReadyForPooling",
            "GPUToolkitMissing",
        ]
        for app in operands:
            await world.run_operand(app)
        await world.process.run_pass(times=4)
        regained = recorder.taken()
        assert {event.type for event in regained} == {"Normal"}
        assert sorted((event.reason, event.note) for event in regained) == [
            ("GPUNodeReadyForPooling", f"ReadyForPooling is True: {READY}"),
            ("GPUNodeRecovered", "DegradedWorkloads is False: no pod is affected"),
            ("GPUNodeRecovered", "DriverMissing is False: ready"),
            ("GPUNodeRecovered", "GFDReady is True: ready"),
            ("GPUNodeRecovered", f"InfraDegraded is False: {AS_EXPECTED}"),
            ("GPUNodeRecovered", "MonitoringMissing is False: ready"),
            ("GPUNodeRecovered", "ToolkitMissing is False: ready"),
        ]
    await (await world.restart()).run_pass(times=4)
    assert world.process.bootstrap_recorder.events == [], "another leader repeats nothing"


async def test_an_operand_that_restarts_changes_no_condition(world: World):
    await world.run_operand(GFD)
    await world.process.run_pass(times=3)
    before = await world.conditions()
    await world.run_operand(GFD, ready=False)
    await world.process.run_pass(times=2, every_s=9)
    await world.run_operand(GFD)
    await world.process.run_pass(times=2)
    assert await world.conditions() == before


async def test_an_operand_that_stays_away_takes_the_node_out_and_back_again(world: World):
    await world.run_operand(GFD)
    await world.process.run_pass(times=3)
    await world.run_operand(GFD, ready=False)
    await world.process.run_pass(times=3)
    conditions = await world.conditions()
    assert conditions["ReadyForPooling"] == ("False", "GFDNotReady")
    assert conditions["InfraDegraded"] == ("True", "NotReady")
    await world.run_operand(GFD)
    await world.process.run_pass(times=2)
    assert (await world.conditions())["ReadyForPooling"] == ("False", "GFDNotReady")
    world.time.seconds += 10
    await world.process.run_pass()
    conditions = await world.conditions()
    assert conditions["ReadyForPooling"] == ("True", "Ready")
    assert conditions["InfraDegraded"] == ("False", "AsExpected")


async def test_pods_on_a_node_whose_software_broke_are_said_to_be_harmed(world: World):
    await world.run_operand(GFD)
    await world.process.run_pass(times=3)
    await world.run_operand(GFD, ready=False)
    await world.process.run_pass(times=3)
    assert (await world.conditions())["DegradedWorkloads"] == ("False", "AsExpected")
    world.process.pods.upsert(a_bound_pod("p", "GPU-n1-0"))
    await world.process.bootstrap.reconcile(N1)
    assert (await world.conditions())["DegradedWorkloads"] == ("True", "NotReady")


async def test_an_opted_out_node_is_disabled_at_once(world: World):
    await world.process.run_pass(times=3)
    await world.report_inventory(managed=False)
    assert await world.process.run_pass() is None
    assert (await world.inventory())["phase"] == "Disabled"
    assert (await world.conditions())["ReadyForPooling"] == ("False", "ManagedDisabled")


async def test_monitoring_that_falls_silent_takes_the_node_out(world: World):
    await world.run_operand(DCGM)
    await world.run_operand(EXPORTER)
    world.process.heartbeat_age_s = 5
    assert await world.process.run_pass(times=3) == pytest.approx(115.1)
    assert (await world.inventory())["phase"] == "Ready"
    world.process.heartbeat_age_s = 121
    await world.process.run_pass(times=3)
    assert (await world.conditions())["MonitoringMissing"] == ("True", "NotReady")


async def monitoring(world: World) -> str | None:
    found: str | None = (await world.inventory()).get("monitoring", {}).get("lastHeartbeat")
    return found


def heard(world: World, age_s: float = 0) -> str:
    """Have the exporter heard so long ago; return the time as it is shown."""
    world.process.heartbeat_age_s = age_s
    world.process.dcgm_heard_at = world.time.now().utc - dt.timedelta(seconds=age_s)
    return format_time(world.process.dcgm_heard_at)


async def test_the_pages_of_an_exporter_cost_no_write_but_the_first(world: World):
    await world.process.run_pass(times=3)
    assert await monitoring(world) is None
    first = heard(world)
    await world.process.run_pass()
    assert await monitoring(world) == first
    world.writes()
    for _ in range(100):
        world.time.seconds += 60
        heard(world)
        await world.process.run_pass()
    assert world.writes() == []
    assert await monitoring(world) == first


async def test_the_last_page_of_a_silent_exporter_is_shown_though_its_operand_is_ignored(
    world: World,
):
    """Nothing else changes then."""
    await world.process.run_pass(times=3)
    heard(world)
    await world.process.run_pass()
    world.time.seconds += 300
    last = heard(world, age_s=119)
    world.writes()
    await world.process.run_pass()
    assert world.writes() == []
    world.time.seconds += 2
    await world.process.run_pass(times=3)
    assert world.writes() == [STATUS]
    assert await monitoring(world) == last


async def test_with_another_change_the_last_page_is_shown_and_no_change_takes_it_away(
    world: World,
):
    await world.run_operand(EXPORTER)
    await world.process.run_pass(times=3)
    heard(world)
    await world.process.run_pass()
    world.time.seconds += 60
    last = heard(world, age_s=7)
    await world.run_operand(EXPORTER, ready=False)
    world.writes()
    await world.process.run_pass()
    assert await monitoring(world) == last
    # A new leader has heard nothing yet.
    await world.restart()
    await world.process.run_pass(times=4)
    assert (await world.conditions())["MonitoringMissing"][0] == "True"
    assert await monitoring(world) == last


async def test_a_time_that_a_wrong_clock_wrote_is_corrected(world: World):
    await world.process.run_pass(times=3)
    world.time.seconds += 10_000
    heard(world)
    await world.process.run_pass()
    world.time.seconds -= 10_000
    right = heard(world)
    await world.process.run_pass()
    assert await monitoring(world) == right


@pytest.mark.parametrize("runs", [1, 2, 3])
async def test_in_the_steady_state_nothing_is_written(world: World, runs: int):
    await world.run_operand(GFD)
    await world.process.run_pass(times=3)
    world.writes()
    for _ in range(runs):
        world.time.seconds += 60
        await world.process.run_pass()
    assert world.writes() == []


async def test_nothing_is_written_twice_while_the_watch_is_behind(world: World):
    for _ in range(3):
        world.time.seconds += 1
        await world.process.bootstrap.reconcile(N1)
    assert world.writes() == [STATUS]


async def test_only_our_fields_are_written(world: World):
    await world.run_operand(GFD)
    await world.process.run_pass(times=3)
    seen = await world.client.get(GPU_NODE_INVENTORIES, dict[str, object], "n1")
    assert isinstance(seen["metadata"], dict)
    (ours,) = [
        field for field in seen["metadata"]["managedFields"] if field["manager"] == FIELD_MANAGER
    ]
    assert ours["fieldsV1"]["f:status"].keys() == {"f:phase", "f:conditions", "f:operands"}
    assert seen["status"]["devices"] == ["n1-0", "n1-1"]  # type: ignore[index]  # JSON


async def test_after_a_restart_a_ready_node_stays_ready_and_nothing_is_written(world: World):
    await world.run_operand(GFD)
    await world.process.run_pass(times=3)
    world.writes()
    later = await world.restart()
    world.time.seconds += 1000
    assert await later.run_pass() is None
    assert world.writes() == []
    assert (await world.inventory())["phase"] == "Ready"


async def test_the_times_of_conditions_move_with_their_status_only(world: World):
    await world.run_operand(GFD)
    await world.process.run_pass(times=3)
    before = {condition["type"]: condition for condition in (await world.inventory())["conditions"]}
    world.time.seconds += 1000
    await world.run_operand(GFD, ready=False)
    await world.process.run_pass(times=3)
    after = {condition["type"]: condition for condition in (await world.inventory())["conditions"]}
    moved = {
        type_
        for type_ in before
        if before[type_]["lastTransitionTime"] != after[type_]["lastTransitionTime"]
    }
    assert moved == {"GFDReady", "ReadyForPooling", "InfraDegraded"}


async def test_a_refused_write_is_tried_again_and_not_forgotten(world: World):
    world.api.faults.fail("PATCH", "/gpunodeinventories/n1/status$", 409)
    with pytest.raises(Conflict):
        await world.process.bootstrap.reconcile(N1)
    await world.process.bootstrap.reconcile(N1)
    assert (await world.inventory())["phase"] == "Ready"


async def test_an_inventory_that_goes_while_it_is_judged_is_no_failure(world: World):
    await world.client.delete(GPU_NODE_INVENTORIES, "n1")
    assert await world.process.bootstrap.reconcile(N1) is None
    await world.process.observe()
    assert await world.process.bootstrap.reconcile(N1) is None


async def test_each_node_has_one_series_for_its_phase_and_none_once_it_is_gone(world: World):
    await world.run_operand(GFD)
    await world.process.run_pass()
    assert gauge("gpu_bootstrap_node_phase", phase="GFD") == 1
    assert gauge("gpu_bootstrap_ready") == 0
    world.time.seconds += 10
    await world.process.run_pass(times=2)
    assert gauge("gpu_bootstrap_node_phase", phase="GFD") is None
    assert gauge("gpu_bootstrap_node_phase", phase="Ready") == 1
    assert gauge("gpu_bootstrap_ready") == 1
    assert gauge("gpu_bootstrap_condition", condition="ReadyForPooling") == 1
    await world.client.delete(GPU_NODE_INVENTORIES, "n1")
    await world.process.run_pass()
    assert gauge("gpu_bootstrap_node_phase", phase="Ready") is None
    assert gauge("gpu_bootstrap_ready") is None
    assert gauge("gpu_bootstrap_condition", condition="ReadyForPooling") is None


async def test_an_operand_that_comes_to_any_node_has_all_nodes_looked_at(world: World):
    """It may be needed on every node from now on."""
    context = world.process.context()
    async with context.ending:
        woken = connected(SPEC, context)
        woken.taken()
        await world.run_operand(GFD, node="elsewhere")
        await world.process.observe()
        assert N1 in woken.taken()


async def test_inventory_without_a_status_is_not_judged(world: World):
    status = {"status": None}
    await world.client.merge_patch(GPU_NODE_INVENTORIES, status, name="n1", subresource="status")
    await world.process.run_pass()
    assert await world.inventory() == {}


async def test_every_change_has_the_node_looked_at_and_only_that(world: World):
    await world.run_operand(EXPORTER)
    await world.process.run_pass()
    await world.process.observe()
    context = world.process.context()
    async with context.ending:
        context.ending.callback(world.process.bootstrap.forget_gauges)
        woken = connected(SPEC, context)
        assert woken.taken() == [N1]
        await world.run_operand(GFD)
        await world.process.observe()
        assert woken.taken() == [N1]
        await world.report_inventory(managed=False)
        await world.process.observe()
        assert woken.taken() == [N1]
        await world.process.observe()
        assert not woken.later
        await world.report_device("n1-0", uuid="")
        await world.process.observe()
        assert woken.taken() == []
        assert set(woken.later) == {N1}
        assert gauge("gpu_bootstrap_ready") == 0
    assert gauge("gpu_bootstrap_ready") is None
