"""Whether all nodes of a pool carry a label: what decides how strictly pods may be spread."""

from api.names import DeviceName, NodeName, PoolName
from pool.index import DeviceIndex
from tests.support.builders import a_device, a_node, a_pool

POOL = PoolName("whole")


def an_index() -> DeviceIndex:
    index = DeviceIndex()
    index.replace_pool(a_pool())
    index.replace_node(a_node("n1", labels={"zone": "a"}))
    index.replace_device(a_device("n1"))
    return index


def test_a_pool_whose_nodes_all_have_the_key_is_labelled():
    assert an_index().are_labelled(POOL, "zone")
    assert not an_index().are_labelled(POOL, "rack")


def test_a_pool_without_nodes_is_not_labelled():
    assert not DeviceIndex().are_labelled(POOL, "zone")


def test_a_node_that_does_not_exist_says_nothing():
    index = an_index()
    index.replace_device(a_device("gone"))

    assert index.are_labelled(POOL, "zone")


def test_every_change_of_nodes_and_devices_is_seen():
    index = an_index()
    assert index.are_labelled(POOL, "zone")

    index.replace_node(a_node("n2", labels={}))
    index.replace_device(a_device("n2"))
    assert not index.are_labelled(POOL, "zone")

    index.replace_node(a_node("n2", labels={"zone": "b"}))
    assert index.are_labelled(POOL, "zone")

    index.replace_node(a_node("n2", labels={}))
    assert not index.are_labelled(POOL, "zone")

    index.discard_node(NodeName("n2"))
    assert index.are_labelled(POOL, "zone")

    index.replace_node(a_node("n2", labels={}))
    assert not index.are_labelled(POOL, "zone")

    index.discard_device(DeviceName("n2-0"))
    assert index.are_labelled(POOL, "zone")
