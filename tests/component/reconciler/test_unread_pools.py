"""A GPUPool that this version cannot read: its devices, plugins, nodes, requests and gates stay, and no other pool takes its place."""

import pytest

from api.foreign.core import Node
from api.names import AGENT_NOT_READY_TAINT, NodeName, PodUid, PoolName, UnitId
from kube.resources import GPU_DEVICES, GPU_POOLS, NODES
from manifests.install.crds import build_crds
from pool.allocation_state import AllocationState
from tests.component.reconciler.assignment_run import AssignmentRun
from tests.component.reconciler.cluster import Cluster, a_cluster
from tests.component.reconciler.handover_run import a_scaling_run as a_handover_run
from tests.component.reconciler.handover_run import make_pool_unreadable
from tests.component.reconciler.scaling_run import POOL, a_scaling_run
from tests.component.reconciler.workloads import Workloads, a_cluster_with_workloads
from tests.support.builders import a_pool
from tests.support.next_version import NEXT, allow_next_version

pytestmark = pytest.mark.looptime


async def make_unreadable(cluster: Cluster, name: str = "whole") -> None:
    await allow_next_version(
        cluster.client, build_crds(), "GPUPool", "spec", "scheduling", "strategy"
    )
    await cluster.client.merge_patch(
        GPU_POOLS, {"spec": {"scheduling": {"strategy": NEXT}}}, name=name
    )


async def an_assignment(cluster: Cluster) -> AssignmentRun:
    """Return a leader of a pool that takes devices without an annotation, and has both of the node."""
    for name in ("n1-0", "n1-1"):
        await cluster.client.delete(GPU_DEVICES, name)
    run = AssignmentRun(cluster)
    await run.change_pool("whole", assignment={"requireAnnotation": False})
    await run.device("n1-0")
    await run.device("n1-1")
    await run.inventory()
    await run.until_stable()
    assert set((await run.owners()).values()) == {"whole"}
    return run


async def test_devices_stay_in_their_pool_and_go_to_no_younger_one():
    async with a_cluster() as cluster:
        run = await an_assignment(cluster)
        await cluster.add_pool("younger", assignment={"requireAnnotation": False})
        await run.until_stable()
        await make_unreadable(cluster)
        leader = AssignmentRun(cluster, replica=True)
        written = [await leader.step() for _ in range(4)]
        assert await leader.owners() == {"n1-0": "whole", "n1-1": "whole"}
        # That no other pool contests the devices any more is written into the younger pool's own status.
        assert {path.split("/")[4] for step in written for _, path in step} <= {"gpupools"}


async def test_a_device_in_use_is_not_drained():
    async with a_cluster() as cluster:
        await an_assignment(cluster)
        await make_unreadable(cluster)
        leader = AssignmentRun(cluster, replica=True)
        await leader.observe()
        leader.cluster.allocation_state.index.set_observed(PodUid("p"), (UnitId("GPU-n1-0"),))
        assert [await leader.step() for _ in range(3)] == [[], [], []]


async def test_devices_leave_a_pool_that_could_not_be_read_once_it_is_deleted():
    async with a_cluster() as cluster:
        await an_assignment(cluster)
        await make_unreadable(cluster)
        leader = AssignmentRun(cluster, replica=True)
        await leader.step()
        await cluster.client.merge_patch(
            GPU_POOLS, {"metadata": {"finalizers": None}}, name="whole"
        )
        await cluster.client.delete(GPU_POOLS, "whole")
        await leader.until_stable()
        assert set((await leader.owners()).values()) == {None}


async def test_nodes_keep_taints_and_labels():
    async with a_cluster() as cluster:
        taint = {"key": "gpu", "value": "only", "effect": "NoSchedule"}
        await cluster.client.merge_patch(
            GPU_POOLS, {"spec": {"scheduling": {"taints": [taint]}}}, name="whole"
        )
        await cluster.observe()
        await cluster.node_marks.reconcile(NodeName("n1"))
        labels = await cluster.labels_of()
        await make_unreadable(cluster)
        leader = Cluster(cluster.api, cluster.client)
        await leader.observe()
        await leader.node_marks.reconcile(NodeName("n1"))
        node = await cluster.client.get(NODES, Node, "n1")
        assert [found.key for found in node.spec.taints or ()] == ["gpu"]
        assert await leader.labels_of() == labels


async def test_plugin_and_list_of_a_pool_stay():
    async with a_cluster_with_workloads() as before:
        await before.until_stable()
        plugin = await before.plugin()
        await make_unreadable(before.cluster)
        leader = Workloads(Cluster(before.cluster.api, before.cluster.client))
        assert await leader.until_stable() == []
        assert await before.plugin() == plugin


async def test_what_a_pool_asked_for_is_not_withdrawn():
    async with a_scaling_run() as run:
        await run.add_pods("a")
        await run.run_pass()
        asked = await run.ids()
        assert asked
        await allow_next_version(
            run.admin, build_crds(), "GPUPool", "spec", "scheduling", "strategy"
        )
        await run.admin.merge_patch(
            GPU_POOLS, {"spec": {"scheduling": {"strategy": NEXT}}}, name=POOL
        )
        run.start()
        run.writes()
        await run.run_pass()
        assert (await run.ids(), run.writes()) == (asked, [])


async def test_pods_keep_their_gates():
    async with a_handover_run("p") as run:
        gates = await run.gates()
        assert gates["p"]
        make_pool_unreadable(run)
        await run.process.give()
        assert await run.gates() == gates


async def test_a_node_that_came_for_a_pool_keeps_its_startup_taint():
    async with a_handover_run() as run:
        make_pool_unreadable(run)
        await run.process.hand_over()
        assert await run.taints() == [AGENT_NOT_READY_TAINT]


def test_no_other_pool_serves_the_resource_of_one_that_cannot_be_read():
    index = AllocationState().index
    younger = a_pool("younger", resource="gpu.deckhouse.io/a")
    index.replace_pool(younger)
    assert index.pool_of("gpu.deckhouse.io/a") == younger
    index.replace_unread_pools({PoolName("elder"): "gpu.deckhouse.io/a"})
    assert index.pool_of("gpu.deckhouse.io/a") is None
    index.replace_unread_pools({})
    assert index.pool_of("gpu.deckhouse.io/a") == younger
