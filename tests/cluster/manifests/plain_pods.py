"""Pods that are nothing of ours, bound in both ways again and again while something is done to the cluster."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, final

from tests.cluster.environment import client, polling
from tests.cluster.manifests.objects import a_pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROUNDS = 3


@final
class PlainPods:
    """Dry runs of creations and Bindings; what is refused is kept."""

    def __init__(self, api: client.ApiClient, namespaces: "tuple[str, ...]") -> None:
        self._api = api
        self._namespaces = namespaces
        self._rounds = 0
        self.refused: list[str] = []

    async def pass_now(self, moment: str) -> None:
        """Return after some rounds that began after this, none of which was refused."""
        since = self._rounds + 1
        await polling.eventually(
            lambda: self.refused or self._rounds >= since + ROUNDS, what=f"rounds {moment}"
        )
        assert self.refused == [], f"{moment}: {self.refused[:3]}"

    async def run(self) -> None:
        while True:
            for namespace in self._namespaces:
                await self._try(namespace)
            self._rounds += 1

    async def _try(self, namespace: str) -> None:
        name = f"plain-of-{self._namespaces[0]}"
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "somewhere"},
        }
        home = f"/api/v1/namespaces/{namespace}"
        for path, body in (
            (f"{home}/pods", a_pod(namespace, name="another")),
            (f"{home}/pods/{name}/binding", binding),
            (f"{home}/bindings", binding),
        ):
            try:
                await self._api.create(path, body, dryRun="All")
            except client.ApiRefusedError as refused:
                self.refused.append(str(refused))


@contextlib.asynccontextmanager
async def bound_all_the_time(api: client.ApiClient, *namespaces: str) -> "AsyncIterator[PlainPods]":
    """Yield the pods; fails in the end if any request of theirs was refused meanwhile."""
    path = "/api/v1/namespaces/{0}/pods"
    name = f"plain-of-{namespaces[0]}"
    plain = PlainPods(api, namespaces)
    for namespace in namespaces:
        await api.create(path.format(namespace), a_pod(namespace, name=name))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(plain.run())
        try:
            await plain.pass_now("at first")
            yield plain
        finally:
            running.cancel()
            for namespace in namespaces:
                options = {"gracePeriodSeconds": 0}
                await api.delete(f"{path.format(namespace)}/{name}", options=options)
    assert plain.refused == []
