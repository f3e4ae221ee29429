"""A change costs a reading of the nodes that it is about, and at no other."""

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from api.kinds.gpunodeinventory import GPUNodeInventory
from api.names import NodeName, PodUid, PoolName, UnitId
from inventory.pools.validation import VALID_POOL, PoolValidity
from kube.store import Store
from pool.allocation_state import AllocationState
from pool.facts import device_facts
from reconciler.assignment.controller import SPEC
from reconciler.assignment.triggers import AssignmentRouter
from reconciler.assignment.view import AssignmentSources
from reconciler.runtime.device_store import DeviceStore
from tests.support.assignment import UNSUPPORTED, a_device, a_gpupool
from tests.support.builders import a_node, a_pool
from tests.support.controllers import a_context

if TYPE_CHECKING:
    from collections.abc import Collection

    from api.kinds.gpupool import GPUPool
    from api.names import DeviceName


class Setup:
    """Nodes n0 to n2 with a device each, and who is enqueued."""

    def __init__(self) -> None:
        self.pools: dict[PoolName, GPUPool] = {PoolName("a"): a_gpupool("a")}
        allocation_state = AllocationState()
        allocation_state.index.replace_pool(a_pool("a"))
        self.validity: dict[str, PoolValidity] = {}
        self.sources = AssignmentSources(
            devices=DeviceStore(),
            inventories=Store(),
            pools=self.pools,
            index=allocation_state.index,
            reader=allocation_state.reader,
            validity_of=lambda name: self.validity.get(name, VALID_POOL),
        )
        for number in range(3):
            self.device(number)
        self.sources.index.changes.take()
        self.enqueued: list[NodeName] = []
        self.router = AssignmentRouter(self.sources)
        self.router.nodes.subscribe(self.enqueued.append)
        self.sources.devices.changes.subscribe(self.router.devices_changed)
        self.sources.inventories.changes.subscribe(self.router.inventory_changed)

    def device(self, number: int, **changes: Any) -> None:
        node = {"nodeName": f"n{number}", "uuid": f"GPU-{number}"}
        device = a_device(number, **{**node, **changes})
        self.sources.devices.upsert(device)
        self.sources.index.replace_device(device_facts(device))

    def pool(self, name: str, **changes: Any) -> None:
        self.pools[PoolName(name)] = a_gpupool(name, **changes)
        self.router.pool_changed(name)

    def inventory(self, node: str, **status: Any) -> None:
        raw = {"metadata": {"name": node}, "status": status}
        self.sources.inventories.upsert(msgspec.convert(raw, GPUNodeInventory))

    def index_changed(self) -> None:
        changes = self.sources.index.changes.take()
        for node in changes.nodes:
            self.router.node_changed(node)
        self.devices_changed(changes.devices)

    def devices_changed(self, devices: "Collection[DeviceName]") -> None:
        for device in devices:
            self.router.units_changed(device)

    def taken(self) -> list[str]:
        found = sorted(set(self.enqueued))
        self.enqueued.clear()
        return [str(item) for item in found]


@pytest.fixture
def setup() -> Setup:
    return Setup()


ALL = ["n0", "n1", "n2"]


def test_changed_device_is_its_node(setup):
    setup.device(1, annotated="a")

    assert setup.taken() == ["n1"]


@pytest.mark.parametrize(
    "change",
    [
        {"is_ignored": True},
        {"labels": {"rack": "7"}},
        {"owner": "a"},
        {"draining": True},
        {"faulted": True},
        {"managed": False},
        {"uuid": "GPU-other"},
        {"product": "Tesla T4"},
        {"memoryMiB": 1},
        {"computeCapability": "9.0"},
        {"pci": {"address": "0000:99:00.0"}},
        {"mig": {"capable": False}},
        {"inventoryID": "other"},
    ],
)
def test_everything_of_a_device_that_decides_is_a_change(setup, change):
    setup.device(1, **change)

    assert setup.taken() == ["n1"]


@pytest.mark.parametrize(
    "change",
    [
        {"units": {"capacity": 1, "allocated": 1}},
        {"state": "Reserved"},
        {"conditions": [{"type": "Stale", "status": "True"}]},
    ],
)
def test_what_pods_and_other_writers_change_decides_nothing(setup, change):
    setup.device(1, **change)

    assert setup.taken() == []


def test_any_newer_device_of_a_node_whose_write_had_a_conflict_is_its_node_once(setup):
    setup.router.await_devices(NodeName("n1"))

    setup.device(1, state="Reserved")
    setup.device(1, state="Assigned")

    assert setup.taken() == ["n1"]


def test_device_that_is_gone_is_its_node(setup):
    setup.sources.devices.discard(a_device(1).name)

    assert setup.taken() == ["n1"]


def test_every_node_with_a_device_or_an_inventory_is_assigned_when_a_term_begins(setup):
    setup.inventory("n9")
    context = a_context()
    context.stores.devices, context.stores.inventories = (
        setup.sources.devices,
        setup.sources.inventories,
    )

    assert sorted(map(str, SPEC.initial(context))) == [*ALL, "n9"]


@pytest.mark.parametrize(
    "change",
    [
        {"is_terminating": True},
        {"deviceSelector": {"include": {"products": ["T4"]}}},
        {"nodeSelector": {"matchLabels": {"zone": "a"}}},
        {"created": 5},
        {"resource": {"name": "gpu.deckhouse.io/b"}},
        {"cap": 1},
        {"by_itself": True},
    ],
)
def test_what_decides_of_a_pool_is_a_change_of_every_node(setup, change):
    setup.pool("a", **change)

    assert setup.taken() == ALL


def test_status_access_and_strategy_of_a_pool_decide_nothing(setup):
    setup.device(0, owner="a")
    setup.taken()

    setup.pool("a", scheduling={"strategy": "Spread"}, access={"namespaces": ["x"]})

    assert setup.taken() == []


def test_what_is_thought_of_a_pool_is_a_change_of_it(setup):
    setup.validity["a"] = UNSUPPORTED

    setup.router.pool_changed("a")

    assert setup.taken() == ALL


def test_pool_that_is_gone_is_a_change_once(setup):
    del setup.pools[PoolName("a")]

    setup.router.pool_changed("a")
    assert setup.taken() == ALL

    setup.router.pool_changed("a")
    assert setup.taken() == []


def test_readiness_of_a_node_is_a_change_and_its_heartbeat_is_none(setup):
    ready = {"type": "ReadyForPooling", "status": "True", "reason": "Ready"}
    setup.inventory("n1", conditions=[ready])
    assert setup.taken() == ["n1"]

    setup.inventory("n1", conditions=[{**ready, "message": "since"}], lastHeartbeat="now")
    assert setup.taken() == []

    setup.inventory("n1", conditions=[{**ready, "status": "False", "reason": "DriverMissing"}])
    assert setup.taken() == ["n1"]


def test_pools_of_an_inventory_that_somebody_else_wrote_are_looked_at(setup):
    setup.inventory("n1")
    setup.taken()

    setup.inventory("n1", pools={"assigned": [{"pool": "x", "devices": ["y"]}]})

    assert setup.taken() == ["n1"]


def test_labels_of_a_node_are_a_change_where_it_has_devices(setup):
    index = setup.sources.index
    for name in ("n1", "n9"):
        index.replace_node(a_node(name, labels={"zone": "b"}))

    setup.index_changed()

    assert setup.taken() == ["n1"]


def test_pod_that_ends_on_a_leaving_device_is_a_change(setup):
    index = setup.sources.index
    setup.device(0, owner="a", draining=True)
    setup.device(1, owner="a")
    for number in (0, 1):
        index.set_observed(PodUid(f"p{number}"), (UnitId(f"GPU-{number}"),))
    setup.index_changed()
    setup.taken()

    for number in (0, 1):
        index.set_observed(PodUid(f"p{number}"), ())
    setup.devices_changed(index.changes.take().devices)

    assert setup.taken() == ["n0"]


def test_device_that_shows_the_uuid_of_another_is_a_change_and_so_is_its_end(setup):
    setup.device(1, uuid="GPU-0")
    setup.taken()
    setup.index_changed()
    assert setup.taken() == ["n1"]

    setup.device(0, uuid="GPU-another")
    setup.taken()
    setup.devices_changed(setup.sources.index.changes.take().devices)
    assert setup.taken() == ["n1"]
