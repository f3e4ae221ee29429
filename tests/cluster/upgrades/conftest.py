"""A server with `node_software` on and a ClusterPolicy of drivers that upgrade themselves, for nodes that each test makes.

The DaemonSets are real, and so are their ControllerRevisions and all evictions. kwok plays the pods of nodes: where the
name of a node begins with `kwok-broken-`, a driver of a tag with `broken` crashes.
"""

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from api.driver_upgrade import UPGRADE_STATE_LABEL
from tests.cluster.environment import client, nodes, polling
from tests.cluster.operator_states.conftest import NOBLE, Installation, NodeSoftware
from tests.cluster.system.installation import CLUSTER_POLICIES, LEASE, NAMESPACE

if TYPE_CHECKING:
    from tests.cluster.environment.components import Kwok
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

Json = dict[str, Any]
CreateNodes = Callable[..., Awaitable[list[str]]]

POLICY = f"{CLUSTER_POLICIES}/upgrades"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = "/apis/events.k8s.io/v1/events"
DRIVER = "app.kubernetes.io/component=nvidia-driver"
OFF = {"enabled": False}
SPEC: Json = {
    "operator": {},
    "daemonsets": {},
    "toolkit": OFF,
    "devicePlugin": OFF,
    "dcgm": OFF,
    "dcgmExporter": OFF,
    "gfd": OFF,
    "migManager": OFF,
    "nodeStatusExporter": OFF,
}
BINDING = (
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/"
    "gpu-control-plane-annotations"
)
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


@dataclass
class Upgrades:
    """The ClusterPolicy, and what has become of nodes."""

    software: NodeSoftware
    api: client.ApiClient
    versions: "itertools.count[int]"

    async def roll_out(self, *, tag: str = "", resources: Json | None = None, **policy: Any) -> str:
        """Give the driver a version that it never had; return it."""
        version = f"580.{next(self.versions)}{tag}"
        known = {
            "autoUpgrade": True,
            "maxParallelUpgrades": 0,
            "maxUnavailable": "100%",
            "podDeletion": {},
        }
        driver: Json = {
            "repository": "registry.test",
            "image": "driver",
            "version": version,
            "upgradePolicy": known | policy,
        }
        if resources:
            driver["resources"] = resources
        body = {
            "apiVersion": "nvidia.com/v1",
            "kind": "ClusterPolicy",
            "spec": SPEC | {"driver": driver},
        }
        body["metadata"] = {"name": "upgrades"}
        await self.api.patch(POLICY, body, kind="apply", fieldManager="test", force="true")
        return version

    async def nodes(self, names: Iterable[str]) -> dict[str, Json]:
        wanted = set(names)
        listing = await self.api.get(nodes.NODES)
        found = {item["metadata"]["name"]: item for item in listing["items"]}
        return {name: item for name, item in found.items() if name in wanted}

    async def states(self, names: Iterable[str]) -> dict[str, str]:
        return {name: state_of(node) for name, node in (await self.nodes(names)).items()}

    async def until(self, names: Iterable[str], *wanted: str, within: float = 120) -> None:
        """Return when every node is in one of the states."""
        names = list(names)

        async def are_there() -> bool:
            found = await self.states(names)
            odd = {name: found.get(name) for name in names if found.get(name) not in wanted}
            assert not odd, (
                f"{len(odd)} nodes: {dict(list(odd.items())[:5])}; {await self.entries()}"
            )
            return True

        await polling.eventually(are_there, what=f"nodes are {wanted}", within=within, every=0.5)

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
        return {item["node"]: item for item in (await self.api.status(POLICY)).get("upgrade") or ()}

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

    async def crash(self) -> None:
        """Kill the server, and let another one lead at once."""
        self.software.server.kill9()
        await self.api.delete(LEASE)

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


class WithoutNodes(Installation):
    async def _join(self, software: NodeSoftware) -> None:
        """Nodes come with each test.

        Pods of pools are let in without the webhooks, which are not installed here.
        """
        async with client.open_client(self._control_plane.kubeconfig()) as api:
            with contextlib.suppress(client.ApiRefusedError):
                await api.delete(BINDING)

    async def uninstall(self) -> None:
        """Pods of nodes that are gone have no kubelet: kube-controller-manager takes a minute to delete them."""
        async with client.open_client(self._control_plane.kubeconfig()) as api:
            await api.delete(PODS, options={"gracePeriodSeconds": 0})
        await super().uninstall()


@pytest.fixture(scope="package")
def upgrading_server(
    control_plane: "ControlPlane", kubectl: "Kubectl", kwok: "Kwok"
) -> Iterator[NodeSoftware]:
    del kwok
    installation = WithoutNodes(control_plane, kubectl)
    try:
        yield asyncio.run(installation.install())
    finally:
        asyncio.run(installation.uninstall())


@pytest.fixture(scope="package")
def versions() -> "itertools.count[int]":
    return itertools.count(1)


@pytest.fixture
async def upgrades(
    upgrading_server: NodeSoftware, versions: "itertools.count[int]", api: client.ApiClient
) -> Upgrades:
    if not upgrading_server.server.process.running:
        await upgrading_server.server.start()
    return Upgrades(upgrading_server, api, versions)


@pytest.fixture
async def gpu_nodes(create_kwok_nodes: CreateNodes) -> CreateNodes:
    """`await gpu_nodes(3, prefix="…", resources={…})`: nodes with a GPU, deleted afterwards."""

    async def create(count: int, **options: Any) -> list[str]:
        return await create_kwok_nodes(count, labels=NOBLE.labels, **options)

    return create
