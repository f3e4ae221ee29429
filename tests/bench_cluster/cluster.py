"""The cluster of a run: the control plane, our system installed in it, nodes, devices, a pool."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, final

import yaml

from tests.bench_cluster import load
from tests.cluster.environment import (
    binaries,
    client,
    control_plane,
    kubectl,
    nodes,
    polling,
    processes,
)
from tests.cluster.system import installation, objects

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PLAIN_RESOURCE: Final = "example.com/gpu"
"""The resource of the other setups' pods; nodes offer as many units of it as of the pool's."""
POOL: Final = objects.Pool(name="bench", nodes=())

_LABEL: Final = f"pool.gpu.deckhouse.io/{POOL.name}"
_LONG: Final = {"ttl": "10m"}
"""No reservation ends while a queue that was let grow is worked off."""
_SERVED_WITHIN_S: Final = 120
_CONCURRENCY: Final = 32


@final
class BenchCluster:
    """One control plane for the whole run; nothing runs on it between the turns of two setups."""

    def __init__(self, plane: control_plane.ControlPlane, api: client.ApiClient) -> None:
        self.plane = plane
        self.api = api
        self.gpus: dict[str, int] = {}
        """Node -> how many units it offers."""
        self.server_settings: dict[str, Any] = {}
        """What our server is installed with."""
        self._kubectl = kubectl.Kubectl(
            plane.programs.kubectl, plane, plane.run.directory / "kubectl-cache"
        )
        self.system = installation.GpuSystem(plane, self._kubectl)
        self.admission = ""
        """Our webhooks and policies. A policy with a parameter is not among them: it stays all the time."""

    async def set_up(self) -> None:
        """Install our system and the pool, and leave nothing of ours running."""
        await self.api.create("/api/v1/namespaces", {"metadata": {"name": load.NAMESPACE}})
        # kube-controller-manager, which does not run here, would make it.
        accounts = f"/api/v1/namespaces/{load.NAMESPACE}/serviceaccounts"
        await self.api.create(accounts, {"metadata": {"name": "default"}})
        await self.system.install()
        settings = self.plane.run.directory / "gpu-control-plane.settings.yaml"
        self.server_settings = yaml.safe_load(settings.read_text(encoding="utf-8"))
        await self.api.create(objects.POOLS, objects.a_pool_object(POOL.name, reservation=_LONG))
        targets = [["webhooks", "--url", self.system.url], ["policy"]]
        rendered = await asyncio.gather(*(self.system.render(*target) for target in targets))
        documents = [item for text in rendered for item in yaml.safe_load_all(text) if item]
        self.admission = yaml.safe_dump_all(
            document for document in documents if not _has_parameter(document)
        )
        await self.system.scheduler.stop()
        await self.system.server.terminate()
        await self.take_away(self.admission)

    async def put_up(self, manifests: str) -> None:
        """Apply what every pod creation of the cluster passes, for the turn of one setup."""
        await self._kubectl("apply", "-f", "-", stdin=manifests)

    async def take_away(self, manifests: str) -> None:
        """Delete it."""
        await self._kubectl("delete", "--ignore-not-found", "-f", "-", stdin=manifests)

    async def grow(self, node_count: int, gpus: int) -> None:
        """Add nodes of so many devices until there are `node_count`, and have our server take them in."""
        missing = node_count - len(self.gpus)
        prefix = f"bench-{len(self.gpus):04d}"
        resources = {PLAIN_RESOURCE: gpus, POOL.resource: gpus}
        new = await nodes.create_nodes(
            self.api, missing, prefix=prefix, gpus=0, resources=resources
        )
        devices = [objects.a_device(node, gpu, POOL.name) for node in new for gpu in range(gpus)]
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def create(device: client.JsonObject) -> None:
            async with slots:
                await self.api.create(objects.DEVICES, device)
                path = f"{objects.DEVICES}/{device['metadata']['name']}/status"
                await self.api.patch(path, {"status": device["status"]})

        async with asyncio.TaskGroup() as group:
            for device in devices:
                group.create_task(create(device))
        self.gpus |= dict.fromkeys(new, gpus)
        await self._have_served()

    async def _have_served(self) -> None:
        """Run our server until it has written what it writes about new devices and nodes."""
        await self.put_up(self.admission)
        await self.system.restore()
        await self.system.scheduler.stop()
        await polling.eventually(
            self._is_served, what="the pool in its status", within=_SERVED_WITHIN_S, every=0.5
        )
        await self.system.server.terminate()
        await self.take_away(self.admission)

    async def _is_served(self) -> bool:
        current = objects.capacity(await self.api.get(POOL.path))
        assert current.get("total") == sum(self.gpus.values()), f"{current}"
        listing = await self.api.get(nodes.NODES, labelSelector=_LABEL)
        assert len(listing["items"]) == len(self.gpus), f"{len(listing['items'])} nodes labelled"
        listing = await self.api.get(objects.DEVICES)
        bare = sum("state" not in item["status"] for item in listing["items"])
        assert bare == 0, f"{bare} devices have no state"
        return True


def _has_parameter(manifest: client.JsonObject) -> bool:
    """Say whether this is a policy with a parameter of a built-in kind, or the binding of one.

    When the last such policy is deleted, kube-apiserver (1.36, policy_source.go) stops its informer of
    that kind for good: created again, the policy sees the Lease as it was then, and refuses all.
    """
    return not {"paramKind", "paramRef"}.isdisjoint(manifest.get("spec", {}))


@contextlib.asynccontextmanager
async def open_cluster(progress: "Callable[[str], None]") -> "AsyncIterator[BenchCluster]":
    """Start the control plane and set everything up; all of it is gone at the end."""
    programs = binaries.find_binaries(progress)
    with processes.Run(binaries.ROOT / "build" / "bench-cluster-logs") as run:
        progress(f"starting Kubernetes {binaries.kubernetes_version()}, logs in {run.directory}")
        plane = control_plane.ControlPlane(run, programs)
        await plane.start()
        async with client.open_client(plane.kubeconfig()) as api:
            cluster = BenchCluster(plane, api)
            await cluster.set_up()
            yield cluster
