"""The repair of a device on the API server: what is written, evicted, asked for and reported."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from api.foreign.core import Node
from api.kinds.gpudevice import DeviceRepair
from api.kinds.gpupool import GPUPool, GPUPoolSpec, RepairPolicy
from api.meta import ObjectMeta
from api.names import REBOOT_LABEL, PoolName
from inventory.health.device import HealthReport
from inventory.health.repair import ResetOutcome, reset_text
from kube.resources import GPU_DEVICES, NODES
from reconciler.device.repair import CHECK_S, EVICT_S, SPEC, WAIT_S, DeviceRepairs
from telemetry.metrics import REGISTRY
from tests.component.reconciler.readiness import N1, World, a_world
from tests.support.allocation_state import a_bound_pod
from tests.support.controllers import a_context

UUID = "GPU-n1-0"
WHOLE = PoolName("whole")


class Repairs:
    """The controller, on a node with a device that needs an action."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.reports = {UUID: HealthReport("Unhealthy", "Xid119", "GPUReset")}
        self.pools: dict[PoolName, GPUPool] = {}
        self.allow(RepairPolicy.IDLE)
        state = world.process.allocation_state
        self.controller = DeviceRepairs(
            world.client,
            world.process.devices.store,
            index=state.index,
            reader=state.reader,
            pools=self.pools,
            reports=lambda _node: self.reports,
            recorder=world.process.recorder,
            now=world.time.now,
        )

    def allow(self, policy: RepairPolicy, per_hour: int = 4) -> None:
        spec = GPUPoolSpec(repair=policy, max_repairs_per_hour=per_hour)
        self.pools[WHOLE] = GPUPool(metadata=ObjectMeta(name=WHOLE), spec=spec)

    async def need(self, action: str, name: str = "n1-0") -> None:
        """Let a device need an action; empty for none."""
        condition = {
            "type": "Healthy",
            "status": "False" if action else "True",
            "reason": action or "Healthy",
            "message": "Xid 119",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await self.world.report_device(name, conditions=[condition], poolRef={"name": WHOLE})

    async def report(self, outcome: ResetOutcome) -> None:
        """Report an outcome of the present attempt."""
        repair = msgspec.convert((await self.device())["repair"], DeviceRepair)
        text = reset_text(repair, outcome)
        self.reports[UUID] = HealthReport("Unhealthy", "Xid119", "GPUReset", text)

    async def step(self, *, later_s: float = 2.0) -> tuple[str, float | None]:
        """Take a step; return the device's, and when the next look is due."""
        self.world.time.seconds += later_s
        await self.world.process.observe()
        next_s = await self.controller.reconcile(N1)
        return await self.repair_state(), next_s

    async def repair_state(self, name: str = "n1-0") -> str:
        repair = (await self.device(name)).get("repair")
        return f"{repair['step']}{repair['attempt']}" if repair else ""

    async def device(self, name: str = "n1-0") -> dict[str, Any]:
        found = await self.world.client.get(GPU_DEVICES, dict[str, Any], name)
        status: dict[str, Any] = found["status"]
        return status

    async def node(self) -> Node:
        return await self.world.client.get(NODES, Node, N1)


def counted(step: str) -> float:
    return REGISTRY.get_sample_value("gpu_device_repairs_total", {"step": step}) or 0.0


@pytest.fixture
async def repairs() -> AsyncIterator[Repairs]:
    async with a_world() as world:
        made = Repairs(world)
        await made.need("GPUReset")
        yield made


async def test_an_idle_device_comes_back_without_hands(repairs: Repairs):
    before = counted("Repaired")
    assert await repairs.step() == ("Resetting1", CHECK_S)
    assert await repairs.step() == ("Resetting1", CHECK_S)
    await repairs.report(ResetOutcome.DONE)
    assert await repairs.step() == ("Testing1", CHECK_S)
    await repairs.need("")
    assert await repairs.step() == ("Repaired1", None)
    assert counted("Repaired") == before + 1
    events = repairs.world.process.recorder.events
    assert [event.note.partition(":")[0] for event in events] == [
        "Resetting",
        "Testing",
        "Repaired",
    ]
    repairs.world.writes()
    assert await repairs.step() == ("Repaired1", None)
    assert repairs.world.writes() == []


async def test_without_repair_nothing_is_written(repairs: Repairs):
    repairs.allow(RepairPolicy.OFF)
    repairs.world.writes()
    assert await repairs.step() == ("", WAIT_S)
    assert repairs.world.writes() == []


@pytest.mark.parametrize("policy", [RepairPolicy.IDLE, RepairPolicy.EVICT])
async def test_pods_are_evicted_only_where_the_pool_says_so(repairs: Repairs, policy: RepairPolicy):
    repairs.allow(policy)
    await repairs.world.process.observe()
    repairs.world.process.pods.upsert(a_bound_pod("trains", UUID))
    repairs.world.writes()
    await repairs.controller.reconcile(N1)
    assert await repairs.repair_state() == "Draining1"
    evictions = [path for _, path in repairs.world.writes() if "eviction" in path]
    assert len(evictions) == (policy is RepairPolicy.EVICT)
    # A budget that refuses is asked again after some seconds only.
    await repairs.controller.reconcile(N1)
    assert repairs.world.writes() == []


async def test_a_pod_that_cannot_be_evicted_is_named_and_one_that_was_is_not_evicted_again(
    repairs: Repairs,
):
    repairs.allow(RepairPolicy.EVICT)
    asked = repairs.world.api.faults.fail("POST", "/eviction$", 500)
    await repairs.world.process.observe()
    for name in ("fails", "leaves"):
        repairs.world.process.pods.upsert(a_bound_pod(name, UUID))
    found = []
    for _ in range(5):
        await repairs.controller.reconcile(N1)
        found.append((asked.seen, (await repairs.device())["repair"]["message"][13:]))
        repairs.world.time.seconds += EVICT_S / 2
    both = " with 2 units (default/fails, default/leaves)"
    refused = f"{both}; the API server did not evict 1 pod with 1 unit (default/fails)"
    assert found == [(2, both), (2, refused), (3, refused), (3, both), (3, both)]


async def test_a_pool_repairs_so_many_devices_an_hour(repairs: Repairs):
    repairs.allow(RepairPolicy.IDLE, per_hour=1)
    await repairs.need("GPUReset", "n1-1")
    await repairs.step()
    assert [await repairs.repair_state(name) for name in ("n1-0", "n1-1")] == [
        "Resetting1",
        "Waiting1",
    ]
    await repairs.need("")
    await repairs.step()
    assert [await repairs.repair_state(name) for name in ("n1-0", "n1-1")] == [
        "Repaired0",
        "Waiting1",
    ]
    await repairs.step(later_s=3700)
    assert await repairs.repair_state("n1-1") == "Resetting1"


async def test_a_device_that_two_resets_do_not_help_is_given_up(repairs: Repairs):
    for attempt in (1, 2):
        assert await repairs.step() == (f"Resetting{attempt}", CHECK_S)
        await repairs.report(ResetOutcome.REFUSED)
        await repairs.step()
    assert await repairs.step() == ("Failed2", WAIT_S)
    assert repairs.world.process.recorder.events[-1].reason == "GPUDeviceRepairFailed"
    # Its health says so.
    repairs.world.process.reports = repairs.reports
    await repairs.world.process.examine(times=2)
    condition = await repairs.world.healthy()
    assert condition is not None
    assert condition["reason"] == "Replace"
    assert condition["message"].count("its repair failed") == 1
    assert await repairs.step() == ("Failed2", WAIT_S)


async def test_a_reboot_is_asked_for_and_nobody_is_rebooted(repairs: Repairs):
    await repairs.need("NodeReboot")
    assert await repairs.step() == ("RebootAsked0", WAIT_S)
    node = await repairs.node()
    assert node.metadata.label(REBOOT_LABEL) == "true"
    assert node.spec.unschedulable
    assert repairs.world.process.recorder.events[-1].reason == "GPUNodeRebootNeeded"
    repairs.world.writes()
    await repairs.step()
    assert repairs.world.writes() == []
    await repairs.need("")
    assert await repairs.step() == ("Repaired0", None)
    node = await repairs.node()
    assert node.metadata.label(REBOOT_LABEL) is None
    assert not node.spec.unschedulable


async def unlabel(repairs: Repairs) -> None:
    labels = {"metadata": {"labels": {REBOOT_LABEL: None}}}
    await repairs.world.client.merge_patch(NODES, labels, name=N1)


async def test_a_label_that_somebody_removes_leaves_no_cordon_behind(repairs: Repairs):
    await repairs.need("NodeReboot")
    await repairs.step()
    await unlabel(repairs)
    await repairs.need("")
    assert await repairs.step() == ("Repaired0", None)
    node = await repairs.node()
    assert node.metadata.label(REBOOT_LABEL) is None
    assert not node.spec.unschedulable


async def test_a_label_that_somebody_removes_comes_back_while_a_device_needs_the_reboot(
    repairs: Repairs,
):
    await repairs.need("NodeReboot")
    await repairs.step()
    await unlabel(repairs)
    assert await repairs.step() == ("RebootAsked0", WAIT_S)
    assert (await repairs.node()).metadata.label(REBOOT_LABEL) == "true"
    reasons = [event.reason for event in repairs.world.process.recorder.events]
    assert reasons.count("GPUNodeRebootNeeded") == 2


async def test_a_node_that_somebody_else_cordoned_too_stays_cordoned(repairs: Repairs):
    cordoned = {"spec": {"unschedulable": True}}
    await repairs.world.client.merge_patch(NODES, cordoned, name=N1)
    await repairs.need("NodeReboot")
    await repairs.step()
    await unlabel(repairs)
    await repairs.need("")
    assert await repairs.step() == ("Repaired0", None)
    assert (await repairs.node()).spec.unschedulable
    # One that a user has uncordoned meanwhile is left alone.
    await repairs.need("NodeReboot")
    await repairs.step()
    uncordoned = {**cordoned, "spec": {"unschedulable": None}}
    await repairs.world.client.merge_patch(NODES, uncordoned, name=N1)
    await unlabel(repairs)
    repairs.world.writes()
    await repairs.need("")
    await repairs.step()
    assert not [item for item in repairs.world.writes() if "nodes" in str(item)]


async def the_devices_are_gone(repairs: Repairs) -> None:
    for name in ("n1-0", "n1-1"):
        await repairs.world.client.delete(GPU_DEVICES, name)


async def test_a_cordon_whose_label_and_device_are_gone_is_given_up(repairs: Repairs):
    await repairs.need("NodeReboot")
    await repairs.step()
    await unlabel(repairs)
    await the_devices_are_gone(repairs)
    await repairs.world.process.observe()
    repairs.world.writes()
    await repairs.controller.reconcile(N1)
    assert not (await repairs.node()).spec.unschedulable
    # The policy takes the second for the label of the first (tests/cluster/manifests/test_server_policy.py).
    assert repairs.world.writes() == [("PATCH", "/api/v1/nodes/n1")] * 2


@pytest.mark.parametrize("is_ours_too", [False, True])
async def test_a_cordon_of_others_stays_where_label_and_device_are_gone(
    repairs: Repairs, *, is_ours_too: bool
):
    cordoned = {"spec": {"unschedulable": True}}
    await repairs.world.client.merge_patch(NODES, cordoned, name=N1)
    if is_ours_too:
        await repairs.need("NodeReboot")
        await repairs.step()
        await unlabel(repairs)
    await the_devices_are_gone(repairs)
    await repairs.world.process.observe()
    repairs.world.writes()
    await repairs.controller.reconcile(N1)
    assert (await repairs.node()).spec.unschedulable
    assert bool(repairs.world.writes()) is is_ours_too


@pytest.mark.parametrize("is_labelled", [True, False])
async def test_the_next_leader_gives_a_node_up_whose_device_is_gone(
    repairs: Repairs, *, is_labelled: bool
):
    await repairs.need("NodeReboot")
    await repairs.step()
    if not is_labelled:
        await unlabel(repairs)
    await the_devices_are_gone(repairs)
    process = await repairs.world.restart()
    context = a_context()
    context.stores.devices = process.devices.store
    context.stores.index = process.allocation_state.index
    assert set(SPEC.initial(context)) == {N1}
    await Repairs(repairs.world).controller.reconcile(N1)
    node = await repairs.node()
    assert node.metadata.label(REBOOT_LABEL) is None
    assert not node.spec.unschedulable
