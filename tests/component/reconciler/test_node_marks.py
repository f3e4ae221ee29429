"""A label per pool, and its taints, on every node that has a device of it, and nothing else touched."""

from typing import Any

import pytest

from admission.pods import patch as pod_patch
from api import names
from api.foreign.core import PodSpec
from kube.errors import Conflict, KubeError, NotFound, ServerError
from kube.resources import GPU_DEVICES, GPU_POOLS, NODES
from pool.node_affinity import Tolerations
from tests.component.reconciler.cluster import Cluster

N1 = names.NodeName("n1")
STARTING = {"key": names.AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}


async def stable(cluster: Cluster) -> set[str]:
    """Reconcile, let the watch catch up, and return the pools that the node is labelled with."""
    assert await cluster.node_marks.reconcile(N1) is None
    await cluster.observe()
    return await cluster.labels_of("n1")


async def test_a_node_is_labelled_with_every_pool_that_has_a_device_there(cluster: Cluster):
    await cluster.add_pool("slices")
    await cluster.add_device("n1-2", pool="slices")
    await cluster.add_pool("elsewhere")
    await cluster.observe()
    assert await stable(cluster) == {"whole", "slices"}


async def test_a_node_that_lost_its_last_device_of_a_pool_loses_the_label(cluster: Cluster):
    assert await stable(cluster) == {"whole"}
    await cluster.client.delete(GPU_DEVICES, "n1-0")
    await cluster.observe()
    assert await stable(cluster) == {"whole"}
    await cluster.client.delete(GPU_DEVICES, "n1-1")
    await cluster.observe()
    assert await stable(cluster) == set()


async def test_the_label_goes_with_its_pool(cluster: Cluster):
    assert await stable(cluster) == {"whole"}
    cluster.allocation_state.index.changes.take()
    await cluster.client.delete(GPU_POOLS, "whole")
    await cluster.observe()
    assert N1 in cluster.allocation_state.index.changes.take().nodes
    assert await stable(cluster) == set()


async def test_a_node_that_starts_keeps_the_label_that_its_node_pool_gave_it(cluster: Cluster):
    """Karpenter, which compares waiting pods with the node, would add a second one."""
    shapes = [{"name": "one", "devices": 1}]
    await cluster.add_pool(
        "elastic", autoscaling={"shapes": shapes}, assignment={"requireAnnotation": False}
    )
    labels = {f"{names.POOL_NODE_LABEL_PREFIX}{name}": "true" for name in ("elastic", "gone")}
    patch = {"metadata": {"labels": labels}, "spec": {"taints": [STARTING]}}
    await cluster.client.merge_patch(NODES, patch, name="n1")
    await cluster.observe()
    assert await stable(cluster) == {"whole", "elastic"}
    await cluster.client.merge_patch(NODES, {"spec": {"taints": None}}, name="n1")
    await cluster.observe()
    assert await stable(cluster) == {"whole"}


async def test_labels_of_others_stay_as_they_are(cluster: Cluster):
    theirs: dict[str, str] = {
        "kubernetes.io/hostname": "n1",
        "gpu.deckhouse.io/driver": "ready",
        f"x{names.POOL_NODE_LABEL_PREFIX}whole": "theirs",
    }
    patch = {"metadata": {"labels": {**theirs, f"{names.POOL_NODE_LABEL_PREFIX}gone": ""}}}
    await cluster.client.merge_patch(NODES, patch, name="n1")
    await cluster.observe()
    assert await stable(cluster) == {"whole"}
    node = await cluster.client.get(NODES, dict[str, Any], "n1")
    assert node["metadata"]["labels"] == {**theirs, f"{names.POOL_NODE_LABEL_PREFIX}whole": ""}


@pytest.mark.parametrize("runs", [1, 2, 3])
async def test_in_the_steady_state_nothing_is_written(cluster: Cluster, runs: int):
    """Lesson 11."""
    await stable(cluster)
    assert cluster.writes() == [("PATCH", "/api/v1/nodes/n1")]
    for _ in range(runs):
        await cluster.node_marks.reconcile(N1)
    assert cluster.writes() == []


async def test_nothing_is_written_twice_while_the_watch_is_behind(cluster: Cluster):
    """Lesson 11."""
    await taint_pool(cluster, OURS)
    cluster.writes()
    for _ in range(3):
        assert await cluster.node_marks.reconcile(N1) is None
    assert cluster.writes() == [("PATCH", "/api/v1/nodes/n1")]
    await taint_pool(cluster)
    await stable(cluster)
    assert await taints(cluster) == []


async def test_a_label_that_somebody_took_away_comes_back(cluster: Cluster):
    await stable(cluster)
    cluster.allocation_state.index.changes.take()
    patch = {"metadata": {"labels": {f"{names.POOL_NODE_LABEL_PREFIX}whole": None}}}
    await cluster.client.merge_patch(NODES, patch, name="n1")
    await cluster.observe()
    assert N1 in cluster.allocation_state.index.changes.take().nodes
    assert await stable(cluster) == {"whole"}


async def test_a_node_that_was_deleted_meanwhile_is_no_failure_and_not_made_again(
    cluster: Cluster,
):
    await cluster.client.delete(NODES, "n1")
    await cluster.node_marks.reconcile(N1)
    with pytest.raises(NotFound):
        await cluster.labels_of("n1")


async def test_devices_on_a_node_that_is_not_known_write_nothing(cluster: Cluster):
    await cluster.add_device("n9-0")
    await cluster.observe()
    cluster.writes()
    await cluster.node_marks.reconcile(names.NodeName("n9"))
    assert cluster.writes() == []


@pytest.mark.parametrize(("code", "error"), [(409, Conflict), (500, ServerError)])
async def test_a_refused_write_is_made_again(cluster: Cluster, code: int, error: type[KubeError]):
    cluster.api.faults.fail("PATCH", "/nodes/n1$", code)
    if error is Conflict:
        assert await cluster.node_marks.reconcile(N1) is not None
    else:
        with pytest.raises(error):
            await cluster.node_marks.reconcile(N1)
    assert await stable(cluster) == {"whole"}


# --- taints ------------------------------------------------------------------------------------------

THEIRS = {"key": "example.com/theirs", "effect": "NoExecute", "value": "x"}
OURS = {"key": "example.com/gpu", "effect": "NoSchedule", "value": "whole"}


async def taints(cluster: Cluster) -> list[dict[str, Any]]:
    node = await cluster.client.get(NODES, dict[str, Any], "n1")
    found: list[dict[str, Any]] = node["spec"].get("taints", [])
    return found


async def marked(cluster: Cluster) -> str:
    node = await cluster.client.get(NODES, dict[str, Any], "n1")
    found: str = node["metadata"].get("annotations", {}).get(names.POOL_TAINTS_ANNOTATION, "")
    return found


async def taint_node(cluster: Cluster, *taints: dict[str, Any]) -> None:
    await cluster.client.merge_patch(NODES, {"spec": {"taints": list(taints)}}, name="n1")
    await cluster.observe()


async def taint_pool(cluster: Cluster, *taints: dict[str, Any], pool: str = "whole") -> None:
    spec = {"spec": {"scheduling": {"taints": list(taints)}}}
    await cluster.client.merge_patch(GPU_POOLS, spec, name=pool)
    await cluster.observe()


async def test_a_pool_without_taints_taints_nothing_and_its_pods_tolerate_nothing(
    cluster: Cluster,
):
    """Lesson 15: one default, asserted from both sides."""
    await stable(cluster)
    assert await taints(cluster) == []
    pool = cluster.catalog.pools[names.PoolName("whole")]
    assert pod_patch.missing_tolerations(PodSpec(), pool.taints) == []


async def test_nodes_carry_what_pods_of_the_pool_are_made_to_tolerate(cluster: Cluster):
    """Lesson 15: what is put on nodes is what admission tolerates, taint for taint."""
    await taint_pool(cluster, OURS, {"key": "example.com/b", "effect": "NoExecute"})
    await stable(cluster)
    pool = cluster.catalog.pools[names.PoolName("whole")]
    node = cluster.allocation_state.index.nodes.get(N1)
    assert node is not None
    tolerations = pod_patch.missing_tolerations(PodSpec(), pool.taints)
    assert len(node.taints) == len(tolerations) == 2
    for taint, toleration in zip(node.taints, tolerations, strict=True):
        assert Tolerations([toleration]).cover(taint)


async def test_taints_of_others_stay_with_all_that_they_say_and_in_their_order(cluster: Cluster):
    since = {"timeAdded": "2026-01-01T00:00:00Z"}
    other = {"key": "example.com/other", "effect": "PreferNoSchedule"}
    await taint_node(cluster, {**THEIRS, **since}, other)
    await taint_pool(cluster, OURS)
    await stable(cluster)
    assert await taints(cluster) == [{**THEIRS, **since}, other, OURS]
    assert await marked(cluster) == "example.com/gpu:NoSchedule"
    await taint_pool(cluster)
    await stable(cluster)
    assert await taints(cluster) == [{**THEIRS, **since}, other]
    assert await marked(cluster) == ""


@pytest.mark.parametrize("runs", [1, 3])
async def test_a_taint_of_somebody_else_changes_nothing_of_ours(cluster: Cluster, runs: int):
    """Lessons 4 and 11: cordon, NotReady and foreign taints are no reason to write."""
    await taint_pool(cluster, OURS)
    await stable(cluster)
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    await taint_node(cluster, OURS, THEIRS, cordon)
    cluster.writes()
    for _ in range(runs):
        await stable(cluster)
    assert cluster.writes() == []


async def test_a_taint_that_somebody_put_there_first_is_theirs(cluster: Cluster):
    await taint_node(cluster, {**OURS, "value": "admin"})
    await taint_pool(cluster, OURS)
    await stable(cluster)
    assert await taints(cluster) == [{**OURS, "value": "admin"}]
    await taint_pool(cluster)
    await stable(cluster)
    assert await taints(cluster) == [{**OURS, "value": "admin"}]


async def test_a_taint_of_ours_that_was_changed_or_taken_away_comes_back(cluster: Cluster):
    await taint_pool(cluster, OURS)
    await stable(cluster)
    await taint_node(cluster, {**OURS, "value": "other"})
    await stable(cluster)
    assert await taints(cluster) == [OURS]
    await taint_node(cluster)
    await stable(cluster)
    assert await taints(cluster) == [OURS]


async def test_taints_go_with_the_last_device_and_those_of_another_pool_stay(cluster: Cluster):
    """Lesson 8."""
    await cluster.add_pool("slices")
    await cluster.add_device("n1-2", pool="slices")
    shared = {"key": "example.com/shared", "effect": "NoSchedule"}
    await taint_pool(cluster, OURS, shared)
    await taint_pool(cluster, shared, pool="slices")
    await stable(cluster)
    assert len(await taints(cluster)) == 2
    for name in ("n1-0", "n1-1"):
        await cluster.client.delete(GPU_DEVICES, name)
    await cluster.observe()
    assert await stable(cluster) == {"slices"}
    assert await taints(cluster) == [shared]


async def test_a_list_that_changed_since_it_was_read_is_not_overwritten(cluster: Cluster):
    await taint_pool(cluster, OURS)
    await cluster.client.merge_patch(NODES, {"spec": {"taints": [THEIRS]}}, name="n1")
    assert await cluster.node_marks.reconcile(N1) is not None
    assert await taints(cluster) == [THEIRS]
    await cluster.observe()
    await stable(cluster)
    assert await taints(cluster) == [THEIRS, OURS]


async def test_a_heartbeat_is_no_reason_to_conflict(cluster: Cluster):
    await stable(cluster)
    heartbeat = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "beat"}]}}
    await cluster.client.merge_patch(NODES, heartbeat, name="n1", subresource="status")
    await taint_pool(cluster, OURS)
    assert await cluster.node_marks.reconcile(N1) is None
    assert await taints(cluster) == [OURS]


async def test_an_unsupported_pool_marks_nothing(cluster: Cluster):
    """Lesson 18: a pool that is unsupported or misconfigured touches no node."""
    await taint_pool(cluster, OURS)
    spec = {"spec": {"deviceSelector": {"include": {"pciVendors": ["1002"]}}}}
    await cluster.client.merge_patch(GPU_POOLS, spec, name="whole")
    await cluster.observe()
    cluster.writes()
    assert await stable(cluster) == set()
    assert cluster.writes() == []


async def test_a_pool_that_becomes_misconfigured_keeps_the_marks_of_its_running_pods(
    cluster: Cluster,
):
    await taint_pool(cluster, OURS)
    await stable(cluster)
    spec = {"spec": {"deviceSelector": {"include": {"pciVendors": ["1002"]}}}}
    await cluster.client.merge_patch(GPU_POOLS, spec, name="whole")
    await cluster.observe()
    assert await stable(cluster) == {"whole"}
    assert await taints(cluster) == [OURS]
