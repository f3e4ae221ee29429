"""A process that dies at any write, carried out or not, leaves something that the next one completes."""

from collections.abc import AsyncIterator

import pytest

from api.names import NodeName
from kube.errors import KubeError
from tests.component.reconciler.inventory_run import InventoryRun, an_inventory_run, condition
from tests.support.node_features import gpu_feature, gpu_instance, uuid_of

OURS = "/gpu(devices|nodeinventories)"


@pytest.fixture
async def world() -> AsyncIterator[InventoryRun]:
    async with an_inventory_run() as opened:
        await opened.add_node()
        yield opened


async def die_at(world: InventoryRun, write: int, *, is_carried_out: bool) -> None:
    """Reconcile until the connection breaks at the write of this number; then lose all that was known."""
    faults = world.api.faults
    await world.observe()
    (faults.reset_after if is_carried_out else faults.reset_before)("", OURS, nth=write)
    with pytest.raises(KubeError):
        await world.controller.reconcile(NodeName("n1"))
    faults.clear()
    world.restart()


@pytest.mark.parametrize("is_carried_out", [False, True])
@pytest.mark.parametrize("write", range(1, 7))
async def test_a_node_that_was_half_taken_in_is_taken_in(
    world: InventoryRun, write: int, *, is_carried_out: bool
):
    await world.publish(gpu_feature("n1", 2))
    await die_at(world, write, is_carried_out=is_carried_out)
    await world.until_stable()
    devices = await world.gpus()
    assert {device.status.uuid for device in devices.values()} == {
        uuid_of("n1", 0),
        uuid_of("n1", 1),
    }
    assert all(condition(device, "Stale")[0] == "False" for device in devices.values())
    assert (await world.inventory()).status.devices == sorted(devices)


@pytest.mark.parametrize("is_carried_out", [False, True])
@pytest.mark.parametrize("write", range(1, 6))
async def test_devices_half_exchanged_are_exchanged(
    world: InventoryRun, write: int, *, is_carried_out: bool
):
    """One device is pulled and another swapped, one stays: two deletions, a creation and two statuses."""
    await world.publish(gpu_feature("n1", 3))
    await world.until_stable()
    stays = (await world.gpus())["n1-0000-19-00.0"]
    feature = gpu_feature("n1", 3)
    elements = feature["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"]
    elements[0] = {"attributes": gpu_instance("n1", 0, uuid="GPU-new")}
    del elements[1]
    await world.publish(feature)
    await die_at(world, write, is_carried_out=is_carried_out)
    await world.until_stable()
    devices = await world.gpus()
    assert {name: item.status.uuid for name, item in devices.items()} == {
        "n1-0000-17-00.0": "GPU-new",
        "n1-0000-19-00.0": uuid_of("n1", 2),
    }
    assert devices["n1-0000-19-00.0"].metadata == stays.metadata
    assert (await world.inventory()).status.devices == sorted(devices)
