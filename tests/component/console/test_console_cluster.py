"""The console's data on an API server: what may be read of it, read and watched, and told to streams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from console.console_data import ConsoleData, PodTrial
from console.data.console_cluster import ConsoleCluster
from console.data.read_scope import NothingReadableError, ReadScope, find_scope
from console.rows import ConsoleSnapshot, HealthRow, RowHealth
from console.visibility import Visibility
from kube import resources
from kube.client import KubeClient
from kube.errors import NotFound
from manifests.install.crds import build_crds
from simulator.apiserver.server import InMemoryApiServer
from tests.support.client_of_api import an_api_with_client
from tests.support.cluster_objects import Object
from tests.support.console_feed import EVERYTHING, VIEWER, ConsoleView, decoded, next_whole_event
from tests.support.loop_clock import LoopClock
from tests.support.next_version import NEXT, allow_next_version
from tests.support.plugin_cluster import a_fragmented_cluster
from tests.support.polling import LIMIT_S, until

pytestmark = pytest.mark.looptime

RESOURCES = {
    "GPUPool": resources.GPU_POOLS,
    "GPUDevice": resources.GPU_DEVICES,
    "GPUNodeInventory": resources.GPU_NODE_INVENTORIES,
    "Lease": resources.LEASES,
    "Node": resources.NODES,
    "Pod": resources.PODS,
}
SYSTEM = "gpu-system"
WHOLE = ReadScope.whole(system_namespace=SYSTEM)
FOR_EVER = 10**6


async def put(client: KubeClient, content: Object) -> None:
    """Create an object, with its status."""
    resource = RESOURCES[content["kind"]]
    meta = content["metadata"]
    for container in content.get("spec", {}).get("containers", ()):
        container["image"] = "registry/trainer:1"
    await client.create(resource, content)
    if "status" in content and resource is not resources.LEASES:
        await client.merge_patch(
            resource,
            {"status": content["status"]},
            name=meta["name"],
            namespace=meta.get("namespace"),
            subresource="status",
        )
    if resource is resources.NODES:  # a new node has a taint until a controller finds it ready
        await client.merge_patch(resources.NODES, {"spec": {"taints": None}}, name=meta["name"])


@asynccontextmanager
async def a_cluster() -> AsyncIterator[tuple[InMemoryApiServer, KubeClient]]:
    async with an_api_with_client(namespace="ml-team", definitions=build_crds()) as (api, client):
        await client.create(
            resources.NAMESPACES,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}},
        )
        for item in a_fragmented_cluster():
            await put(client, item)
        yield api, client


@asynccontextmanager
async def running(client: KubeClient, scope: ReadScope = WHOLE) -> AsyncIterator[ConsoleCluster]:
    cluster = ConsoleCluster(client, LoopClock(), scope=scope, origin="API server")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(cluster.run())
        await until(lambda: cluster.is_ready)
        yield cluster
        task.cancel()


async def page_of(cluster: ConsoleData, visibility: Visibility = EVERYTHING) -> "LivePage":
    page = LivePage(cluster.open_stream(VIEWER, visibility, drop=lambda: None))
    await page.read()
    return page


class LivePage(ConsoleView):
    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream

    async def read(self) -> Any:
        event = await next_whole_event(self.stream)
        self.apply(event)
        return decoded(event)

    async def until_visible(self, section: str, key: str, **fields: object) -> None:
        """Read until a row has these values."""
        async with asyncio.timeout(LIMIT_S):
            while not self.shows(section, key, **fields):
                await self.read()

    def shows(self, section: str, key: str, **fields: object) -> bool:
        row = self.sections[section].get(key)
        return row is not None and all(getattr(row, name) == item for name, item in fields.items())


async def test_a_page_shows_the_cluster_and_what_changes_in_it():
    async with a_cluster() as (_, client), running(client) as cluster:
        page = await page_of(cluster)
        assert page.shows("pools", "training", total=8, used=3, free=5, largest_free=3, waiting=1)
        assert page.shows("devices", "gpu-1-0", look="used", holders=("ml-team/train-b",))
        await page.until_visible("waiting", "ml-team/big", reason="UnitsFragmented")
        assert "ask for 3 units: node gpu-0 would take the pod now" in (
            page.sections["waiting"]["ml-team/big"].remedies
        )
        await client.delete(resources.PODS, "train-b", namespace="ml-team", grace_period_s=0)
        await page.until_visible("devices", "gpu-1-0", look="free", holders=())
        await page.until_visible("pools", "training", used=1, free=7)
        await client.merge_patch(resources.NODES, {"spec": {"unschedulable": True}}, name="gpu-0")
        await page.until_visible("health", "Node gpu-0", state=RowHealth.WARNING)
        detail = cluster.device("gpu-1-1", EVERYTHING)
        assert detail is not None
        assert detail.row.look == "free"
        pod = cluster.pod("ml-team", "big", EVERYTHING)
        assert pod is not None
        assert cluster.pod("ml-team", "big", Visibility(namespaces=frozenset(), nodes=True)) is None
        trial = PodTrial(pool="training", units=4)
        assert cluster.try_pods(trial, EVERYTHING).fits
        page.stream.close()


async def test_an_object_that_cannot_be_decoded_stays_as_it_was_and_is_told():
    async with a_cluster() as (_, client), running(client) as cluster:
        page = await page_of(cluster)
        await allow_next_version(client, build_crds(), "GPUDevice", "status", "state")
        await client.merge_patch(
            resources.GPU_DEVICES, {"status": {"state": NEXT}}, name="gpu-1-0", subresource="status"
        )
        await page.until_visible("health", "unreadable gpudevices", state=RowHealth.WARNING)
        assert page.shows("devices", "gpu-1-0", look="used", holders=("ml-team/train-b",))
        page.stream.close()


async def test_it_is_ready_once_everything_is_listed_and_not_before():
    async with a_cluster() as (api, client):
        held = api.faults.fail("GET", "/pods", 503, times=FOR_EVER)
        cluster = ConsoleCluster(client, LoopClock(), scope=WHOLE, origin="API server")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(cluster.run())
            await until(lambda: held.seen >= 2)
            assert not cluster.is_ready
            api.faults.clear()
            await until(lambda: cluster.is_ready)
            task.cancel()


async def test_an_api_server_that_goes_away_is_told_and_comes_back():
    async with a_cluster() as (api, client), running(client) as cluster:
        page = await page_of(cluster)
        await api.stop()
        await page.until_visible("health", "watch of gpudevices", state=RowHealth.WARNING)
        await api.start()
        async with asyncio.timeout(LIMIT_S):
            while any(item.startswith("watch of") for item in page.sections["health"]):
                await page.read()
        await client.merge_patch(resources.NODES, {"spec": {"unschedulable": True}}, name="gpu-0")
        await page.until_visible("health", "Node gpu-0", state=RowHealth.WARNING)


async def test_a_watch_that_is_listed_again_loses_nothing():
    async with a_cluster() as (api, client), running(client) as cluster:
        page = await page_of(cluster)
        api.drop_watches()
        api.forget_history()
        await client.delete(resources.PODS, "train-b", namespace="ml-team", grace_period_s=0)
        await page.until_visible("devices", "gpu-1-0", look="free", holders=())


async def test_the_leader_is_the_holder_of_the_lease():
    async with a_cluster() as (_, client), running(client) as cluster:
        page = await page_of(cluster)
        assert page.shows("health", "leader", state=RowHealth.BAD)
        now = LoopClock().utc_now().isoformat().replace("+00:00", "Z")
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "gpu-control-plane", "namespace": SYSTEM},
            "spec": {"holderIdentity": "replica-1", "renewTime": now},
        }
        await put(client, lease)
        await page.until_visible("health", "leader", text="replica-1 leads")
        assert isinstance(page.sections["health"]["leader"], HealthRow)


@pytest.mark.parametrize(
    ("forbidden", "expected"),
    [
        pytest.param((), WHOLE, id="everything"),
        pytest.param(
            ("/api/v1/pods$",),
            ReadScope(
                all_pods=False,
                namespace="ml-team",
                nodes=True,
                inventories=True,
                leases_in=SYSTEM,
            ),
            id="pods of one namespace",
        ),
        pytest.param(
            ("/pods$", "/nodes$", "/gpunodeinventories$", "/leases$"),
            ReadScope(all_pods=False, nodes=False, inventories=False),
            id="pools and devices alone",
        ),
    ],
)
async def test_the_scope_is_found_by_trying(forbidden: tuple[str, ...], expected: ReadScope):
    async with a_cluster() as (api, client):
        for path in forbidden:
            api.faults.fail("GET", path, 403, times=FOR_EVER)
        found = await find_scope(client, namespace="ml-team", system_namespace=SYSTEM)
        assert found == expected
        async with running(client, found) as cluster:
            snapshot = decoded(
                await next_whole_event(
                    cluster.open_stream(VIEWER, found.visibility, drop=lambda: None)
                )
            )
            assert isinstance(snapshot, ConsoleSnapshot)
            assert len(snapshot.devices) == 12
            sees_pods = expected.all_pods or bool(expected.namespace)
            assert set(snapshot.waiting) == ({"ml-team/big"} if sees_pods else set())
            assert len(snapshot.partial) == len(forbidden)


@pytest.mark.parametrize("resource", [resources.GPU_POOLS, resources.GPU_DEVICES])
async def test_without_pools_or_devices_there_is_nothing_to_show(resource: resources.Resource):
    async with a_cluster() as (api, client):
        api.faults.fail("GET", f"/{resource.plural}$", 403, times=FOR_EVER)
        with pytest.raises(
            NothingReadableError, match=f"{resource.plural}.gpu.deckhouse.io may not"
        ):
            await find_scope(client, namespace="ml-team", system_namespace=SYSTEM)


async def test_an_api_server_without_the_kinds_is_an_error_of_its_own():
    async with an_api_with_client() as (_, client):
        with pytest.raises(NotFound):
            await find_scope(client, namespace="ml-team", system_namespace=SYSTEM)
