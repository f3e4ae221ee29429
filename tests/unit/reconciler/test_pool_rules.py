"""PoolValidityLookup follow what changes: the pool, older pools of its resource, the devices that it may have."""

from typing import Any

from api.kinds.gpupool import GPUPool
from api.names import PoolName
from inventory.pools.validation import PoolFaultReason
from pool.catalog import Catalog
from reconciler.pool.validation_cache import PoolValidityCache
from reconciler.runtime.device_store import DeviceStore
from tests.support.assignment import a_device, a_gpupool

MIG = {"mode": "MIG", "migProfile": "1g.10gb"}
CAN: dict[str, Any] = {"mig": {"capable": True, "profiles": ["1g.10gb"]}}
CANNOT: dict[str, Any] = {"mig": {"capable": False}}


class World:
    def __init__(self, *pools: GPUPool) -> None:
        self.catalog = Catalog()
        self.devices = DeviceStore()
        for pool in pools:
            self.catalog.pools[pool.name] = pool
        self.rules = PoolValidityCache(self.catalog, self.devices)
        self.reported: list[str] = []

    def set_pool(self, pool: GPUPool) -> None:
        self.catalog.pools[pool.name] = pool
        self.notify_pool(pool.name)

    def notify_pool(self, name: str) -> None:
        with self.rules.changes.subscribed(self.reported.append):
            self.rules.pool_changed(name)

    def set_device(self, number: int = 0, **changes: Any) -> None:
        self.devices.upsert(a_device(number, **changes))
        with self.rules.changes.subscribed(self.reported.append):
            self.rules.node_changed("n1")

    def objections(self, name: str = "a") -> list[PoolFaultReason]:
        return [item.reason for item in self.rules.validity_of(PoolName(name)).misconfigured]


def test_a_pool_that_is_not_known_is_sound():
    assert World().rules.validity_of(PoolName("x")).is_valid


def test_the_younger_pool_is_sound_once_the_older_is_gone():
    resource = {"name": "gpu.deckhouse.io/one"}
    world = World(
        a_gpupool("a", created=2, resource=resource), a_gpupool("z", created=1, resource=resource)
    )
    assert world.objections("a") == [PoolFaultReason.RESOURCE_NAME_TAKEN]
    assert world.objections("z") == []
    del world.catalog.pools[PoolName("z")]
    world.notify_pool("z")
    assert world.objections("a") == []
    assert world.reported == ["a"]


def test_an_older_pool_makes_the_younger_misconfigured_when_it_is_seen():
    resource = {"name": "gpu.deckhouse.io/one"}
    world = World(a_gpupool("a", created=2, resource=resource))
    world.set_pool(a_gpupool("z", created=1, resource=resource))
    assert world.reported == ["a"]
    assert world.objections("a") == [PoolFaultReason.RESOURCE_NAME_TAKEN]


def test_a_profile_is_judged_by_the_devices_that_are_annotated_with_the_pool():
    world = World(a_gpupool("a", allocation=MIG))
    world.set_device(0, annotated="b", **CAN)
    assert world.objections() == []
    world.set_device(1, annotated="a", **CANNOT)
    assert world.objections() == [PoolFaultReason.PROFILE_NOT_SUPPORTED]
    world.set_device(2, annotated="a", **CAN)
    assert world.objections() == []
    assert world.reported == ["a", "a"]


def test_a_pool_without_annotations_is_judged_by_the_devices_that_it_selects():
    selector = {"include": {"products": ["NVIDIA A100-SXM4-80GB"]}}
    world = World(a_gpupool("a", by_itself=True, allocation=MIG, deviceSelector=selector))
    world.set_device(0, product="T4", **CAN)
    world.set_device(1, **CANNOT)
    assert world.objections() == [PoolFaultReason.PROFILE_NOT_SUPPORTED]


def test_who_owns_a_device_says_nothing():
    world = World(a_gpupool("a", allocation=MIG))
    world.set_device(0, annotated="a", **CANNOT)
    world.set_device(0, annotated="a", owner="a", **CANNOT)
    world.set_device(0, annotated="a", **CANNOT)
    assert world.reported == ["a"]


def test_another_profile_asks_all_devices_again():
    world = World(a_gpupool("a", allocation=MIG))
    world.set_device(0, annotated="a", **CAN)
    world.set_pool(a_gpupool("a", allocation={**MIG, "migProfile": "7g.80gb"}))
    assert world.objections() == [PoolFaultReason.PROFILE_NOT_SUPPORTED]
    world.set_pool(a_gpupool("a"))
    assert world.objections() == []


def test_devices_that_go_count_no_more():
    world = World(a_gpupool("a", allocation=MIG))
    world.set_device(0, annotated="a", **CANNOT)
    world.devices.discard(a_device(0).name)
    world.rules.node_changed("n1")
    assert world.objections() == []
    assert (world.rules._answers, world.rules._answers_by_node) == ({}, {})


def test_what_is_built_late_says_the_same_as_what_followed():
    world = World(a_gpupool("a", allocation=MIG), a_gpupool("b", by_itself=True, allocation=MIG))
    world.set_device(0, annotated="a", **CANNOT)
    world.set_device(1, **CANNOT)
    late = PoolValidityCache(world.catalog, world.devices)
    for name in ("a", "b"):
        assert late.validity_of(PoolName(name)) == world.rules.validity_of(PoolName(name))
        assert not late.validity_of(PoolName(name)).is_valid


def test_nothing_is_judged_again_while_nothing_changed():
    world = World(a_gpupool("a", allocation=MIG))
    world.set_device(0, annotated="a", **CANNOT)
    validity = world.rules.validity_of(PoolName("a"))
    world.notify_pool("a")
    assert world.rules.validity_of(PoolName("a")) is validity


def test_devices_mean_nothing_where_no_pool_is_mig():
    world = World(a_gpupool("a"))
    world.set_device(0, annotated="a", **CANNOT)
    assert world.reported == []
