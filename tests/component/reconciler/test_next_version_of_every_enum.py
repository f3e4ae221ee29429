"""For each enum of each kind, made from the definitions: a value of the next version, and a new leader writes nothing."""

from typing import Any

import pytest

from api.meta import PartialObjectMetadata
from api.names import NodeName
from kube.client import KubeClient
from kube.resources import (
    CLUSTER_GKM_CACHES,
    CLUSTER_POLICIES,
    GKM_CACHES,
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    GPU_POOLS,
    NVIDIA_DRIVERS,
    Resource,
)
from manifests.caches.crds import build_cache_crds
from manifests.install.crds import build_crds
from manifests.nvidia.operator_crds import build_operator_crds
from tests.component.reconciler.assignment_run import AssignmentRun
from tests.component.reconciler.cache_world import LLAMA, SHARED, a_cache_world
from tests.component.reconciler.cluster import Cluster, a_cluster
from tests.component.reconciler.inventory_run import an_inventory_run
from tests.component.reconciler.operator_world import an_operator_world
from tests.support.kernel_caches import D1
from tests.support.next_version import (
    READ_AS_TEXT,
    allow_next_version,
    body_of,
    enums_of,
    schema_of,
)
from tests.support.node_features import gfd_labels, gpu_feature

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
        if path not in REFUSED and (resource.kind, path) not in READ_AS_TEXT
    ]


async def make_unreadable(
    client: KubeClient, crds: list[Json], resource: Resource, path: tuple[str, ...], *, name: str
) -> None:
    await allow_next_version(client, crds, resource.kind, *path)
    subresource = "status" if path[0] == "status" else None
    await client.merge_patch(resource, body_of(path), name=name, subresource=subresource)


async def versions(client: KubeClient, *resources: Resource) -> dict[tuple[str, str], str | None]:
    """Return the version of each object, which every write changes."""
    return {
        (resource.plural, found.metadata.name): found.metadata.resource_version
        for resource in resources
        for found in (await client.list_(resource, PartialObjectMetadata)).items
    }


@pytest.mark.parametrize(("resource", "path"), cases(build_crds(), GPU_POOLS))
async def test_pool(resource: Resource, path: tuple[str, ...]):
    async with a_cluster() as cluster:
        for name in ("n1-0", "n1-1"):
            await cluster.client.delete(GPU_DEVICES, name)
        run = AssignmentRun(cluster)
        await run.change_pool("whole", assignment={"requireAnnotation": False})
        await run.device("n1-0")
        await run.inventory()
        await run.until_stable()
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


@pytest.mark.parametrize(
    ("resource", "path"), cases(build_crds(), GPU_DEVICES, GPU_NODE_INVENTORIES)
)
async def test_inventory(resource: Resource, path: tuple[str, ...]):
    async with an_inventory_run() as run:
        await run.add_node()
        await run.label_all({**gfd_labels()})
        await run.publish(gpu_feature("n1"))
        await run.until_stable()
        name = min(await run.gpus()) if resource is GPU_DEVICES else "n1"
        await make_unreadable(run.client, build_crds(), resource, path, name=name)
        before = await versions(run.client, GPU_DEVICES, GPU_NODE_INVENTORIES)
        run.restart()
        for _ in range(3):
            await run.observe()
            await run.controller.reconcile(NodeName("n1"))
        assert await versions(run.client, GPU_DEVICES, GPU_NODE_INVENTORIES) == before


@pytest.mark.parametrize(
    ("resource", "path"), cases(build_cache_crds(), GKM_CACHES, CLUSTER_GKM_CACHES)
)
async def test_kernel_cache(resource: Resource, path: tuple[str, ...]):
    name = LLAMA if resource is GKM_CACHES else SHARED
    async with a_cache_world() as world:
        await world.add_node("n1")
        identity = {"subject": "a@b.c", "issuer": "https://i.example"}
        await world.add_cache(name, digest=D1, verification={"identities": [identity]})
        await world.until_stable()
        await allow_next_version(world.admin, build_cache_crds(), resource.kind, *path)
        await world.patch(name, body_of(path))
        before = await versions(world.admin, resource)
        await world.change_leader()
        await world.until_stable()
        assert await versions(world.admin, resource) == before


def test_no_kind_with_enums_is_left_out():
    crds = (*build_crds(), *build_operator_crds(), *build_cache_crds())
    tried = (
        GPU_POOLS,
        CLUSTER_POLICIES,
        NVIDIA_DRIVERS,
        GPU_DEVICES,
        GPU_NODE_INVENTORIES,
        GKM_CACHES,
        CLUSTER_GKM_CACHES,
    )
    assert {crd["spec"]["names"]["kind"] for crd in crds if any(enums_of(schema_of(crd)))} == {
        resource.kind for resource in tried
    }
