"""State and units of a device: what they say, when they are written, and when they are left alone."""

import asyncio
from typing import Any

import msgspec
import pytest

from api.kinds.gpudevice import DeviceState, DeviceUnits, GPUDevice
from api.names import IGNORE_LABEL, DeviceName, PoolName
from kube.errors import Conflict, KubeError, NotFound, ServerError
from kube.resources import GPU_DEVICES, GPU_POOLS
from reconciler.device.state import FIELD_MANAGER
from reconciler.sinks.device import ObservedDevice
from tests.component.reconciler.cluster import Cluster
from tests.support.allocation_state import a_bound_pod, a_reserved_pod, commit_to, reserve
from tests.support.builders import a_demand, a_pod_facts

STATUS_PATH = "/gpudevices/n1-0/status$"
FAULT = [
    {
        "type": "Healthy",
        "status": "False",
        "reason": "Xid79",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
]


def current(device: dict[str, Any]) -> tuple[str, int, int, int]:
    """State, and units: capacity, reserved, allocated."""
    units = device["units"]
    return device["state"], units["capacity"], units["reserved"], units["allocated"]


def listed_device(cluster: Cluster, name: str = "n1-0") -> GPUDevice:
    """The object as the process knows it."""
    device = cluster.devices.store.get(DeviceName(name))
    assert device is not None
    return device


def status_later(
    cluster: Cluster, state: DeviceState, units: DeviceUnits, *, version: str | None = None
) -> ObservedDevice:
    """The device as the watch shows it, with another state and other units."""
    entry, device = (
        cluster.allocation_state.index.devices.get(DeviceName("n1-0")),
        listed_device(cluster),
    )
    assert entry is not None
    replace = msgspec.structs.replace
    metadata = replace(
        device.metadata, resource_version=version or device.metadata.resource_version
    )
    status = replace(device.status, state=state, units=units)
    return ObservedDevice(entry.facts, replace(device, metadata=metadata, status=status))


async def stable(cluster: Cluster, name: str = "n1-0") -> tuple[str, int, int, int]:
    """Reconcile, let the watch catch up, and return what the API server shows."""
    await cluster.reconcile_device(name)
    await cluster.observe()
    return current(await cluster.device(name))


async def test_a_device_goes_from_unassigned_over_assigned_and_reserved_to_allocated_and_back(
    cluster: Cluster,
):
    """Lesson 1: a fresh device gets as far as serving a pod, with nothing configured."""
    await cluster.report(poolRef=None)
    await cluster.observe()
    assert await stable(cluster) == ("Unassigned", 0, 0, 0)
    await cluster.report(poolRef={"name": "whole"})
    await cluster.observe()
    assert await stable(cluster) == ("Assigned", 1, 0, 0)
    reserve(cluster.allocation_state, a_demand(1))
    assert await stable(cluster) == ("Assigned", 1, 0, 0)  # its pod may never appear
    cluster.allocation_state.withdraw(next(iter(cluster.allocation_state.ledger.all())).id)
    held = a_reserved_pod(cluster.allocation_state)
    await cluster.reconcile_device()
    assert current(await cluster.device()) == ("Reserved", 1, 1, 0)
    cluster.pods.discard(held)
    pod = a_bound_pod("b", "GPU-n1-0")
    cluster.pods.upsert(pod)
    await cluster.reconcile_device()
    assert current(await cluster.device()) == ("Assigned", 1, 0, 1)
    cluster.pods.discard(pod)
    assert await stable(cluster) == ("Assigned", 1, 0, 0)


async def test_a_fault_shows_whatever_is_reserved_and_goes_again(cluster: Cluster):
    commit_to(cluster.allocation_state, a_pod_facts("p", 2))
    await cluster.report(conditions=FAULT)
    await cluster.observe()
    assert await stable(cluster) == ("Faulted", 1, 1, 0)
    await cluster.report(conditions=[{**FAULT[0], "status": "True"}])
    await cluster.observe()
    assert await stable(cluster) == ("Reserved", 1, 1, 0)


async def test_a_device_of_a_pool_that_cannot_be_read_stays_as_it_is(cluster: Cluster):
    before = await stable(cluster)
    index = cluster.allocation_state.index
    index.discard_pool(PoolName("whole"))
    index.replace_unread_pools({PoolName("whole"): "gpu.deckhouse.io/whole"})
    assert await stable(cluster) == before == ("Assigned", 1, 0, 0)


async def test_an_ignored_device_leaves_its_pool(cluster: Cluster):
    patch = {"metadata": {"labels": {IGNORE_LABEL: "true"}}}
    await cluster.client.merge_patch(GPU_DEVICES, patch, name="n1-0")
    await cluster.observe()
    assert await stable(cluster) == ("Draining", 1, 0, 0)


async def test_a_device_of_a_pool_that_is_gone_has_no_units(cluster: Cluster):
    assert await stable(cluster) == ("Assigned", 1, 0, 0)
    await cluster.client.delete(GPU_POOLS, "whole")
    await cluster.observe()
    assert await stable(cluster) == ("Assigned", 0, 0, 0)


async def test_time_slices_of_one_device_are_summed_up(cluster: Cluster):
    await cluster.add_pool("slices", allocation={"mode": "TimeSlice", "slicesPerDevice": 4})
    await cluster.add_device("n1-2", pool="slices")
    await cluster.observe()
    commit_to(cluster.allocation_state, a_pod_facts("p", pool="slices"))
    cluster.pods.upsert(a_bound_pod("b", "GPU-n1-2::2", "GPU-n1-2::3", pool="slices"))
    await cluster.reconcile_device("n1-2")
    assert current(await cluster.device("n1-2")) == ("Reserved", 4, 1, 2)


@pytest.mark.parametrize("runs", [1, 2, 3])
async def test_in_the_steady_state_nothing_is_written(cluster: Cluster, runs: int):
    """Lesson 11."""
    await cluster.reconcile_device()
    assert cluster.writes() == [("PATCH", "/apis/gpu.deckhouse.io/v1alpha1/gpudevices/n1-0/status")]
    await cluster.observe()
    for _ in range(runs):
        await cluster.reconcile_device()
    assert cluster.writes() == []


async def test_nothing_is_written_twice_while_the_watch_is_behind(cluster: Cluster):
    for _ in range(3):
        await cluster.reconcile_device()
    assert len(cluster.writes()) == 1


async def test_a_process_that_starts_again_writes_nothing(cluster: Cluster):
    await cluster.reconcile_device()
    restarted = Cluster(cluster.api, cluster.client)
    await restarted.observe()
    cluster.writes()
    await restarted.reconcile_device()
    assert cluster.writes() == []


async def test_what_the_inventory_reports_is_left_alone(cluster: Cluster):
    await cluster.report(product="NVIDIA-H200", memoryMiB=143771)
    await cluster.reconcile_device()
    device = await cluster.device()
    assert (device["product"], device["memoryMiB"], device["uuid"]) == (
        "NVIDIA-H200",
        143771,
        "GPU-n1-0",
    )
    assert device["poolRef"] == {"name": "whole"}


async def test_a_state_that_somebody_spoiled_is_put_right(cluster: Cluster):
    await stable(cluster)
    cluster.allocation_state.index.changes.take()
    await cluster.report(state="Faulted", units={"capacity": 9})
    await cluster.observe()
    assert "n1-0" in cluster.allocation_state.index.changes.take().devices
    assert await stable(cluster) == ("Assigned", 1, 0, 0)


async def test_an_older_report_that_comes_after_our_write_is_looked_at_and_so_is_the_next(
    cluster: Cluster,
):
    """The watch shows our writes one by one; in between nothing may be taken for settled."""
    await stable(cluster)
    cluster.allocation_state.index.changes.take()
    late = status_later(cluster, DeviceState.RESERVED, DeviceUnits(capacity=1, reserved=1))
    cluster.devices.upsert(late)
    assert cluster.allocation_state.index.changes.take().devices == {"n1-0"}
    await cluster.observe()
    assert cluster.allocation_state.index.changes.take().devices == {"n1-0"}
    assert await stable(cluster) == ("Assigned", 1, 0, 0)


@pytest.mark.looptime
@pytest.mark.parametrize(("version", "writes"), [("999999", 1), (None, 0)])
async def test_a_change_that_the_watch_shows_during_a_write_counts_if_it_is_later(
    cluster: Cluster, version: str | None, writes: int
):
    name = DeviceName("n1-0")
    cluster.api.faults.delay("PATCH", STATUS_PATH, 2)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(cluster.device_status.reconcile(name))
        await asyncio.sleep(1)
        units = DeviceUnits(capacity=9)
        cluster.devices.upsert(status_later(cluster, DeviceState.FAULTED, units, version=version))
    assert writing.result() is None
    cluster.writes()
    await cluster.reconcile_device()
    assert len(cluster.writes()) == writes


async def test_a_device_that_was_deleted_meanwhile_is_no_failure_and_not_made_again(
    cluster: Cluster,
):
    await cluster.client.delete(GPU_DEVICES, "n1-0")
    await cluster.reconcile_device()
    with pytest.raises(NotFound):
        await cluster.device()


async def test_a_device_that_is_not_known_is_left_alone(cluster: Cluster):
    await cluster.reconcile_device("n9-0")
    assert cluster.writes() == []


@pytest.mark.parametrize(("code", "error"), [(409, Conflict), (500, ServerError)])
async def test_a_refused_write_raises_and_the_next_attempt_succeeds(
    cluster: Cluster, code: int, error: type[KubeError]
):
    cluster.api.faults.fail("PATCH", STATUS_PATH, code)
    with pytest.raises(error):
        await cluster.reconcile_device()
    assert await stable(cluster) == ("Assigned", 1, 0, 0)


async def test_only_state_and_units_are_ours(cluster: Cluster):
    await cluster.reconcile_device()
    seen = await cluster.client.get(GPU_DEVICES, dict[str, Any], "n1-0")
    (ours,) = [
        field for field in seen["metadata"]["managedFields"] if field["manager"] == FIELD_MANAGER
    ]
    assert ours["subresource"] == "status"
    assert ours["fieldsV1"]["f:status"].keys() == {"f:state", "f:units"}
