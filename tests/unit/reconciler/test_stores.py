"""Whole objects by name and node, and who is told of what."""

from collections.abc import Iterator

import pytest

from api.kinds.gpudevice import GPUDevice, GPUDeviceStatus, Link
from api.kinds.gpupool import GPUPool
from api.meta import Condition, ObjectMeta
from api.names import DeviceName, NodeName
from kube.store import Store
from pool.index.device_index import DeviceIndex
from reconciler.runtime.device_store import DeviceStore
from tests.support.builders import a_device

N1, N2 = NodeName("n1"), NodeName("n2")


def a_gpu(name: str = "n1-0", *, version: int = 1, **status: object) -> GPUDevice:
    fields: dict[str, object] = {"node_name": name.partition("-")[0], "uuid": f"GPU-{name}"}
    return GPUDevice(
        metadata=ObjectMeta(name=name, resource_version=str(version), labels={"a": "b"}),
        status=GPUDeviceStatus(**{**fields, **status}),  # type: ignore[arg-type]
    )


@pytest.fixture
def reported() -> list[str]:
    return []


@pytest.fixture
def store(reported: list[str]) -> Iterator[DeviceStore]:
    store = DeviceStore()
    with store.changes.subscribed(reported.append):
        yield store


def names(store: DeviceStore, node: NodeName = N1) -> list[str]:
    return [item.name for item in store.on_node(node)]


def test_devices_are_found_by_node_in_order_of_their_names(store: DeviceStore):
    for name in ("n1-1", "n2-0", "n1-0"):
        store.upsert(a_gpu(name))
    assert names(store) == ["n1-0", "n1-1"]
    assert store.nodes() == {"n1", "n2"}
    assert len(store) == 3


def test_the_same_again_is_told_nobody(store: DeviceStore, reported: list[str]):
    store.upsert(a_gpu())
    store.upsert(a_gpu())
    assert reported == ["n1"]
    store.upsert(a_gpu(version=2))
    assert reported == ["n1", "n1"]


def test_a_device_that_changes_its_node_is_told_both(store: DeviceStore, reported: list[str]):
    store.upsert(a_gpu())
    store.upsert(a_gpu(node_name="n2"))
    assert reported == ["n1", "n1", "n2"]
    assert (names(store, N1), names(store, N2)) == ([], ["n1-0"])


def test_a_device_without_a_status_is_where_it_was_made_for(store: DeviceStore):
    annotations = {"gpu.deckhouse.io/node": "n1"}
    store.upsert(GPUDevice(metadata=ObjectMeta(name="d", annotations=annotations)))
    assert names(store) == ["d"]
    store.upsert(a_gpu("n2-0"))
    store.discard(DeviceName("d"))
    assert store.nodes() == {"n2"}


def test_a_list_leaves_exactly_its_devices(store: DeviceStore, reported: list[str]):
    list(store.replace_in_steps([a_gpu("n1-0"), a_gpu("n2-0")]))
    reported.clear()
    list(store.replace_in_steps([a_gpu("n2-0"), a_gpu("n3-0")]))
    assert reported == ["n1", "n3"]
    assert store.nodes() == {"n2", "n3"}


def test_a_deleted_device_is_forgotten_even_twice(store: DeviceStore, reported: list[str]):
    store.upsert(a_gpu())
    store.discard(DeviceName("n1-0"))
    store.discard(DeviceName("n1-0"))
    assert reported == ["n1", "n1"]
    assert store.get(DeviceName("n1-0")) is None


def test_what_many_devices_have_in_common_is_kept_once_and_unchanged(store: DeviceStore):
    def full(name: str) -> GPUDevice:
        stale = Condition(type="Stale", status="False", last_transition_time="t")
        return a_gpu(name, links=[Link(peer="x", type="NVLink")], conditions=[stale])

    store.upsert(full("n1-0"))
    store.upsert(full("n1-1"))
    one, other = store.on_node(N1)
    assert one == full("n1-0")
    assert one.metadata.labels is other.metadata.labels
    for field in ("pci", "units"):
        assert getattr(one.status, field) is getattr(other.status, field)
    assert one.status.conditions is not None
    assert other.status.conditions is not None
    assert one.status.conditions[0] is other.status.conditions[0]


def test_objects_are_kept_by_name_and_told_when_they_differ():
    store: Store[GPUPool] = Store()
    reported: list[str] = []

    def pool(name: str, version: str = "1") -> GPUPool:
        return GPUPool(metadata=ObjectMeta(name=name, resource_version=version))

    with store.changes.subscribed(reported.append):
        store.replace_all([pool("a"), pool("b")])
        store.replace_all([pool("b"), pool("c")])
        store.upsert(pool("b", "2"))
        store.discard(pool("c"))
        store.discard(pool("c"))
    store.upsert(pool("d"))
    assert reported == ["a", "b", "a", "c", "b", "c"]
    assert store.by_name.keys() == {"b", "d"}


def test_owners_are_the_others_that_had_a_uuid_first():
    index = DeviceIndex()
    for node in ("n1", "n2", "n3"):
        uuid = "GPU-other" if node == "n3" else "GPU-twice"
        index.replace_device(a_device(node, 0, uuid=uuid))
    entry = index.devices.get(DeviceName("n2-0"))
    assert entry is not None
    assert index.devices.owners(entry) == {"n1-0"}
    index.discard_device(DeviceName("n1-0"))
    assert index.devices.owners(entry) == frozenset()
