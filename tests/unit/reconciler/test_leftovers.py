"""What is left of a pool, by any writer."""

from api.names import PoolName, pool_node_label
from pool.facts import device_facts
from pool.index.device_index import DeviceIndex
from reconciler.pool.lifecycle import PoolReferences
from tests.support.assignment import a_device
from tests.support.builders import a_node

POOL = PoolName("a")


class World:
    def __init__(self) -> None:
        self.index = DeviceIndex()
        self.workloads: list[str] = []
        self.references = PoolReferences(self.index, lambda _: self.workloads)

    def add(self, number: int, *, owner: str = "a", is_ignored: bool = False) -> None:
        device = a_device(number, owner=owner, is_ignored=is_ignored)
        self.index.replace_device(device_facts(device))


def test_a_pool_of_which_nothing_is_left_may_go():
    world = World()
    world.add(0, owner="b")
    world.index.replace_node(a_node("n1", labels={pool_node_label(PoolName("b")): ""}))
    assert world.references.of(POOL) == ()


def test_its_devices_are_named():
    world = World()
    for number in range(7):
        world.add(number)
    assert world.references.of(POOL) == ("7 devices (n1-0, n1-1, n1-2, n1-3, n1-4 and 2 more)",)


def test_a_device_that_is_kept_out_and_names_the_pool_is_left():
    world = World()
    world.add(0, is_ignored=True)
    assert world.references.of(POOL) == ("1 device (n1-0)",)


def test_marks_of_nodes_and_workloads_are_left():
    world = World()
    world.index.replace_node(a_node("n1", labels={pool_node_label(POOL): ""}))
    world.workloads = ["DaemonSet x"]
    assert world.references.of(POOL) == ("1 node label (n1)", "1 workload (DaemonSet x)")
