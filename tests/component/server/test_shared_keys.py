"""Keys of the annotations of caches: made once, followed when an operator rotates them, written again when deleted."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from kernelcache.signatures.mutation import MutationKeys
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import SECRETS
from manifests import constants
from server.kernelcache.mutation_key_secret import MutationKeySecret
from server.signing.shared_keys import CHECK_INTERVAL_S
from tests.support.loop_clock import LoopClock
from tests.support.polling import until
from tests.support.running_server import ADMIN_TOKEN, Cluster

NAMESPACE = constants.DEFAULT_NAMESPACE
SECRET = constants.CACHE_KEY_SECRET

pytestmark = pytest.mark.looptime


class Stored(msgspec.Struct):
    data: dict[str, bytes] = {}


async def stored(cluster: Cluster) -> dict[str, bytes]:
    return (await cluster.client.get(SECRETS, Stored, SECRET, namespace=NAMESPACE)).data


async def patch(cluster: Cluster, **keys: bytes | None) -> None:
    data = {
        name: None if key is None else base64.b64encode(key).decode() for name, key in keys.items()
    }
    await cluster.client.merge_patch(SECRETS, {"data": data}, name=SECRET, namespace=NAMESPACE)


@asynccontextmanager
async def replicas(cluster: Cluster, count: int) -> AsyncIterator[list[MutationKeySecret]]:
    configuration = StaticConnection(cluster.api.url, token=ADMIN_TOKEN)
    async with KubeClient(configuration, LoopClock()) as client:
        made = [MutationKeySecret(client, NAMESPACE) for _ in range(count)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(item.run()) for item in made]
            await until(lambda: all(item.is_loaded() for item in made))
            yield made
            for task in tasks:
                task.cancel()


async def test_replicas_that_start_together_have_one_key(cluster: Cluster) -> None:
    async with replicas(cluster, 3) as made:
        keys = [item.keys() for item in made]
        assert keys == [keys[0]] * 3
        assert keys[0] == MutationKeys(current=(await stored(cluster))["current"], previous=None)


async def test_a_rotation_leaves_no_replica_without_the_key_of_another(cluster: Cluster) -> None:
    """The documented order: the new key verifies everywhere before it signs anywhere."""
    new = b"n" * 32
    async with replicas(cluster, 2) as made:
        old = (await stored(cluster))["current"]
        await patch(cluster, previous=new)
        await asyncio.sleep(2 * CHECK_INTERVAL_S)
        assert [item.keys() for item in made] == [MutationKeys(current=old, previous=new)] * 2
        await patch(cluster, current=new, previous=old)
        await asyncio.sleep(2 * CHECK_INTERVAL_S)
        assert [item.keys() for item in made] == [MutationKeys(current=new, previous=old)] * 2
        await patch(cluster, previous=None)
        await asyncio.sleep(2 * CHECK_INTERVAL_S)
        assert [item.keys() for item in made] == [MutationKeys(current=new, previous=None)] * 2


async def test_a_deleted_secret_is_written_again_with_both_keys(cluster: Cluster) -> None:
    async with replicas(cluster, 1):
        await patch(cluster, previous=b"p" * 32)
        await asyncio.sleep(2 * CHECK_INTERVAL_S)
        before = await stored(cluster)
        await cluster.client.delete(SECRETS, SECRET, namespace=NAMESPACE)
        await asyncio.sleep(2 * CHECK_INTERVAL_S)
        assert await stored(cluster) == before


@pytest.mark.parametrize("key", [b"", b"short"])
async def test_a_key_that_is_too_short_changes_nothing(cluster: Cluster, key: bytes) -> None:
    async with replicas(cluster, 1) as (one,):
        before = one.keys()
        await patch(cluster, current=key, previous=key)
        await asyncio.sleep(2 * CHECK_INTERVAL_S)
        assert one.keys() == before
