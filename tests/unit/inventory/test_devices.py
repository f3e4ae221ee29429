"""Which devices are made, kept and taken away."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from api.foreign.nodefeature import NodeFeature
from api.kinds.gpudevice import (
    PCI,
    DeviceRepair,
    DeviceState,
    DeviceUnits,
    GPUDevice,
    GPUDeviceStatus,
    PoolRef,
    RepairStep,
)
from api.meta import ObjectMeta
from api.names import DEVICE_NODE_LABEL, NodeName
from inventory.assignment.eligibility import exclusion_obstacles
from inventory.discovery.labels import LabelReport
from inventory.discovery.merge import merge
from inventory.discovery.plan import (
    DevicePlan,
    MissingDevice,
    addresses_of,
    device_shows,
    plan_inventory,
)
from inventory.discovery.sources import feature_report
from inventory.identity import device_name
from pool.facts import device_facts
from tests.support.builders import EPOCH
from tests.support.node_features import (
    address_of,
    agent_device,
    agent_feature,
    gpu_feature,
    uuid_of,
)

N1 = NodeName("n1")


def planned(*devices: GPUDevice, features: list[dict[str, Any]]) -> DevicePlan:
    reports = [feature_report(msgspec.convert(feature, NodeFeature)) for feature in features]
    merged = merge(
        LabelReport(),
        reports,
        addresses=addresses_of(devices),
        now=EPOCH,
        fresh_for=dt.timedelta(minutes=2),
    )
    return plan_inventory(N1, devices, merged, is_managed=True)


def a_device(number: int, **status: Any) -> GPUDevice:
    """A device that the inventory made."""
    address = address_of(number)
    fields = {"node_name": "n1", "uuid": uuid_of("n1", number), "pci": PCI(address=address)}
    return GPUDevice(
        metadata=ObjectMeta(name=device_name(N1, address), labels={DEVICE_NODE_LABEL: "x"}),
        status=GPUDeviceStatus(**{**fields, **status}),
    )


def by_hand(name: str = "mine", **status: Any) -> GPUDevice:
    return GPUDevice(
        metadata=ObjectMeta(name=name), status=GPUDeviceStatus(node_name="n1", **status)
    )


def test_a_new_device_is_made_and_a_known_one_kept():
    plan = planned(a_device(0), features=[gpu_feature("n1", 2)])
    assert [item.status.uuid for item in plan.create] == [uuid_of("n1", 1)]
    assert [desired.name for _, desired in plan.keep] == [device_name(N1, address_of(0))]
    assert plan.delete == ()


def test_without_a_source_everything_is_kept_and_nothing_made():
    plan = planned(a_device(0), features=[])
    assert (plan.create, plan.delete) == ((), ())
    ((_, desired),) = plan.keep
    assert desired.staleness.is_stale


@pytest.mark.parametrize("age", [dt.timedelta(), dt.timedelta(hours=1)], ids=["fresh", "silent"])
@pytest.mark.parametrize(
    ("driver", "is_managed"),
    [("vfio-pci", False), ("nvgrace_gpu_vfio_pci", False), ("nouveau", True), (None, True)],
)
def test_a_device_that_a_virtual_machine_took_joins_no_pool_until_it_is_back(
    age: dt.timedelta, driver: str | None, *, is_managed: bool
):
    """Its UUID stays known, so that nothing else keeps pods away from it."""
    bound = {key: text for key, text in agent_device("n1", 0).items() if key.startswith("pci.")} | (
        {} if driver is None else {"pci.driver": driver}
    )
    feature = agent_feature("n1", [bound], heartbeat=EPOCH - age)
    ((_, desired),) = planned(a_device(0), features=[feature]).keep
    assert (desired.status.uuid, desired.status.managed) == (uuid_of("n1", 0), is_managed)
    device = msgspec.structs.replace(a_device(0), status=desired.status)
    assert device_facts(device).is_draining is not is_managed
    assert bool(list(exclusion_obstacles(device))) is not is_managed
    back = agent_feature("n1", [agent_device("n1", 0)], heartbeat=EPOCH)
    ((_, desired),) = planned(device, features=[back]).keep
    assert desired.status.managed


def test_another_device_in_the_same_place_takes_the_name_over():
    device = a_device(0, uuid="GPU-old", product="NVIDIA-A30", memory_mib=24576)
    plan = planned(device, features=[gpu_feature("n1", 1)])
    assert plan.delete == ((device, MissingDevice.SWAPPED),)
    (desired,) = plan.create
    assert desired.name == device.name
    assert desired.status.product == "NVIDIA-H200"


def test_a_uuid_that_was_not_known_yet_is_no_other_device():
    plan = planned(a_device(0, uuid=""), features=[gpu_feature("n1", 1)])
    ((_, desired),) = plan.keep
    assert desired.status.uuid == uuid_of("n1", 0)


@pytest.mark.parametrize(
    "device",
    [
        by_hand(device_name(N1, address_of(0))),
        by_hand(pci=PCI(address="00000000:17:00.0")),
        by_hand(uuid=uuid_of("n1", 0)),
        by_hand(inventory_id="N1-0000:17:00.0"),
    ],
    ids=["name", "address", "uuid", "inventoryID"],
)
def test_a_device_with_a_gpudevice_made_by_hand_is_left_alone(device: GPUDevice):
    plan = planned(device, features=[gpu_feature("n1", 1)])
    assert plan == DevicePlan()


def test_a_spoiled_address_is_corrected():
    device = a_device(0, pci=PCI(address="nonsense"))
    plan = planned(device, features=[gpu_feature("n1", 1)])
    ((_, desired),) = plan.keep
    assert desired.status.pci.address == address_of(0)
    assert (plan.create, plan.delete) == ((), ())


@pytest.mark.parametrize(
    "theirs",
    [
        {"state": DeviceState.FAULTED},
        {"pool_ref": PoolRef(name="whole")},
        {"units": DeviceUnits(capacity=1)},
        {"repair": DeviceRepair(step=RepairStep.REBOOT_ASKED)},
    ],
    ids=lambda theirs: next(iter(theirs)),
)
def test_what_other_controllers_write_is_no_reason_to_write(theirs: dict[str, Any]):
    desired = GPUDeviceStatus(node_name="n1", uuid="GPU-1")
    assert device_shows(msgspec.structs.replace(desired, **theirs), desired)
