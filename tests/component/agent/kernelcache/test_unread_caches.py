"""A GKMCache that an older agent cannot read keeps its content, its name, and the object of its node."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.kernelcache.content.store_layout import content_directory
from kube.resources import GKM_CACHES, PODS
from manifests.caches.crds import build_cache_crds
from tests.component.agent.kernelcache.cache_node import (
    LLAMA,
    TEAM,
    CacheNode,
    a_cache_node,
    an_image,
)
from tests.support.next_version import NEXT, allow_next_version
from tests.support.polling import until_async

FINALIZER = f"gkm.io.{LLAMA.name}/finalizer"
IDENTITY = {"subject": "a@b.c", "issuer": "https://i.example"}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[CacheNode]:
    async with a_cache_node(tmp_path) as opened:
        yield opened


async def has_finalizer(node: CacheNode) -> bool:
    current = await node.object()
    return current is not None and FINALIZER in (current.metadata.finalizers or ())


async def test_content_and_finalizer_of_a_cache_that_cannot_be_read_stay(node: CacheNode):
    node.settings = {"caches_grace": 0.1}
    digest = an_image(node.registry)
    content = content_directory(node.folder / "caches", digest)
    async with node.running():
        await node.add_cache(digest)
        uid = await node.add_pod("worker")
        await node.mounted(uid)
        await until_async(lambda: has_finalizer(node))
        await node.client.delete(PODS, "worker", namespace=TEAM, grace_period_s=0)
        node.unpublish(uid)
    verification = ("spec", "verification", "mode")
    await allow_next_version(node.client, build_cache_crds(), "GKMCache", *verification)
    changed = {"spec": {"verification": {"mode": NEXT, "identities": [IDENTITY]}}}
    await node.client.merge_patch(GKM_CACHES, changed, name=LLAMA.name, namespace=TEAM)
    async with node.running():
        await asyncio.sleep(1.0)
        assert content.is_dir()
        store = node.role.reconciler.store.current
        assert store is not None
        assert store.names == {LLAMA: digest}
        assert await has_finalizer(node)
