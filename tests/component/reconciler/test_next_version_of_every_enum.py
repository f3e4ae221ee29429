"""For each enum of each kind, made from the definitions: a value of the next version, and a new leader writes nothing."""

from typing import Any

import pytest

from api.names import NodeName
from kube.resources import CLUSTER_POLICIES, GPU_DEVICES, GPU_POOLS, NVIDIA_DRIVERS, Resource
from manifests.install.crds import build_crds
from manifests.nvidia.operator_crds import build_operator_crds
from tests.component.reconciler.assignment_run import AssignmentRun
from tests.component.reconciler.cluster import Cluster, a_cluster
from tests.component.reconciler.operator_world import an_operator_world
from tests.support.next_version import allow_next_version, body_of, enums_of, schema_of

pytestmark = pytest.mark.looptime

Json = dict[str, Any]


REFUSED = (
    ("spec", "allocation", "slicePlacement"),
    ("spec", "autoscaling", "backend"),
    ("spec", "driverType"),
)
"""Fields that a rule of their definition lets change only together with others, or never."""


def cases(crds: list[Json], *resources: Resource) -> list[Any]:
    by_kind = {crd["spec"]["names"]["kind"]: crd for crd in crds}
    return [
        pytest.param(resource, path, id=f"{resource.kind}-{'.'.join(path)}")
        for resource in resources
        for path in enums_of(schema_of(by_kind[resource.kind]))
        if path[0] == "spec" and path not in REFUSED
    ]


async def make_unreadable(
    client: Any, crds: list[Json], resource: Resource, path: tuple[str, ...], *, name: str
) -> None:
    await allow_next_version(client, crds, resource.kind, *path)
    await client.merge_patch(resource, body_of(path), name=name)


@pytest.mark.parametrize(("resource", "path"), cases(build_crds(), GPU_POOLS))
async def test_pool(resource: Resource, path: tuple[str, ...]):
    async with a_cluster() as cluster:
        for name in ("n1-0", "n1-1"):
            await cluster.client.delete(GPU_DEVICES, name)
        run = AssignmentRun(cluster)
        await run.change_pool("whole", assignment={"requireAnnotation": False})
        await run.device("n1-0")
        await run.inventory()
        await run.settle()
        await cluster.node_marks.reconcile(NodeName("n1"))
        await make_unreadable(cluster.client, build_crds(), resource, path, name="whole")
        leader = AssignmentRun(Cluster(cluster.api, cluster.client))
        assert await leader.step() == []
        await leader.cluster.node_marks.reconcile(NodeName("n1"))
        await leader.cluster.reconcile_device()
        assert leader.cluster.writes() == []


@pytest.mark.parametrize(
    ("resource", "path"), cases(build_operator_crds(), CLUSTER_POLICIES, NVIDIA_DRIVERS)
)
async def test_node_software(resource: Resource, path: tuple[str, ...]):
    async with an_operator_world(()) as world:
        await world.add_node("u1", owner="blue", pool="blue")
        await world.add_policy(driver={"useNvidiaDriverCRD": True})
        await world.add_driver("blue", nodeSelector={"pool": "blue"})
        await world.ready()
        name = "gpus" if resource is CLUSTER_POLICIES else "blue"
        await make_unreadable(world.client, build_operator_crds(), resource, path, name=name)
        world.begin_term()
        world.writes()
        await world.step()
        assert world.writes() == []
