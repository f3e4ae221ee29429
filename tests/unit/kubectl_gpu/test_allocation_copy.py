"""The plugin's copy of the allocation state is the server's."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from api.clock import Instant
from api.names import PoolName
from cli.simulation.object_files import read_cluster
from cli.simulation.snapshot import take_snapshot
from kubectl_gpu.cluster_lists import ClusterLists
from kubectl_gpu.waiting import pool_reading
from kubectl_gpu.waiting.allocation_copy import PoolObjects, allocation_of
from pool.allocation_state import AllocationState
from tests.support.cluster_objects import (
    Object,
    a_device_object,
    a_list_file,
    a_node_object,
    a_pool_object,
)
from tests.support.listed_clusters import clusters
from tests.support.listed_objects import NOW, ListedObjects

INSTANT = Instant(0.0, NOW)
POOL = PoolName("whole")


def copy_of(objects: list[Object]) -> AllocationState:
    lists = ClusterLists(ListedObjects(objects))
    found = PoolObjects()
    for pool in pool_reading.read_pools(lists):
        pool_reading.read_pool(lists, pool, found)
    pool_reading.read_inventories(lists, found)
    pool_reading.read_pods_of_nodes(lists, found)
    return allocation_of(found, INSTANT)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


@given(objects=clusters())
def test_the_copy_is_what_a_server_has_once_it_has_started(directory: Path, objects: list[Object]):
    file = a_list_file(directory / "cluster.json", *objects)
    server = take_snapshot(read_cluster([file]), INSTANT).state
    copy = copy_of(objects)
    for name in (POOL, PoolName("other")):
        ours, theirs = copy.index.state(name), server.index.state(name)
        for node in ours.nodes().keys() | theirs.nodes().keys():
            # Ranking of nodes is no part of a copy that only explains.
            one, other = figures_of(ours.node(node)), figures_of(theirs.node(node))
            assert one == other
        assert ours.capacity() == theirs.capacity()
        assert ours.largest_free() == theirs.largest_free()
    ours_by_node, theirs_by_node = copy.index, server.index
    for host in filter(server.index.devices.has_node, copy.index.nodes):
        assert ours_by_node.free_pods(host) == theirs_by_node.free_pods(host)
        free = ours_by_node.free_cpu_and_memory(host)
        assert free == theirs_by_node.free_cpu_and_memory(host)
    waiting = [pod.ref for pod in copy.reader.pods.waiting("gpu.deckhouse.io/whole")]
    assert waiting == [pod.ref for pod in server.reader.pods.waiting("gpu.deckhouse.io/whole")]


def figures_of(node: Any) -> Any:
    if node is None:
        return None
    return {name: getattr(node, name) for name in node.__struct_fields__ if name != "remaining"}


def test_of_several_pools_each_device_is_read_once():
    objects = [a_pool_object("whole"), a_node_object("n1")]
    objects += [a_device_object("n1", number) for number in range(3)]
    lists = ClusterLists(ListedObjects(objects))
    found = PoolObjects()
    for pool in pool_reading.read_pools(lists) * 2:
        pool_reading.read_pool(lists, pool, found)
    assert len(found.devices) == 3
