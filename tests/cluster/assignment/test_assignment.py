"""Assignment's writes at a real API server: compare and set, release of whatever wrote poolRef, what kubectl shows."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from api.names import API_VERSION, PodUid, UnitId
from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.discovery import load_configuration
from kube.resources import GPU_DEVICES, GPU_POOLS
from manifests.install.crds import build_crds
from manifests.yaml import render
from tests.cluster.environment import client, definitions
from tests.component.reconciler.assignment_run import AssignmentRun
from tests.component.reconciler.cluster import Cluster

if TYPE_CHECKING:
    from simulator.apiserver.server import InMemoryApiServer

DEVICES = "/apis/gpu.deckhouse.io/v1alpha1/gpudevices"
INVENTORIES = "/apis/gpu.deckhouse.io/v1alpha1/gpunodeinventories"


@dataclass
class Setup:
    """One node with one device, and two pools, by names that nobody else has."""

    api: client.ApiClient
    process: AssignmentRun
    node: str

    @property
    def device(self) -> str:
        return f"{self.node}-0"

    def pool(self, letter: str) -> str:
        return f"{self.node}-{letter}"

    async def until_stable(self) -> None:
        """Look until nothing is written any more."""
        before: list[str] = []
        for _ in range(20):
            await self.process.observe()
            await self.process.reconcile(self.node)
            now = await self.versions()
            if now == before:
                return
            before = now
        raise AssertionError("it never comes to rest")

    async def versions(self) -> list[str]:
        paths = (f"{DEVICES}/{self.device}", f"{INVENTORIES}/{self.node}")
        return [(await self.api.get(path))["metadata"]["resourceVersion"] for path in paths]

    async def owner(self) -> str | None:
        device = await self.api.get(f"{DEVICES}/{self.device}")
        ref = device["status"].get("poolRef")
        return ref["name"] if ref is not None else None


@pytest.fixture(scope="module", name="_kinds")
def _install_kinds(kubectl):
    """Our kinds; they stay until the control plane goes (tests/cluster/manifests/conftest.py)."""
    crds = build_crds()
    asyncio.run(kubectl("apply", "-f", "-", stdin=render(crds)))
    asyncio.run(definitions.until_served(kubectl, crds))


@pytest.fixture
async def setup(control_plane, api, _kinds) -> AsyncIterator[Setup]:
    node = f"as{secrets.token_hex(3)}"
    clock = SystemClock()
    configuration = await load_configuration(clock, kubeconfig=str(control_plane.kubeconfig()))
    async with KubeClient(configuration, clock) as kube:
        nobody = cast("InMemoryApiServer", None)  # only to count requests
        process = AssignmentRun(Cluster(nobody, kube))
        found = Setup(api, process, node)
        for letter in "ab":
            await process.cluster.add_pool(found.pool(letter))
        await process.device(found.device)
        await process.inventory(node)
        yield found
        await kube.delete(GPU_DEVICES, found.device)
        for letter in "ab":
            await kube.delete(GPU_POOLS, found.pool(letter))
        await api.delete(f"{INVENTORIES}/{node}")


async def test_device_comes_into_its_pool_and_leaves_it_when_its_pod_has_ended(setup):
    """Lesson 7."""
    await setup.process.annotate(setup.device, setup.pool("a"))
    await setup.until_stable()
    assert await setup.owner() == setup.pool("a")
    inventory = await setup.api.get(f"{INVENTORIES}/{setup.node}")
    assigned = [{"pool": setup.pool("a"), "devices": [setup.device]}]
    assert inventory["status"]["pools"] == {"pending": [], "assigned": assigned}

    index = setup.process.cluster.allocation_state.index
    index.set_observed(PodUid("p"), (UnitId(f"GPU-{setup.device}"),))
    await setup.process.annotate(setup.device, None)
    await setup.until_stable()
    assert await setup.owner() == setup.pool("a")
    assert (await setup.process.condition(setup.device, "Draining"))["status"] == "True"

    index.set_observed(PodUid("p"), ())
    await setup.until_stable()
    assert await setup.owner() is None
    assert await setup.process.assigned(setup.device) == ("False", "NoPoolWantsIt")
    assert await setup.process.condition(setup.device, "Draining") == {}


async def test_pool_that_another_manager_wrote_is_released(setup):
    ref = {"status": {"poolRef": {"name": setup.pool("a")}}}
    body = {
        "apiVersion": API_VERSION,
        "kind": "GPUDevice",
        "metadata": {"name": setup.device},
        **ref,
    }
    path = f"{DEVICES}/{setup.device}/status"
    await setup.api.patch(path, body, kind="apply", fieldManager="somebody")

    await setup.until_stable()

    assert await setup.owner() is None


async def test_old_sight_neither_claims_nor_releases(setup):
    """Lesson 7: compare and set."""
    await setup.process.annotate(setup.device, setup.pool("a"))
    await setup.process.observe()
    await setup.process.cluster.report(setup.device, poolRef={"name": setup.pool("b")})
    assert await setup.process.reconcile(setup.node) is not None
    assert await setup.owner() == setup.pool("b")

    await setup.process.observe()
    await setup.process.reconcile(setup.node)
    await setup.process.observe()
    await setup.process.annotate(setup.device, setup.pool("b"))
    assert await setup.process.reconcile(setup.node) is not None
    assert await setup.owner() == setup.pool("b")


async def test_conditions_of_others_stay_and_ours_are_shown_by_kubectl(setup, kubectl):
    healthy: dict[str, Any] = {
        "type": "Healthy",
        "status": "True",
        "reason": "Healthy",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    meta = {"apiVersion": API_VERSION, "kind": "GPUDevice", "metadata": {"name": setup.device}}
    await setup.api.patch(
        f"{DEVICES}/{setup.device}/status",
        {**meta, "status": {"conditions": [healthy]}},
        kind="apply",
        fieldManager="health",
    )
    await setup.process.annotate(setup.device, "no-such-pool")
    await setup.until_stable()

    assert (await setup.process.condition(setup.device, "Healthy"))["status"] == "True"
    current = (await kubectl("get", "gdev", setup.device, "-o", "wide")).stdout
    assert "PoolNotFound" in current
    assert "pool not found: create it, or correct the annotation" in current
