"""The load: pods created by many clients at once, and the moment at which each was bound."""

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from tests.cluster.environment import client, pods

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

NAMESPACE = "bench"
CLIENTS = 32
_BOUND_WITHIN_S = 180
_STABLE_S = 2
_BOUND = {"fieldSelector": "spec.nodeName!="}


@dataclass(frozen=True, kw_only=True)
class Burst:
    """So many pods at once, and how long they took."""

    bound_after_s: "Sequence[float]"
    """From the start of a pod's creation to the moment at which a watch showed it bound; sorted."""
    seconds: float
    """From the first creation, or the first binding of a drain, to the last binding."""


@final
class Load:
    """So many pods of one unit, none of which exists yet."""

    def __init__(
        self, api: client.ApiClient, count: int, *, prefix: str, resource: str, scheduler: str
    ) -> None:
        self._api = api
        self._names = [f"{prefix}-{number}" for number in range(count)]
        self._limits = {resource: 1, "cpu": 1}
        self._scheduler = scheduler
        self._created: dict[str, float] = {}
        self._bound: dict[str, float] = {}
        # name -> when, by time.perf_counter

    async def burst(self) -> Burst:
        """Create all pods; return when a watch has delivered all of them bound."""
        async with self._seeing_them_bound(), asyncio.TaskGroup() as group:
            group.create_task(self.create())
        return self._outcome(start=min(self._created.values()))

    async def create(self) -> None:
        """Create all pods by many clients at once."""
        left = iter(self._names)

        async def create() -> None:
            for name in left:
                self._created[name] = time.perf_counter()
                pod = pods.a_pod(name, limits=self._limits, scheduler=self._scheduler)
                await self._api.create(pods.collection(NAMESPACE), pod)

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(create())

    async def drain(self, start: "Callable[[], Awaitable[None]]") -> Burst:
        """Start the scheduler for pods that wait; return when all are bound.

        Its own start does not count: the time runs from the first binding.
        """
        async with self._seeing_them_bound():
            await start()
        return self._outcome(start=min(self._bound.values()))

    @contextlib.asynccontextmanager
    async def _seeing_them_bound(self) -> "AsyncIterator[None]":
        """Watch from before the body until all pods are bound."""
        watching = asyncio.Event()
        try:
            async with asyncio.timeout(_BOUND_WITHIN_S), asyncio.TaskGroup() as group:
                group.create_task(self._watch(watching))
                await watching.wait()
                yield
        except TimeoutError:
            raise AssertionError(
                f"{len(self._bound)} of {len(self._names)} pods were bound"
                f" within {_BOUND_WITHIN_S} s"
            ) from None

    async def _watch(self, watching: asyncio.Event) -> None:
        path = pods.collection(NAMESPACE)
        # The API server ends the watch of a client that falls behind: list and watch again.
        while len(self._bound) < len(self._names):
            listing = await self._api.get(path, **_BOUND)
            self._note(pod["metadata"]["name"] for pod in listing["items"])
            version = listing["metadata"]["resourceVersion"]
            watching.set()
            async for event in self._api.watch(path, resourceVersion=version, **_BOUND):
                if event["type"] == "ADDED":
                    self._note([event["object"]["metadata"]["name"]])
                if len(self._bound) == len(self._names):
                    return

    def _note(self, names: "Iterable[str]") -> None:
        now = time.perf_counter()
        for name in names:
            self._bound.setdefault(name, now)

    def _outcome(self, *, start: float) -> Burst:
        return Burst(
            bound_after_s=sorted(self._bound[name] - self._created[name] for name in self._names),
            seconds=max(self._bound.values()) - start,
        )


async def wait_for_nominations(api: client.ApiClient) -> None:
    """Return when no further pod is nominated to a node."""

    async def nominated() -> int:
        return sum("nominatedNodeName" in pod["status"] for pod in await all_pods(api))

    before = -1
    while (now := await nominated()) != before:
        before = now
        await asyncio.sleep(_STABLE_S)


async def delete_all(api: client.ApiClient) -> None:
    """Delete every pod of the namespace at once: there is no kubelet to wait for."""
    path = pods.collection(NAMESPACE)
    names = iter([pod["metadata"]["name"] for pod in (await api.get(path))["items"]])

    async def delete() -> None:
        for name in names:
            await api.delete(f"{path}/{name}", options={"gracePeriodSeconds": 0})

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(delete())


async def all_pods(api: client.ApiClient) -> list[dict[str, Any]]:
    """Return the pods of the namespace as the API server has them now."""
    items: list[dict[str, Any]] = (await api.get(pods.collection(NAMESPACE)))["items"]
    return items
