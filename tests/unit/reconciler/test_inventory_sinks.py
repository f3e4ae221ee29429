"""Nodes, pools, devices and namespaces on their way from the watch into the index and the catalog."""

import dataclasses
from typing import Any

import pytest

from api.foreign.core import Namespace
from api.foreign.karpenter import NodePool
from api.kinds import gpudevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool, GPUPoolSpec, GPUPoolStatus
from api.meta import ObjectMeta
from api.names import DeviceName, NodeName, PoolName
from kube.decoding import Listing
from kube.unread_objects import UnreadObject
from pool.allocation_state import AllocationState
from pool.catalog import Catalog
from pool.index.device_index import DeviceIndex
from reconciler.sinks.device import DeviceSink, ObservedDevice, observe_device
from reconciler.sinks.inventory import InventorySink
from reconciler.sinks.karpenter import node_pool_store, observe_node_pool
from reconciler.sinks.namespace import NamespaceSink
from reconciler.sinks.node import NodeSink
from reconciler.sinks.pool import PoolSink
from tests.support.builders import a_node, a_pool
from tests.support.listings import replace_listed

WHOLE = PoolName("whole")


def a_pool_object(name: str = "whole", *, version: int = 1, **status: Any) -> GPUPool:
    meta = ObjectMeta(name=name, uid=f"uid-{name}", resource_version=str(version), generation=1)
    return GPUPool(metadata=meta, status=GPUPoolStatus(**status))


def a_namespace(name: str, **labels: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name, labels=labels or None))


def an_observed_device(
    name: str = "n1-0", *, pool: str | None = "whole", **status: Any
) -> ObservedDevice:
    node, _, _ = name.partition("-")
    return observe_device(
        gpudevice.GPUDevice(
            metadata=ObjectMeta(name=name),
            status=gpudevice.GPUDeviceStatus(
                node_name=node,
                uuid=f"GPU-{name}",
                pool_ref=gpudevice.PoolRef(name=pool) if pool else None,
                **status,
            ),
        )
    )


@pytest.mark.parametrize("uid", ["u", "of another object"])
def test_what_cannot_be_read_stays_as_known_unless_it_is_another_object_of_the_name(uid: str):
    """A node of another UID stays too: of nodes there is no unread state."""
    meta, state = ObjectMeta(name="n", uid="u"), AllocationState()
    objects: list[tuple[Any, Any]] = [
        (DeviceSink(state.index), observe_device(gpudevice.GPUDevice(metadata=meta))),
        (InventorySink(state), GPUNodeInventory(metadata=meta)),
        (PoolSink(state.index, Catalog()), GPUPool(metadata=meta)),
        (node_pool_store(), observe_node_pool(NodePool(metadata=meta))),
        (NodeSink(state.index), dataclasses.replace(a_node("n"), uid="u")),
    ]
    kept = []
    for sink, item in objects:
        sink.replace_all([item])
        unread = UnreadObject("", "n", uid)
        replace_listed(sink, Listing(items=[], resource_version="2", unread=[unread]))
        kept.append(sink.last_read(unread) == item)
    assert kept == [uid == "u"] * 4 + [True]


class TestNodes:
    def setup_method(self) -> None:
        self.index = DeviceIndex()
        self.sink = NodeSink(self.index)

    def recorded(self) -> set[str]:
        return {
            name for name in ("n1", "n2", "n3") if self.index.nodes.get(NodeName(name)) is not None
        }

    def test_a_list_leaves_exactly_its_nodes(self):
        self.sink.replace_all([a_node("n1"), a_node("n2")])
        self.sink.replace_all([a_node("n2"), a_node("n3")])
        assert self.recorded() == {"n2", "n3"}

    def test_a_node_that_only_an_event_showed_is_gone_with_the_next_list(self):
        self.sink.upsert(a_node("n1"))
        self.sink.replace_all([])
        assert self.recorded() == set()

    def test_a_node_that_was_deleted_and_is_listed_again_is_there(self):
        self.sink.upsert(a_node("n1"))
        self.sink.discard(a_node("n1"))
        self.sink.discard(a_node("n1"))
        assert self.recorded() == set()
        self.sink.replace_all([a_node("n1")])
        assert self.recorded() == {"n1"}

    def test_a_changed_node_replaces_the_old_one(self):
        self.sink.upsert(a_node("n1"))
        self.sink.upsert(a_node("n1", is_cordoned=True))
        node = self.index.nodes.get(NodeName("n1"))
        assert node is not None
        assert node.is_cordoned

    def test_the_same_node_again_is_no_change(self):
        self.sink.upsert(a_node("n1"))
        generation = self.index.generation
        self.index.changes.take()
        self.sink.upsert(a_node("n1"))
        self.sink.replace_all([a_node("n1")])
        assert self.index.generation == generation
        assert self.index.changes.take().nodes == frozenset()


class TestNamespaces:
    def setup_method(self) -> None:
        self.catalog = Catalog()
        self.sink = NamespaceSink(self.catalog)

    def test_a_list_leaves_exactly_its_namespaces(self):
        self.sink.replace_all([a_namespace("a", team="ml"), a_namespace("b")])
        self.sink.replace_all([a_namespace("b", team="web")])
        assert self.catalog.labels_by_namespace == {"b": {"team": "web"}}

    def test_a_namespace_without_labels_is_known(self):
        self.sink.upsert(a_namespace("a"))
        assert self.catalog.labels_by_namespace == {"a": {}}

    def test_lost_labels_are_gone(self):
        self.sink.upsert(a_namespace("a", team="ml"))
        self.sink.upsert(a_namespace("a"))
        assert self.catalog.labels_by_namespace == {"a": {}}

    def test_a_deleted_namespace_is_forgotten_even_twice(self):
        self.sink.upsert(a_namespace("a"))
        self.sink.discard(a_namespace("a"))
        self.sink.discard(a_namespace("a"))
        assert self.catalog.labels_by_namespace == {}


class TestPools:
    def setup_method(self) -> None:
        self.index, self.catalog = DeviceIndex(), Catalog()
        self.sink = PoolSink(self.index, self.catalog)

    def recorded(self) -> tuple[set[str], set[str]]:
        return set(self.catalog.pools), {pool.name for pool in self.index.pools()}

    def checked(self) -> set[str]:
        return set(self.index.changes.take().pools)

    def test_a_list_leaves_exactly_its_pools_in_catalog_and_index(self):
        self.sink.replace_all([a_pool_object("a"), a_pool_object("b")])
        self.sink.replace_all([a_pool_object("b"), a_pool_object("c")])
        assert self.recorded() == ({"b", "c"}, {"b", "c"})

    def test_a_deleted_pool_is_in_neither_and_may_come_back(self):
        self.sink.upsert(a_pool_object())
        self.sink.discard(a_pool_object())
        self.sink.discard(a_pool_object())
        assert self.recorded() == (set(), set())
        self.sink.upsert(a_pool_object())
        assert self.recorded() == ({"whole"}, {"whole"})

    def test_a_pool_that_goes_is_looked_at_so_that_its_gauges_can_go(self):
        self.sink.upsert(a_pool_object())
        self.checked()
        self.sink.discard(a_pool_object())
        assert self.checked() == {"whole"}

    def test_a_pool_that_went_unseen_is_looked_at_too(self):
        self.sink.upsert(a_pool_object())
        self.checked()
        self.sink.replace_all([])
        assert self.checked() == {"whole"}

    def test_a_status_that_somebody_changed_is_looked_at(self):
        self.sink.upsert(a_pool_object())
        self.checked()
        self.sink.upsert(a_pool_object(version=2, phase="Nonsense"))
        assert self.checked() == {"whole"}

    def test_a_spec_that_only_admission_reads_is_looked_at_for_its_generation(self):
        self.sink.upsert(a_pool_object())
        self.checked()
        meta = ObjectMeta(name="whole", uid="uid-whole", resource_version="2", generation=2)
        self.sink.upsert(GPUPool(metadata=meta, spec=GPUPoolSpec()))
        assert self.checked() == {"whole"}

    def test_the_same_pool_again_is_no_change(self):
        self.sink.upsert(a_pool_object())
        generation = self.index.generation
        self.checked()
        self.sink.upsert(a_pool_object())
        self.sink.replace_all([a_pool_object()])
        assert self.checked() == set()
        assert self.index.generation == generation


class TestDevices:
    def setup_method(self) -> None:
        self.index = DeviceIndex()
        self.index.replace_pool(a_pool())
        self.sink = DeviceSink(self.index)
        self.index.changes.take()

    def recorded(self) -> set[str]:
        return {entry.facts.name for entry in self.index.devices.all()}

    def checked(self) -> set[str]:
        return set(self.index.changes.take().devices)

    def test_a_list_leaves_exactly_its_devices(self):
        self.sink.replace_all([an_observed_device("n1-0"), an_observed_device("n1-1")])
        self.sink.replace_all([an_observed_device("n1-1"), an_observed_device("n2-0")])
        assert self.recorded() == {"n1-1", "n2-0"}
        assert self.sink.store.names() == {"n1-1", "n2-0"}
        assert self.index.state(WHOLE).capacity().total == 2

    def test_a_deleted_device_is_forgotten_even_twice_and_may_come_back(self):
        self.sink.upsert(an_observed_device())
        self.sink.discard(an_observed_device())
        self.sink.discard(an_observed_device())
        assert self.recorded() == set()
        assert self.sink.store.names() == set()
        self.sink.upsert(an_observed_device())
        assert self.recorded() == {"n1-0"}

    def test_the_whole_object_is_kept_beside_the_facts(self):
        units = gpudevice.DeviceUnits(capacity=1, reserved=1)
        self.sink.upsert(an_observed_device(state=gpudevice.DeviceState.RESERVED, units=units))
        device = self.sink.store.get(DeviceName("n1-0"))
        assert device is not None
        assert (device.status.state, device.status.units) == (gpudevice.DeviceState.RESERVED, units)

    def test_a_report_that_somebody_changed_is_looked_at_and_changes_no_fact(self):
        self.sink.upsert(an_observed_device(state=gpudevice.DeviceState.ASSIGNED))
        generation = self.index.generation
        self.checked()
        self.sink.upsert(an_observed_device(state=gpudevice.DeviceState.FAULTED))
        assert self.checked() == {"n1-0"}
        assert self.index.generation == generation

    def test_the_same_device_again_is_no_change(self):
        self.sink.upsert(an_observed_device())
        generation = self.index.generation
        self.checked()
        self.sink.upsert(an_observed_device())
        self.sink.replace_all([an_observed_device()])
        assert self.checked() == set()
        assert self.index.generation == generation
