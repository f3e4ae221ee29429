"""`gpu_device_info` says of each UUID what the index and the device's object say."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from api.kinds.gpudevice import GPUDevice, GPUDeviceStatus
from api.meta import ObjectMeta
from reconciler.pool.gauges import forget_all
from reconciler.pool.index_changes import DeviceInfo
from telemetry.metrics import REGISTRY
from tests.support.allocation_state import some_allocation_state, some_devices
from tests.support.builders import a_device

if TYPE_CHECKING:
    from api.names import DeviceName


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    forget_all()
    yield
    forget_all()


def current() -> list[dict[str, str]]:
    return [
        sample.labels
        for family in REGISTRY.collect()
        if family.name == "gpu_device_info"
        for sample in family.samples
    ]


class Setup:
    def __init__(self) -> None:
        self.index = some_allocation_state(devices=some_devices(1)).index
        self.objects: dict[DeviceName, GPUDevice] = {}
        self.info = DeviceInfo(self.index, self.objects.get)

    def update(self) -> list[dict[str, str]]:
        self.info.update(self.index.changes.take().devices)
        return current()


def test_a_device_is_shown_with_its_node_pool_and_product() -> None:
    setup = Setup()
    (name,) = (device.facts.name for device in setup.index.devices.all())
    status = GPUDeviceStatus(product="H100")
    setup.objects[name] = GPUDevice(metadata=ObjectMeta(name=name), status=status)
    labels = {"uuid": "GPU-n1-0", "device": name, "node": "n1", "pool": "whole", "product": "H100"}
    assert setup.update() == [labels]
    setup.index.replace_device(a_device("n1", 0, pool=None))
    assert setup.update() == [{**labels, "pool": ""}]


def test_a_product_that_comes_later_replaces_the_series() -> None:
    setup = Setup()
    assert [item["product"] for item in setup.update()] == [""]
    (name,) = (device.facts.name for device in setup.index.devices.all())
    status = GPUDeviceStatus(product="H100")
    setup.objects[name] = GPUDevice(metadata=ObjectMeta(name=name), status=status)
    setup.index.changes.touch_device(name)
    assert [item["product"] for item in setup.update()] == ["H100"]


@pytest.mark.parametrize("is_gone", [True, False], ids=["deleted", "without a UUID"])
def test_a_device_that_is_gone_has_no_series(is_gone: bool) -> None:
    setup = Setup()
    assert len(setup.update()) == 1
    device = a_device("n1", 0, uuid="")
    if is_gone:
        setup.index.discard_device(device.name)
    else:
        setup.index.replace_device(device)
    assert setup.update() == []
