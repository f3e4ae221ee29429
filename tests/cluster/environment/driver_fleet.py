"""Upgrades of drivers as the API server tells of them: states of nodes, driver pods, entries of a ClusterPolicy, Events."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

from api.driver_upgrade import UPGRADE_STATE_LABEL
from tests.cluster.environment import client, nodes, polling
from tests.cluster.system.installation import NAMESPACE

Json = dict[str, Any]

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = "/apis/events.k8s.io/v1/events"
DRIVER = "app.kubernetes.io/component=nvidia-driver"
DONE, FAILED = "upgrade-done", "upgrade-failed"


@dataclass
class Observer:
    """Counts nodes that are cordoned or not ready after every single change that the API server tells."""

    api: client.ApiClient
    names: frozenset[str]
    label: str
    """What has the state."""
    away: set[str] = field(default_factory=set)
    most_away: int = 0
    states: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Node -> its states, in the order in which they came."""

    async def begin(self) -> str:
        """Look at every node once; return since which version changes are to be watched."""
        listing = await self.api.get(nodes.NODES)
        for node in listing["items"]:
            self._see("ADDED", node)
        version: str = listing["metadata"]["resourceVersion"]
        return version

    async def watch(self, version: str) -> None:
        async for event in self.api.watch(nodes.NODES, resourceVersion=version):
            if event["type"] != "BOOKMARK":
                self._see(event["type"], event["object"])

    def _see(self, kind: str, node: Json) -> None:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        if name not in self.names:
            return
        is_away = kind != "DELETED" and (is_cordoned(node) or not is_ready(node))
        (self.away.add if is_away else self.away.discard)(name)
        self.most_away = max(self.most_away, len(self.away))
        state, seen = labels.get(self.label, ""), self.states[name]
        if kind != "DELETED" and (not seen or seen[-1] != state):
            seen.append(state)


@dataclass(kw_only=True)
class DriverFleet:
    """What the upgrades of one ClusterPolicy make of nodes."""

    api: client.ApiClient
    policy: str
    """Path of the ClusterPolicy."""

    async def nodes(self, names: Iterable[str]) -> dict[str, Json]:
        expected = set(names)
        listing = await self.api.get(nodes.NODES)
        found = {item["metadata"]["name"]: item for item in listing["items"]}
        return {name: item for name, item in found.items() if name in expected}

    async def states(self, names: Iterable[str]) -> dict[str, str]:
        return {name: state_of(node) for name, node in (await self.nodes(names)).items()}

    async def until(self, names: Iterable[str], *expected: str, within: float = 120) -> None:
        """Return when every node is in one of the states."""
        names = list(names)

        async def are_there() -> bool:
            found = await self.states(names)
            odd = {name: found.get(name) for name in names if found.get(name) not in expected}
            assert not odd, (
                f"{len(odd)} nodes: {dict(list(odd.items())[:5])}; {await self.entries()}"
            )
            return True

        await polling.eventually(are_there, what=f"nodes are {expected}", within=within, every=0.5)

    async def until_driven(
        self, names: Iterable[str], version: str, *, within: float = 120
    ) -> None:
        """Return when every node has the driver of this version, and its upgrade has ended."""
        names = set(names)

        async def have_it() -> bool:
            found = await self.drivers()
            shortfall = {name for name in names if found.get(name) != version}
            assert not shortfall, f"{len(shortfall)} without {version}: {sorted(shortfall)[:5]}"
            return True

        every = 0.5 if len(names) < 50 else 2
        await polling.eventually(have_it, what=f"driver {version}", within=within, every=every)
        await self.until(names, DONE, within=within)

    async def drivers(self) -> dict[str, str]:
        """Return the version of the driver by node."""
        pods = (await self.api.get(PODS, labelSelector=DRIVER))["items"]
        return {
            pod["spec"].get("nodeName", ""): version_of(pod)
            for pod in pods
            if not pod["metadata"].get("deletionTimestamp")
        }

    async def entries(self) -> dict[str, Json]:
        """Return `status.upgrade` by node."""
        return {
            item["node"]: item for item in (await self.api.status(self.policy)).get("upgrade") or ()
        }

    async def entry(self, node: str, reason: str, *, within: float = 120) -> Json:
        """Return the entry of a node once it has the reason."""

        async def has_it() -> Json:
            found = (await self.entries()).get(node, {})
            assert found.get("reason") == reason, found
            return found

        return await polling.eventually(has_it, what=f"{node} says {reason}", within=within)

    async def events(self, node: str) -> list[Json]:
        found = await self.api.get(EVENTS, fieldSelector=f"regarding.name={node}")
        return [item for item in found["items"] if item.get("action") == "UpgradeDriver"]

    @contextlib.asynccontextmanager
    async def observed(
        self, names: Iterable[str], *, label: str = UPGRADE_STATE_LABEL
    ) -> AsyncIterator[Observer]:
        """Watch nodes from now on, until the context ends."""
        observer = Observer(self.api, frozenset(names), label)
        version = await observer.begin()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(observer.watch(version), name="observer of nodes")
            yield observer
            watching.cancel()


def state_of(node: Json) -> str:
    found: str = (node["metadata"].get("labels") or {}).get(UPGRADE_STATE_LABEL, "")
    return found


def is_cordoned(node: Json) -> bool:
    return bool(node["spec"].get("unschedulable"))


def is_ready(node: Json) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def version_of(driver: Json) -> str:
    tag: str = driver["spec"]["containers"][0]["image"].rpartition(":")[2]
    return tag.removesuffix("-ubuntu24.04")
