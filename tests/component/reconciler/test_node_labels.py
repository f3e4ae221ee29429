"""A label per pool on every node that has a device of it, and nothing else touched."""

from typing import Any

import pytest

from api.names import POOL_NODE_LABEL_PREFIX, NodeName
from kube.errors import Conflict, KubeError, NotFound, ServerError
from kube.resources import GPU_DEVICES, GPU_POOLS, NODES
from tests.component.reconciler.cluster import Cluster

N1 = NodeName("n1")


async def settled(cluster: Cluster) -> set[str]:
    """Reconcile, let the watch catch up, and return the pools that the node is labelled with."""
    assert await cluster.node_labels.reconcile(N1) is None
    await cluster.observe()
    return await cluster.labels_of("n1")


async def test_a_node_is_labelled_with_every_pool_that_has_a_card_there(cluster: Cluster):
    await cluster.add_pool("slices")
    await cluster.add_card("n1-2", pool="slices")
    await cluster.add_pool("elsewhere")
    await cluster.observe()
    assert await settled(cluster) == {"whole", "slices"}


async def test_a_node_that_lost_its_last_card_of_a_pool_loses_the_label(cluster: Cluster):
    assert await settled(cluster) == {"whole"}
    await cluster.client.delete(GPU_DEVICES, "n1-0")
    await cluster.observe()
    assert await settled(cluster) == {"whole"}
    await cluster.client.delete(GPU_DEVICES, "n1-1")
    await cluster.observe()
    assert await settled(cluster) == set()


async def test_the_label_goes_with_its_pool(cluster: Cluster):
    assert await settled(cluster) == {"whole"}
    cluster.books.index.take_changes()
    await cluster.client.delete(GPU_POOLS, "whole")
    await cluster.observe()
    assert N1 in cluster.books.index.take_changes().nodes
    assert await settled(cluster) == set()


async def test_labels_of_others_stay_as_they_are(cluster: Cluster):
    theirs: dict[str, str] = {
        "kubernetes.io/hostname": "n1",
        "gpu.deckhouse.io/driver": "ready",
        f"x{POOL_NODE_LABEL_PREFIX}whole": "theirs",
    }
    patch = {"metadata": {"labels": {**theirs, f"{POOL_NODE_LABEL_PREFIX}gone": ""}}}
    await cluster.client.merge_patch(NODES, patch, name="n1")
    await cluster.observe()
    assert await settled(cluster) == {"whole"}
    node = await cluster.client.get(NODES, dict[str, Any], "n1")
    assert node["metadata"]["labels"] == {**theirs, f"{POOL_NODE_LABEL_PREFIX}whole": ""}


@pytest.mark.parametrize("runs", [1, 2, 3])
async def test_in_the_steady_state_nothing_is_written(cluster: Cluster, runs: int):
    """Defect 11."""
    await settled(cluster)
    assert cluster.writes() == [("PATCH", "/api/v1/nodes/n1")]
    for _ in range(runs):
        await cluster.node_labels.reconcile(N1)
    assert cluster.writes() == []


async def test_a_label_that_somebody_took_away_comes_back(cluster: Cluster):
    await settled(cluster)
    cluster.books.index.take_changes()
    patch = {"metadata": {"labels": {f"{POOL_NODE_LABEL_PREFIX}whole": None}}}
    await cluster.client.merge_patch(NODES, patch, name="n1")
    await cluster.observe()
    assert N1 in cluster.books.index.take_changes().nodes
    assert await settled(cluster) == {"whole"}


async def test_a_node_that_was_deleted_meanwhile_is_no_failure_and_not_made_anew(
    cluster: Cluster,
):
    await cluster.client.delete(NODES, "n1")
    await cluster.node_labels.reconcile(N1)
    with pytest.raises(NotFound):
        await cluster.labels_of("n1")


async def test_cards_on_a_node_that_is_not_known_write_nothing(cluster: Cluster):
    await cluster.add_card("n9-0")
    await cluster.observe()
    cluster.writes()
    await cluster.node_labels.reconcile(NodeName("n9"))
    assert cluster.writes() == []


@pytest.mark.parametrize(("code", "error"), [(409, Conflict), (500, ServerError)])
async def test_a_refused_write_raises_and_the_next_attempt_succeeds(
    cluster: Cluster, code: int, error: type[KubeError]
):
    cluster.api.faults.fail("PATCH", "/nodes/n1$", code)
    with pytest.raises(error):
        await cluster.node_labels.reconcile(N1)
    assert await settled(cluster) == {"whole"}
