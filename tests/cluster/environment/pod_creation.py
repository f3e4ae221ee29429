"""A steady stream of pod creations, of which every refusal is kept: what users do during a change."""

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.cluster.environment import client, pods

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@dataclass
class PodCreations:
    """The creations so far."""

    created: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    slowest_s: float = 0.0

    def check(self, *, at_least: int) -> None:
        """Fail if a creation failed, or if there were too few to mean anything."""
        assert self.failures == [], self.failures[:3]
        assert len(self.created) >= at_least


@asynccontextmanager
async def creating_pods(
    api: client.ApiClient,
    namespace: str,
    build: "Callable[[str], client.JsonObject]",
    *,
    per_second: float = 5.0,
) -> "AsyncIterator[PodCreations]":
    """Create `build(name)` so many times a second while the context is open.

    A creation that is slow delays no other: each has a task of its own, and all have been answered
    when the context ends.
    """
    found = PodCreations()
    is_over = asyncio.Event()

    async def create(number: int) -> None:
        pod = build(f"load-{number}")
        began = time.monotonic()
        try:
            await api.create(pods.collection(namespace), pod)
        except client.ApiRefusedError as refused:
            found.failures.append(f"{pod['metadata']['name']}: {refused}")
        else:
            found.created.append(pod["metadata"]["name"])
        found.slowest_s = max(found.slowest_s, time.monotonic() - began)

    async def create_all(group: asyncio.TaskGroup) -> None:
        number = 0
        while not is_over.is_set():
            group.create_task(create(number))
            number += 1
            await asyncio.sleep(1 / per_second)

    async with asyncio.TaskGroup() as group:
        group.create_task(create_all(group))
        try:
            yield found
        finally:
            is_over.set()
