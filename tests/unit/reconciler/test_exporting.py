"""Which devices pools export is kept node by node, and only real changes are told."""

from typing import Any

import msgspec

from api.kinds.gpudevice import GPUDevice, GPUDeviceStatus, PoolRef
from api.kinds.gpupool import AllocationMode as Mode
from api.kinds.gpupool import EffectiveAllocation, GPUPool, GPUPoolStatus
from api.meta import ObjectMeta
from api.names import DeviceName, NodeName, PoolName
from pool.catalog import Catalog
from reconciler.pool.plugin_config import COALESCE_S, NODES_A_SECOND, PluginConfigFacts
from reconciler.runtime.device_store import DeviceStore

WHOLE, OTHER = PoolName("whole"), PoolName("other")
N1 = NodeName("n1")


def a_device(name: str, pool: PoolName | None = WHOLE, **status: Any) -> GPUDevice:
    fields = {
        "node_name": name.partition("-")[0],
        "uuid": f"GPU-{name}",
        "pool_ref": PoolRef(name=pool) if pool else None,
        **status,
    }
    return GPUDevice(metadata=ObjectMeta(name=name), status=GPUDeviceStatus(**fields))


class Setup:
    """A store of devices, a catalog, and what is exported of them."""

    def __init__(self, *devices: GPUDevice) -> None:
        self.devices = DeviceStore()
        self.catalog = Catalog()
        for name in (WHOLE, OTHER):
            self.catalog.pools[name] = GPUPool(metadata=ObjectMeta(name=name))
        for device in devices:
            self.devices.upsert(device)
        self.exported = PluginConfigFacts(self.devices, self.catalog)

    def hydrate(self) -> int:
        return sum(1 for _ in self.exported.hydrating())

    def uuids(self, pool: PoolName = WHOLE) -> dict[str, list[str]]:
        found = self.exported.of_pool(pool)
        return {node: [device.uuid for device in devices] for node, devices in found.items()}


def test_a_start_looks_at_every_node_once():
    setup = Setup(a_device("n1-0"), a_device("n2-0", OTHER))
    assert setup.uuids() == {}
    assert setup.hydrate() == 1
    assert setup.uuids() == {"n1": ["GPU-n1-0"]}
    assert setup.uuids(OTHER) == {"n2": ["GPU-n2-0"]}
    assert setup.hydrate() == 0


def test_a_device_that_changes_its_pool_changes_both():
    setup = Setup(a_device("n1-0"), a_device("n1-1"))
    assert setup.exported.read_node(N1) == {WHOLE}
    setup.devices.upsert(a_device("n1-1", OTHER))
    assert setup.exported.read_node(N1) == {WHOLE, OTHER}
    assert setup.exported.read_node(N1) == set()
    assert setup.uuids(OTHER) == {"n1": ["GPU-n1-1"]}


def test_a_node_that_is_gone_takes_its_devices_with_it():
    setup = Setup(a_device("n1-0"))
    setup.hydrate()
    setup.devices.discard(DeviceName("n1-0"))
    assert setup.exported.read_node(N1) == {WHOLE}
    assert setup.uuids() == {}


def test_what_is_no_unit_is_not_exported():
    setup = Setup(a_device("n1-0", uuid=""), a_device("n1-1", None))
    setup.hydrate()
    assert setup.uuids() == {}


def test_a_device_that_is_kept_out_is_withheld_until_it_has_left_the_pool():
    ignored = msgspec.structs.replace(
        a_device("n1-1"),
        metadata=ObjectMeta(name="n1-1", labels={"gpu.deckhouse.io/ignore": "true"}),
    )
    setup = Setup(a_device("n1-0"), ignored, a_device("n1-2", managed=False))
    setup.hydrate()
    devices = setup.exported.of_pool(WHOLE)[N1]
    assert [device.is_withheld for device in devices] == [False, True, True]


def test_two_objects_that_claim_one_device_are_exported_once():
    setup = Setup(a_device("n1-0", uuid="GPU-x"), a_device("n1-1", uuid="GPU-x"))
    setup.hydrate()
    assert setup.uuids() == {"n1": ["GPU-x"]}


def test_another_allocation_makes_other_units_of_the_same_devices():
    setup = Setup(a_device("n1-0"), a_device("n1-1", OTHER))
    setup.hydrate()
    before = setup.exported.revision(WHOLE)
    mig = EffectiveAllocation(mode=Mode.MIG, mig_profile="1g.10gb")
    setup.catalog.pools[WHOLE] = GPUPool(
        metadata=ObjectMeta(name=WHOLE), status=GPUPoolStatus(allocation=mig)
    )
    list(setup.exported.rereading_pool(WHOLE))
    assert setup.exported.revision(WHOLE) > before
    assert setup.exported.of_pool(WHOLE)[N1][0].instances == []


def test_longer_lists_are_gathered_for_longer():
    devices = [a_device(f"n{number}-0") for number in range(NODES_A_SECOND)]
    setup = Setup(*devices[:-1])
    setup.hydrate()
    few = Setup(devices[0])
    few.hydrate()
    assert few.exported.coalesce_s(WHOLE) == COALESCE_S + 0.01
    setup.devices.upsert(devices[-1])
    setup.exported.read_node(devices[-1].node)
    assert setup.exported.coalesce_s(WHOLE) == COALESCE_S + 1.0
