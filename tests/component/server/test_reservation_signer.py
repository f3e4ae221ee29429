"""The reservation key: created once, the same in every replica, recreated where it was deleted."""

import asyncio
import base64
import hmac
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest
from structlog.testing import capture_logs

from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import SECRETS
from manifests import constants
from server.reservations.signer import ReservationSigner
from tests.support.loop_clock import LoopClock
from tests.support.polling import until
from tests.support.running_server import ADMIN_TOKEN, Cluster

NAMESPACE = constants.DEFAULT_NAMESPACE


class Stored(msgspec.Struct):
    data: dict[str, bytes] = {}


async def stored_key(cluster: Cluster) -> bytes:
    secret = await cluster.client.get(
        SECRETS, Stored, constants.RESERVATION_KEY_SECRET, namespace=NAMESPACE
    )
    return secret.data["key"]


@asynccontextmanager
async def signers(cluster: Cluster, count: int) -> AsyncIterator[list[ReservationSigner]]:
    """Run the signers of that many replicas, all loaded."""
    configuration = StaticConnection(cluster.api.url, token=ADMIN_TOKEN)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(KubeClient(configuration, LoopClock()))
        made = [ReservationSigner(client, NAMESPACE) for _ in range(count)]
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [group.create_task(signer.run()) for signer in made]
        await until(lambda: all(signer.is_loaded() for signer in made))
        yield made
        for task in tasks:
            task.cancel()


async def test_replicas_that_start_together_have_one_key(cluster: Cluster) -> None:
    async with signers(cluster, 5) as made:
        assert len({signer(b"content") for signer in made}) == 1
    assert len(await stored_key(cluster)) == 32


async def test_signature_depends_on_content_and_key_and_is_short(cluster: Cluster) -> None:
    async with signers(cluster, 1) as (signer,):
        before = signer(b"content")
        assert len(before) == 22
        assert signer(b"Content") != before
    await cluster.client.delete(SECRETS, constants.RESERVATION_KEY_SECRET, namespace=NAMESPACE)
    async with signers(cluster, 1) as (signer,):
        assert signer(b"content") != before


@pytest.mark.parametrize("key", [b"k", b"k" * 32, b"k" * 100])
async def test_a_signature_is_the_begin_of_an_hmac_with_the_key_of_the_secret(
    cluster: Cluster, key: bytes
) -> None:
    metadata = {"namespace": NAMESPACE, "name": constants.RESERVATION_KEY_SECRET}
    data = {"key": base64.b64encode(key).decode()}
    await cluster.client.create(
        SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    )
    expected = base64.urlsafe_b64encode(hmac.digest(key, b"content", "sha256")[:16]).decode()
    async with signers(cluster, 1) as (signer,):
        assert [signer(b"content"), signer(b"content")] == 2 * [expected.rstrip("=")]


async def test_nothing_is_signed_before_the_key_is_loaded(cluster: Cluster) -> None:
    configuration = StaticConnection(cluster.api.url, token=ADMIN_TOKEN)
    async with KubeClient(configuration, LoopClock()) as client:
        with pytest.raises(RuntimeError, match="not loaded"):
            ReservationSigner(client, NAMESPACE)(b"content")


async def test_secret_without_a_key_is_logged_and_left_alone(cluster: Cluster) -> None:
    metadata = {"namespace": NAMESPACE, "name": constants.RESERVATION_KEY_SECRET}
    await cluster.client.create(
        SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    )
    configuration = StaticConnection(cluster.api.url, token=ADMIN_TOKEN)
    async with KubeClient(configuration, LoopClock()) as client:
        signer = ReservationSigner(client, NAMESPACE)
        with capture_logs() as logs:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(signer.run())
                await until(lambda: any("Secret without a key" in log["event"] for log in logs))
                task.cancel()
        assert not signer.is_loaded()
