"""Units held for pods that never appear keep no pod that exists from running.

Two ways to reserve units that no pod will use: to create pods that a quota refuses after our webhook has
seen them, and to post AdmissionReviews of pods that nobody creates. Either goes on, eight or fifty times
a second, while honest pods fill the pool again and again. How long they waited is printed, beside the
same without it: `pytest -s` shows it.
"""

import asyncio
import contextlib
import itertools
import secrets
import time
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.system.objects import a_pod, capacity, check_devices
from tests.support.reviews import a_pod_object, a_review

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from tests.cluster.system.objects import Pool

ROUNDS = 4
HONEST = 2
"""Pods of a round, which together take the whole pool."""


@pytest.fixture
async def poor(api: client.ApiClient) -> "AsyncIterator[str]":
    """A namespace whose quota allows no pod at all."""
    name = f"poor-{secrets.token_hex(3)}"
    await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    hard = {"pods": "0"}
    path = f"/api/v1/namespaces/{name}/resourcequotas"
    await api.create(path, {"metadata": {"name": "none"}, "spec": {"hard": hard}})

    async def is_counted() -> bool:
        return bool((await api.get(f"{path}/none")).get("status", {}).get("hard") == hard)

    await polling.eventually(is_counted, what="quota counted by its controller")
    yield name
    await api.delete(f"/api/v1/namespaces/{name}")


def refused_creations(
    api: client.ApiClient, namespace: str, pool: "Pool"
) -> "Iterator[Awaitable[None]]":
    async def create(number: int) -> None:
        with pytest.raises(client.ApiRefusedError, match="exceeded quota"):
            await api.create(pods.collection(namespace), a_pod(f"refused-{number}", pool))

    return (create(number) for number in itertools.count())


def forged_reviews(
    session: aiohttp.ClientSession, url: str, pool: "Pool"
) -> "Iterator[Awaitable[None]]":
    async def post(number: int) -> None:
        pod = a_pod_object(pool=pool.name, name=f"forged-{number}")
        namespace = f"made-up-{number % 97}"
        pod["metadata"]["namespace"] = namespace
        body = a_review(pod, namespace=namespace)
        headers = {"Content-Type": "application/json"}
        async with session.post(f"{url}/mutate/pods", data=body, headers=headers) as answer:
            assert answer.status == 200
            assert (await answer.json())["response"]["allowed"]

    return (post(number) for number in itertools.count())


@contextlib.asynccontextmanager
async def going_on(
    attempts: "Iterator[Awaitable[None]]", per_s: int, done: list[int]
) -> "AsyncIterator[None]":
    """Make one attempt after the other at this rate until the block ends; `done` counts them."""

    async def attack(group: asyncio.TaskGroup) -> None:
        async def attempt(one: "Awaitable[None]") -> None:
            await one
            done[0] += 1

        for item in attempts:
            group.create_task(attempt(item))
            await asyncio.sleep(1 / per_s)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(attack(group))
        yield
        task.cancel()


async def waits_of_honest_pods(api, namespace, pool, figures, seen: list[int]) -> list[float]:
    """Fill the pool with pods and empty it, again and again; return how long each waited to be bound."""
    waits: list[float] = []
    for turn in range(ROUNDS):
        began = time.monotonic()
        names = [f"honest-{turn}-{number}-{secrets.token_hex(2)}" for number in range(HONEST)]
        for name in names:
            await api.create(pods.collection(namespace), a_pod(name, pool, 8 // HONEST))
        bound = []
        for name in names:
            bound.append(await pods.wait_for_pod(api, namespace, name))
            waits.append(time.monotonic() - began)
        assert len(check_devices(bound)) == 8
        await figures(pool, used=8)
        for name in names:
            await api.delete(f"{pods.collection(namespace)}/{name}", gracePeriodSeconds="0")
        await figures(pool, used=0)
        seen.append(capacity(await api.get(pool.path))["available"])
    return waits


@pytest.mark.parametrize("per_s", [8, 50])
@pytest.mark.parametrize("way", ["refused creations", "forged reviews"])
async def test_honest_pods_run_while_units_are_reserved_for_pods_that_never_appear(
    way: str,
    per_s: int,
    make_pool,
    system,
    api,
    namespace,
    poor,
    figures,
    record_property: "Callable[[str, object], None]",
):
    pool = await make_pool(devices=8)
    before = await waits_of_honest_pods(api, namespace, pool, figures, [])
    available: list[int] = []
    done = [0]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        attempts = (
            refused_creations(api, poor, pool)
            if way == "refused creations"
            else forged_reviews(session, system.url, pool)
        )
        async with going_on(attempts, per_s, done):
            await polling.eventually(lambda: _grown(done), what=f"{way} under way")
            under = await waits_of_honest_pods(api, namespace, pool, figures, available)

    # What the pool's status says is what a pod gets, and not what is held for nobody.
    assert available == [8] * ROUNDS
    worst = {"alone": max(before), "beside": max(under)}
    record_property("worst wait in s", worst)
    print(f"\n{way}, {per_s}/s, {done[0]} of them: worst wait {worst['alone']:.2f} s without,"
          f" {worst['beside']:.2f} s with")  # fmt: skip


async def _grown(done: list[int]) -> bool:
    return done[0] > 8
