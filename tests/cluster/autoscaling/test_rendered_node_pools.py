"""The unmodified Karpenter accepts what `render nodepool` prints, and finds nothing wrong with it."""

import contextlib
import secrets
from typing import TYPE_CHECKING

import msgspec
import pytest

from api.kinds.gpupool import GPUPool
from api.well_known_labels import INSTANCE_TYPE_LABEL
from manifests.scaling.node_pool import NodeClassRef, build_node_pools
from simulator.karpenter.instance_types import INSTANCE_TYPES
from tests.cluster.environment import client, karpenter, polling
from tests.support.examples import load_example

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.cluster.environment.client import JsonObject

    Apply = Callable[..., Awaitable[str]]

NAMES = [item.name for item in INSTANCE_TYPES[:2]]


def a_pool() -> GPUPool:
    """Return the example's pool with another name, on Karpenter's own kwok provider."""
    (pool,) = load_example("pool-autoscaling")
    pool["metadata"]["name"] = f"r{secrets.token_hex(3)}"
    for shape in pool["spec"]["autoscaling"]["shapes"]:
        shape["requirements"] = [
            {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": NAMES, "minValues": 2},
            {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Gte", "values": ["1"]},
            {"key": "karpenter.kwok.sh/instance-memory", "operator": "Lte", "values": ["999999"]},
        ]
    return msgspec.convert(pool, GPUPool)


@pytest.fixture
async def apply(
    karpenter_process: karpenter.Karpenter, api: client.ApiClient
) -> "AsyncIterator[Apply]":
    """Create an object, wait until Karpenter says that it is ready, and delete it in the end."""
    assert karpenter_process.process.running
    made: list[str] = []

    async def create(collection: str, document: "JsonObject") -> str:
        await api.create(collection, document)
        path = f"{collection}/{document['metadata']['name']}"
        made.append(path)
        return path

    yield create
    for path in reversed(made):
        with contextlib.suppress(client.ApiRefusedError):
            await api.delete(path)


async def is_ready(api: client.ApiClient, path: str) -> None:
    async def ready() -> bool:
        conditions = await api.conditions(path)
        assert conditions.get("Ready", {}).get("status") == "True", f"{path}: {conditions}"
        return True

    await polling.eventually(ready, what=f"{path} ready")


async def test_a_rendered_node_pool_is_ready(apply: "Apply", api: client.ApiClient):
    pool = a_pool()
    await apply(karpenter.NODE_CLASSES, karpenter.a_node_class(pool.name))
    node_class = NodeClassRef(**karpenter.NODE_CLASS_KIND, name=pool.name)
    (node_pool,) = build_node_pools(pool, node_class)
    path = await apply(karpenter.NODE_POOLS, node_pool)
    await is_ready(api, path)
