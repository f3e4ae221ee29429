"""A server with `node_software` on and a ClusterPolicy of drivers that upgrade themselves, for nodes that each test makes.

The DaemonSets are real, and so are their ControllerRevisions and all evictions. kwok plays the pods of nodes: where the
name of a node begins with `kwok-broken-`, a driver of a tag with `broken` crashes.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.environment import client
from tests.cluster.environment.driver_fleet import DriverFleet, Json
from tests.cluster.operator_states.conftest import NOBLE, Installation, NodeSoftware
from tests.cluster.system.installation import CLUSTER_POLICIES

if TYPE_CHECKING:
    from tests.cluster.environment.components import Kwok
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

CreateNodes = Callable[..., Awaitable[list[str]]]

POLICY = f"{CLUSTER_POLICIES}/upgrades"
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


@dataclass(kw_only=True)
class Upgrades(DriverFleet):
    """The ClusterPolicy, and what has become of nodes."""

    software: NodeSoftware
    versions: "itertools.count[int]"
    policy: str = POLICY

    async def roll_out(self, *, tag: str = "", **policy: Any) -> str:
        """Give the driver a version that it never had; return it."""
        version = f"580.{next(self.versions)}{tag}"
        defaults = {
            "autoUpgrade": True,
            "maxParallelUpgrades": 0,
            "maxUnavailable": "100%",
            "podDeletion": {},
        }
        driver: Json = {
            "repository": "registry.test",
            "image": "driver",
            "version": version,
            "upgradePolicy": defaults | policy,
        }
        body = {
            "apiVersion": "nvidia.com/v1",
            "kind": "ClusterPolicy",
            "spec": SPEC | {"driver": driver},
        }
        body["metadata"] = {"name": "upgrades"}
        await self.api.patch(POLICY, body, kind="apply", fieldManager="test", force="true")
        return version


class WithoutNodes(Installation):
    async def _join(self, software: NodeSoftware) -> None:
        """Nodes come with each test.

        Pods of pools are let in without the webhooks, which are not installed here.
        """
        async with client.open_client(self._control_plane.kubeconfig()) as api:
            with contextlib.suppress(client.ApiRefusedError):
                await api.delete(BINDING)


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
    return Upgrades(software=upgrading_server, api=api, versions=versions)


@pytest.fixture
async def gpu_nodes(create_kwok_nodes: CreateNodes) -> CreateNodes:
    """`await gpu_nodes(3, prefix="…", resources={…})`: nodes with a GPU, deleted afterwards."""

    async def create(count: int, **options: Any) -> list[str]:
        return await create_kwok_nodes(count, labels=NOBLE.labels, **options)

    return create
