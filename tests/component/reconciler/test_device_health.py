"""What is written and told of a device's health, when, and what is left alone."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.kinds.gpudevice import MAX_XID, GPUDevice, LastXid
from api.status_conditions import format_time
from inventory.health.dcgm import parse_page
from inventory.health.device import ExporterSample, HealthReport
from kube.errors import ServerError
from kube.resources import GPU_DEVICES
from reconciler.dcgm.scraper import dcgm_scraper
from reconciler.device.health import FIELD_MANAGER, SPEC
from telemetry.metrics import REGISTRY
from tests.component.reconciler.readiness import N1, World, a_world
from tests.support.allocation_state import a_bound_pod, reserve
from tests.support.builders import a_demand
from tests.support.controllers import connected
from tests.support.dcgm import device_lines

CLEAN = device_lines("GPU-n1-0") + device_lines("GPU-n1-1")
FATAL = device_lines("GPU-n1-0", xid=79) + device_lines("GPU-n1-1")
XID_79 = LastXid(code=79, time="2026-01-01T00:00:00Z")
XID_31 = LastXid(code=31, time="2026-01-01T00:05:00Z")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as opened:
        yield opened


async def show(world: World, page: str, *, times: int = 1) -> None:
    """Have the node's exporter read so often, fifteen seconds apart."""
    for _ in range(times):
        world.time.seconds += 15
        world.process.page = ExporterSample(world.time.seconds, parse_page(page))
        await world.process.examine()


async def last_xid(world: World) -> LastXid | None:
    return (await world.client.get(GPU_DEVICES, GPUDevice, "n1-0")).status.last_xid


def faulted(reason: str) -> float | None:
    return REGISTRY.get_sample_value("gpu_device_faulted_total", {"reason": reason})


async def test_a_device_of_which_nobody_speaks_is_left_alone(world: World):
    assert await world.process.examine(times=3) is None
    assert world.writes() == []
    assert await world.healthy() is None


async def test_a_device_that_is_watched_is_said_to_be_healthy_once(world: World):
    await show(world, CLEAN, times=5)
    assert world.writes() == [
        ("PATCH", "gpudevices/n1-0/status"),
        ("PATCH", "gpudevices/n1-1/status"),
    ]
    condition = await world.healthy()
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("True", "Healthy")
    assert world.process.recorder.seen() == []


async def test_a_fault_takes_the_device_out_at_once_and_names_the_pods_that_it_is_left_to(
    world: World,
):
    await show(world, CLEAN)
    world.process.pods.upsert(a_bound_pod("running", "GPU-n1-0"))
    reserve(world.process.allocation_state, a_demand(1))
    world.process.time.seconds += 15
    world.process.page = ExporterSample(world.time.seconds, parse_page(FATAL))
    await world.process.health.reconcile(N1)
    condition = await world.healthy()
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("False", "NodeReboot")
    assert condition["message"].startswith("Xid 79")
    first, second = world.process.recorder.events
    assert (first.reason, first.type, first.regarding.name) == (
        "GPUDeviceFaulted",
        "Warning",
        "n1-0",
    )
    assert "still used by default/running" in first.note
    assert (second.regarding.kind, second.regarding.name) == ("Pod", "running")
    assert second.regarding.uid == "uid-running"
    assert "device n1-0 of this pod is faulty: Xid 79" in second.note


async def test_a_faulted_device_gets_no_new_pod_and_its_neighbour_does(world: World):
    await show(world, FATAL)
    await world.process.observe()
    index = world.process.allocation_state.index
    first, second = (index.devices.get(name) for name in ("n1-0", "n1-1"))  # type: ignore[arg-type]
    assert first is not None
    assert first.free == 0
    assert second is not None
    assert second.free == 1


async def test_a_device_comes_back_after_three_clean_pages(world: World):
    await show(world, FATAL)
    world.process.recorder.seen()
    await show(world, CLEAN, times=2)
    assert (await world.healthy() or {})["status"] == "False"
    assert world.process.recorder.seen() == []
    await show(world, CLEAN)
    assert (await world.healthy() or {})["status"] == "True"
    assert world.process.recorder.seen() == [("GPUDeviceRecovered", "GPUDevice", "n1-0")]


async def test_a_fault_is_told_once_and_another_fault_again(world: World):
    await show(world, FATAL, times=4)
    assert world.process.recorder.seen() == [("GPUDeviceFaulted", "GPUDevice", "n1-0")]
    other = device_lines("GPU-n1-0", xid=48) + device_lines("GPU-n1-1")
    await show(world, other, times=2)
    assert world.process.recorder.seen() == [("GPUDeviceFaulted", "GPUDevice", "n1-0")]


async def test_the_time_of_the_condition_moves_with_its_status_only(world: World):
    await show(world, CLEAN)
    healthy = await world.healthy()
    await show(world, FATAL)
    before = await world.healthy()
    assert before is not None
    assert healthy is not None
    assert before["lastTransitionTime"] > healthy["lastTransitionTime"]
    await show(world, device_lines("GPU-n1-0", xid=48), times=2)
    after = await world.healthy()
    assert after is not None
    assert after["message"] != before["message"]
    assert after["lastTransitionTime"] == before["lastTransitionTime"]


async def test_a_lost_device_is_faulted_and_the_others_are_not(world: World):
    await show(world, CLEAN)
    await show(world, device_lines("GPU-n1-1"))
    assert (await world.healthy("n1-0") or {})["reason"] == "NodeReboot"
    assert (await world.healthy("n1-1") or {})["status"] == "True"


async def test_what_our_agent_reports_counts_at_once_and_heals_with_time(world: World):
    world.process.reports = {"GPU-n1-0": HealthReport("Unhealthy", "EccDoubleBit", "GPUReset")}
    await world.process.examine()
    assert (await world.healthy() or {})["reason"] == "GPUReset"
    world.process.reports = {"GPU-n1-0": HealthReport("Healthy")}
    world.time.seconds += 10
    assert await world.process.examine(times=2) == 10
    assert (await world.healthy() or {})["status"] == "False"
    world.time.seconds += 10
    assert await world.process.examine() is None
    assert (await world.healthy() or {})["status"] == "True"


async def test_a_restart_forgets_no_fault_and_tells_it_no_second_time(world: World):
    await show(world, FATAL)
    world.writes()
    await world.restart()
    await world.process.examine()
    await show(world, FATAL, times=2)
    assert world.writes() == []
    assert world.process.recorder.seen() == []
    await show(world, CLEAN, times=3)
    assert (await world.healthy() or {})["status"] == "True"
    assert world.process.recorder.seen() == [("GPUDeviceRecovered", "GPUDevice", "n1-0")]


async def test_a_device_that_was_lost_while_nobody_looked_is_found_missing(world: World):
    await show(world, CLEAN)
    await world.restart()
    await show(world, device_lines("GPU-n1-1"))
    assert (await world.healthy("n1-0") or {})["reason"] == "NodeReboot"


async def test_a_condition_that_somebody_writes_by_hand_stands_while_nobody_speaks(world: World):
    condition = {
        "type": "Healthy",
        "status": "False",
        "reason": "Suspicious",
        "message": "it smells",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await world.report_device("n1-0", conditions=[condition])
    await world.process.examine(times=3)
    assert (await world.healthy() or {})["reason"] == "Suspicious"
    assert faulted("ActionUnknown") == 1
    await world.report_device("n1-0", conditions=[])
    await world.process.examine()
    assert faulted("ActionUnknown") == 0


async def test_another_device_in_the_same_place_begins_again(world: World):
    await show(world, FATAL)
    await world.client.delete(GPU_DEVICES, "n1-0")
    await world.add_device("n1-0")
    await world.report_device("n1-0", uuid="GPU-new")
    await show(world, device_lines("GPU-new") + device_lines("GPU-n1-1"))
    assert (await world.healthy() or {})["status"] == "True"
    assert await last_xid(world) is None


async def test_the_last_xid_is_written_once_and_stays_without_a_report_of_it(world: World):
    faulty = HealthReport("Unhealthy", "Xid79", "NodeReboot", last_xid=XID_79)
    world.process.reports = {"GPU-n1-0": faulty}
    await world.process.examine(times=3)
    assert world.writes() == [("PATCH", "gpudevices/n1-0/status")]
    assert await last_xid(world) == XID_79
    # An agent that started since, or an older one, reports none; nor does a server remember it.
    process = await world.restart()
    process.reports = {"GPU-n1-0": HealthReport("Healthy", action="None")}
    await process.examine(times=4)
    assert world.writes() == [("PATCH", "gpudevices/n1-0/status")]
    assert (await world.healthy() or {})["status"] == "True"
    assert await last_xid(world) == XID_79
    harmless = HealthReport("Healthy", action="None", last_xid=XID_31)
    process.reports = {"GPU-n1-0": harmless}
    await process.examine(times=3)
    assert world.writes() == [("PATCH", "gpudevices/n1-0/status")]
    assert await last_xid(world) == XID_31


async def test_an_exporters_xid_has_the_time_of_its_first_sample(world: World):
    await show(world, CLEAN)
    assert await last_xid(world) is None
    await show(world, FATAL)
    first = await last_xid(world)
    assert first == LastXid(code=79, time=format_time(world.time.now().utc))
    await show(world, FATAL)
    await world.restart()
    await show(world, FATAL, times=2)
    await show(world, CLEAN, times=3)
    assert await last_xid(world) == first


async def test_no_page_of_an_exporter_contradicts_the_agents_last_xid(world: World):
    world.process.reports = {"GPU-n1-0": HealthReport("Healthy", action="None", last_xid=XID_31)}
    await show(world, FATAL)
    assert await last_xid(world) == XID_31
    world.process.reports = {"GPU-n1-0": HealthReport("Healthy", action="None")}
    await world.process.examine(times=2)
    assert await last_xid(world) == XID_31


async def test_a_code_that_no_xid_has_is_left_out(world: World):
    await show(world, device_lines("GPU-n1-0", xid=MAX_XID + 1))
    assert (await world.healthy() or {})["reason"] == "ActionUnknown"
    assert await last_xid(world) is None


@pytest.mark.parametrize("runs", [1, 2, 3])
async def test_in_the_steady_state_nothing_is_written(world: World, runs: int):
    await show(world, FATAL)
    await world.process.observe()
    world.writes()
    await show(world, FATAL, times=runs)
    assert world.writes() == []


async def test_better_words_of_a_newer_version_are_no_reason_to_write(world: World):
    await show(world, CLEAN)
    for name in ("n1-0", "n1-1"):
        current = await world.healthy(name)
        assert current is not None
        assert current["message"] == "no fault is known"
        older = {"conditions": [{**current, "message": ""}]}
        await world.client.merge_patch(
            GPU_DEVICES, {"status": older}, name=name, subresource="status"
        )
    restarted = await world.restart()
    world.writes()
    world.time.seconds += 15
    restarted.page = ExporterSample(world.time.seconds, parse_page(CLEAN))
    await restarted.examine()
    assert world.writes() == []


async def test_nothing_is_written_twice_while_the_watch_is_behind(world: World):
    for number in range(3):
        world.time.seconds += 4
        world.process.page = ExporterSample(world.time.seconds, parse_page(FATAL))
        await world.process.health.reconcile(N1)
        assert len(world.writes()) == (0 if number else 2)


async def test_only_our_condition_and_the_last_xid_are_owned(world: World):
    await show(world, FATAL)
    seen = await world.client.get(GPU_DEVICES, dict[str, Any], "n1-0")
    managers = {field["manager"]: field["fieldsV1"] for field in seen["metadata"]["managedFields"]}
    assert list(managers[FIELD_MANAGER]["f:status"]) == ["f:conditions", "f:lastXid"]


async def test_a_fault_whose_write_failed_is_written_and_told_later(world: World):
    world.api.faults.fail("PATCH", "/gpudevices/n1-0/status$", 500)
    with pytest.raises(ServerError):
        await show(world, FATAL)
    assert world.process.recorder.seen() == []
    await world.process.examine()
    assert (await world.healthy() or {})["status"] == "False"
    assert world.process.recorder.seen() == [("GPUDeviceFaulted", "GPUDevice", "n1-0")]


async def test_a_device_that_goes_while_it_is_examined_is_no_failure(world: World):
    await world.client.delete(GPU_DEVICES, "n1-0")
    world.process.page = ExporterSample(1, parse_page(FATAL))
    await world.process.health.reconcile(N1)
    assert (await world.healthy("n1-1") or {})["status"] == "True"


async def test_faulted_devices_are_counted_by_reason_while_somebody_looks(world: World):
    context = world.process.context()
    async with context.ending:
        context.ending.callback(world.process.health.forget_gauges)
        woken = connected(SPEC, context)
        assert woken.taken() == [N1]
        assert faulted("NodeReboot") == 0
        await show(world, FATAL)
        assert (faulted("NodeReboot"), faulted("GPUReset")) == (1, 0)
        for name in ("n1-0", "n1-1"):
            await world.client.delete(GPU_DEVICES, name)
        await world.process.examine()
        assert faulted("NodeReboot") == 0
        woken.taken()
        context.stores.features.changes.publish(N1)
        assert woken.taken() == [N1]
        context.shared(dcgm_scraper).changes.publish(N1)
        assert woken.taken() == [N1]
    assert faulted("NodeReboot") is None
