"""A bound Pod of a later Kubernetes: its units stay taken where it can be read, and its node is closed where it cannot."""

from typing import Any

import msgspec
import pytest

from api.foreign.core import Pod
from api.names import DEVICES_ANNOTATION, NodeName, PodUid, PoolName
from kube.decoding import Listing, decode_items
from kube.resources import PODS
from pool.facts import observed_pod
from pool.placement.planner import Placed
from tests.component.reconciler.cluster import a_cluster
from tests.support.builders import a_demand
from tests.support.listings import replace_listed

N1 = NodeName("n1")


def a_pod(name: str, unit: str, **spec: Any) -> msgspec.Raw:
    container = {"name": "c0", "resources": {"limits": {"gpu.deckhouse.io/whole": "1"}}}
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "labels": {"gpu.deckhouse.io/pool": "whole"},
        "annotations": {DEVICES_ANNOTATION: f'{{"c0":["{unit}"]}}'},
    }
    return msgspec.Raw(
        msgspec.json.encode(
            {
                "metadata": metadata,
                "spec": {"nodeName": N1, "containers": [container], **spec},
                "status": {"phase": "Running"},
            }
        )
    )


def requiring(operator: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "zone", "operator": operator, "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


async def listed(*pods: msgspec.Raw) -> Listing[Any]:
    items, unread = await decode_items(pods, Pod, resource=PODS, project=observed_pod)
    return Listing(items=items, resource_version="1", unread=unread)


@pytest.mark.parametrize("operator", ["In", "StartsWith"])
async def test_a_running_pod_with_an_operator_of_a_later_kubernetes_has_its_unit(operator: str):
    async with a_cluster() as cluster:
        replace_listed(cluster.pods, await listed(a_pod("a", "GPU-n1-0", **requiring(operator))))
        index = cluster.allocation_state.index
        node = index.state(PoolName("whole")).node(N1)
        assert node is not None
        assert (node.free, node.unaccounted) == (1, 0)


async def test_the_node_of_a_running_pod_that_cannot_be_read_takes_no_pod_until_that_is_gone():
    async with a_cluster() as cluster:
        pool = cluster.allocation_state.index.pool(PoolName("whole"))
        assert pool is not None

        def bound() -> Any:
            reader = cluster.allocation_state.reader
            return reader.plan_bind(N1, pool, a_demand(1), uid=PodUid("another"))

        unreadable = a_pod("a", "GPU-n1-0", tolerations="of the next version")
        replace_listed(cluster.pods, await listed(unreadable))
        assert not isinstance(bound(), Placed)
        replace_listed(cluster.pods, await listed())
        assert isinstance(bound(), Placed)


async def test_a_running_pod_that_was_known_before_keeps_its_unit_alone():
    async with a_cluster() as cluster:
        replace_listed(cluster.pods, await listed(a_pod("a", "GPU-n1-0")))
        unreadable = a_pod("a", "GPU-n1-0", tolerations="of the next version")
        replace_listed(cluster.pods, await listed(unreadable))
        node = cluster.allocation_state.index.state(PoolName("whole")).node(N1)
        assert node is not None
        assert (node.free, node.unaccounted) == (1, 0)


async def test_a_running_pod_without_units_that_was_known_before_closes_no_node():
    async with a_cluster() as cluster:
        asking = {"requests": {"cpu": "2"}}
        spec = {"containers": [{"name": "c0", "resources": asking}]}
        replace_listed(cluster.pods, await listed(a_pod("a", "", **spec)))
        replace_listed(cluster.pods, await listed(a_pod("a", "", **spec, tolerations="next")))
        index = cluster.allocation_state.index
        assert index.requests.on(N1).cpu_milli == 2000
        node = index.state(PoolName("whole")).node(N1)
        assert node is not None
        assert node.unaccounted == 0


async def test_a_pod_that_was_known_as_pending_closes_the_node_that_it_is_bound_to_by_now():
    async with a_cluster() as cluster:
        replace_listed(cluster.pods, await listed(a_pod("a", "GPU-n1-0", nodeName="")))
        replace_listed(cluster.pods, await listed(a_pod("a", "GPU-n1-0", tolerations="next")))
        node = cluster.allocation_state.index.state(PoolName("whole")).node(N1)
        assert node is not None
        assert node.unaccounted > 0
