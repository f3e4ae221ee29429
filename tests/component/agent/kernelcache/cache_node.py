"""A node with the roles caches and csi: an API server and a registry in memory, mounts in memory, and a real store.

The test makes kubelet's calls on the driver's port; `tests/component/agent/csi` has them over gRPC.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agent.context import AgentContext
from agent.csi.volume_request import PublishVolume
from agent.csi.volume_source import Absence, CacheVolume, NotThere
from agent.driver.port import DriverSnapshot
from agent.kernelcache.content.layer_limits import FreeSpaceFloor
from agent.kernelcache.content.mountinfo import MountEntry
from agent.roles.caches import CachesRole
from agent.settings import AgentRole, AgentSettings
from api.cache_name import CacheName
from api.image_reference import Digest
from api.kinds.gkmcachenode import CachedDigest, ClusterGKMCacheNode, GKMCacheNode
from api.names import RESOLVED_DIGEST_ANNOTATION
from kernelcache.cache_conditions import reported_state
from kernelcache.image_format import OCI_CONFIG, OCI_LAYER
from kube import resources
from kube.client import KubeClient
from kube.errors import NotFound
from manifests.caches.crds import build_cache_crds
from simulator.apiserver.server import InMemoryApiServer
from tests.support.cache_layers import a_triton_layer
from tests.support.client_of_api import a_client
from tests.support.csi import MounterDouble, a_target
from tests.support.fake_driver import Device, a_device
from tests.support.loop_clock import LoopClock
from tests.support.polling import until_async
from tests.support.recorded_events import RecordedEvents
from tests.support.registry_double import RegistryDouble

NODE = "node-1"
TEAM = "team-a"
OTHER_TEAM = "team-b"
LLAMA = CacheName(namespace=TEAM, name="llama")
SUMMARY = '{"targets": [{"backend": "cuda", "arch": "%s", "warp_size": 32}]}'
Json = dict[str, Any]


def an_image(
    registry: RegistryDouble,
    *,
    tag: str = "1",
    arch: str = "90",
    layer: bytes | None = None,
    repository: str = "team/cache",
) -> Digest:
    """Push a kernel cache; return its digest."""
    content = a_triton_layer(data=f"kernel {tag}".encode()) if layer is None else layer
    labels = {"cache.triton.image/summary": SUMMARY % arch}
    config = registry.add_blob(json.dumps({"config": {"Labels": labels}}).encode(), OCI_CONFIG)
    blob = registry.add_blob(content, OCI_LAYER)
    manifest = {
        "schemaVersion": 2,
        "config": {"mediaType": OCI_CONFIG, "digest": config.digest, "size": config.size},
        "layers": [{"mediaType": OCI_LAYER, "digest": blob.digest, "size": blob.size}],
    }
    return registry.add_manifest(manifest, repository=repository, tag=tag).digest


class CacheNode:
    """The role, and everything around it."""

    def __init__(
        self, folder: Path, api: InMemoryApiServer, client: KubeClient, registry: RegistryDouble
    ) -> None:
        self.folder = folder
        self.api = api
        self.client = client
        self.registry = registry
        self.clock = LoopClock()
        self.mounter = MounterDouble()
        self.pods = folder / "kubelet" / "pods"
        self.pods.mkdir(parents=True)
        self.settings: Json = {}
        self.floor = FreeSpaceFloor()

    def begin(self) -> None:
        """Create the parts, as a start of the process does."""
        own = frozenset({self.registry.host})
        settings = AgentSettings(
            node=NODE,
            namespace="gpu",
            roles=frozenset({AgentRole.INVENTORY, AgentRole.CACHES, AgentRole.CSI}),
            caches_directory=self.folder / "caches",
            kubelet_directory=self.folder / "kubelet",
            **{"registries_plain_http": own, "registries_private": own, **self.settings},
        )
        self.context = AgentContext(settings, self.client, self.clock)
        self.events = RecordedEvents()
        self.context.events = self.events
        self.role = CachesRole(
            self.context, mounter=self.mounter, mounts=self.mounts, floor=self.floor
        )
        self.source = self.role.volumes
        self.store = self.role.reconciler.store

    def read_driver(self, *devices: Device) -> None:
        current = tuple(
            Device(**{**vars(item), "address": item.address or f"0000:{number:02x}:00.0"}).current()
            for number, item in enumerate(devices)
        )
        self.role.reconciler.observe_devices(
            DriverSnapshot(driver_version="570.1", cuda_version="12.8", devices=current)
        )

    def mounts(self) -> tuple[MountEntry, ...]:
        return tuple(
            MountEntry(root=str(volume.content), mount_point=str(target))
            for target, volumes in list(self.mounter.mounted.items())
            for volume in volumes
            if volume is not None
        )

    @asynccontextmanager
    async def running(
        self,
        *devices: Device,
        has_driver: bool = True,
        serves: bool = False,
        writes: bool = True,
    ) -> AsyncIterator[None]:
        """Run the role with these devices, an H100 by default; `serves` opens the sockets, too.

        Without `writes` nothing but the watches runs.
        """
        self.begin()
        tasks = {**self.role.tasks(), "pods": self.context.pod_informer.run()}
        left_out = ([] if serves else ["csi"]) + (
            [] if writes else ["caches.store", "caches.objects"]
        )
        for name in left_out:
            tasks.pop(name).close()
        async with asyncio.TaskGroup() as group:
            started = [group.create_task(item, name=name) for name, item in tasks.items()]
            if has_driver:
                self.read_driver(*(devices or (a_device(),)))
            else:
                self.role.reconciler.observe_devices(None)
            try:
                yield
            finally:
                for item in started:
                    item.cancel()

    async def add_cache(
        self, digest: Digest, name: CacheName = LLAMA, *, tag: str = "1", **changes: Any
    ) -> None:
        """Apply a cache as admission and the leader leave it."""
        resource = resources.GKM_CACHES if name.namespace else resources.CLUSTER_GKM_CACHES
        arch = changes.pop("arch", "90")
        layer_bytes = changes.pop("layer_bytes", 1000)
        body: Json = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": name.name,
                "annotations": {RESOLVED_DIGEST_ANNOTATION: digest},
                **({"namespace": name.namespace} if name.namespace else {}),
            },
            "spec": {"image": f"{self.registry.host}/team/cache:{tag}", **changes},
        }
        await self.client.create(resource, body)
        await self.resolve(digest, name, arch=arch, layer_bytes=layer_bytes)

    async def resolve(
        self,
        digest: Digest,
        name: CacheName = LLAMA,
        *,
        arch: str = "90",
        layer_bytes: int = 1000,
        **status: Any,
    ) -> None:
        """Write the status as the leader does."""
        resource = resources.GKM_CACHES if name.namespace else resources.CLUSTER_GKM_CACHES
        target = {"backend": "cuda", "arch": arch, "warpSize": 32}
        image = {"type": "triton", "targets": [target], "layerBytes": layer_bytes}
        await self.client.merge_patch(
            resource,
            {"status": {"resolvedDigest": digest, "image": image, **status}},
            name=name.name,
            namespace=name.namespace or None,
            subresource="status",
        )

    async def change_image(self, digest: Digest, name: CacheName = LLAMA, *, tag: str) -> None:
        resource = resources.GKM_CACHES if name.namespace else resources.CLUSTER_GKM_CACHES
        await self.client.merge_patch(
            resource,
            {
                "metadata": {"annotations": {RESOLVED_DIGEST_ANNOTATION: digest}},
                "spec": {"image": f"{self.registry.host}/team/cache:{tag}"},
            },
            name=name.name,
            namespace=name.namespace or None,
        )
        await self.resolve(digest, name)

    async def annotate(self, digest: Digest, name: CacheName = LLAMA) -> None:
        """Change the annotation alone, which the leader has not proven yet."""
        await self.client.merge_patch(
            resources.GKM_CACHES,
            {"metadata": {"annotations": {RESOLVED_DIGEST_ANNOTATION: digest}}},
            name=name.name,
            namespace=name.namespace,
        )

    async def delete_cache(self, name: CacheName = LLAMA) -> None:
        resource = resources.GKM_CACHES if name.namespace else resources.CLUSTER_GKM_CACHES
        await self.client.delete(resource, name.name, namespace=name.namespace or None)

    async def add_pod(self, pod: str, cache: CacheName = LLAMA, namespace: str = TEAM) -> str:
        """Create a pod of the node that mounts the cache; return its UID."""
        attributes = {"csi.gkm.io/GKMCache": cache.name}
        if cache.namespace:
            attributes["csi.gkm.io/namespace"] = cache.namespace
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "namespace": namespace},
            "spec": {
                "nodeName": NODE,
                "containers": [{"name": "main", "image": "x"}],
                "volumes": [
                    {
                        "name": "cache",
                        "csi": {"driver": "csi.gkm.io", "volumeAttributes": attributes},
                    }
                ],
            },
        }
        answer = await self.client.create(resources.PODS, body)
        return str(json.loads(answer.body)["metadata"]["uid"])

    def target(self, uid: str) -> Path:
        return a_target(self.pods, uid)

    async def publish(
        self, uid: str, cache: CacheName = LLAMA, pod: str = f"{TEAM}/worker"
    ) -> CacheVolume | NotThere:
        """Do what kubelet's NodePublishVolume does."""
        target = self.target(uid)
        plan = PublishVolume(volume=f"csi-{uid}", target=target, cache=cache, pod=pod)
        async with self.source.source_of(plan) as found:
            if isinstance(found, CacheVolume):
                target.mkdir(parents=True, exist_ok=True)
                (target.parent / "vol_data.json").write_text(
                    json.dumps({"volumeHandle": f"csi-{uid}"})
                )
                self.mounter.mount(found, target)
        return found

    async def mounted(self, uid: str, cache: CacheName = LLAMA, **named: str) -> CacheVolume:
        """Publish as often as kubelet does, until it is mounted."""
        found: CacheVolume | NotThere = NotThere(absence=Absence.NOT_READY, reason="")

        async def is_mounted() -> bool:
            nonlocal found
            found = await self.publish(uid, cache, **named)
            return isinstance(found, CacheVolume)

        await until_async(is_mounted)
        assert isinstance(found, CacheVolume)
        return found

    def unpublish(self, uid: str) -> None:
        self.mounter.unmount(self.target(uid))
        self.source.released(self.target(uid))

    async def object(self, namespace: str = TEAM) -> GKMCacheNode | None:
        kind = GKMCacheNode if namespace else ClusterGKMCacheNode
        resource = resources.GKM_CACHE_NODES if namespace else resources.CLUSTER_GKM_CACHE_NODES
        with contextlib.suppress(NotFound):
            return await self.client.get(resource, kind, NODE, namespace=namespace or None)
        return None

    async def current(self, digest: Digest, cache: CacheName = LLAMA) -> CachedDigest | None:
        found = await self.object(cache.namespace)
        return None if found is None else found.digests_of(cache.name).get(digest)

    async def state(self, digest: Digest, cache: CacheName = LLAMA) -> tuple[str, str]:
        """Return type and detail of the condition; empty where the digest is not shown."""
        one = await self.current(digest, cache)
        if one is None:
            return "", ""
        state = reported_state(one.conditions)
        return state.type.value, state.detail

    async def until_state(
        self, want: str, digest: Digest, cache: CacheName = LLAMA, *, detail: str = ""
    ) -> str:
        """Wait for a condition; return its detail."""
        found = ("", "")

        async def has_it() -> bool:
            nonlocal found
            found = await self.state(digest, cache)
            return found[0] == want and detail in found[1]

        try:
            await until_async(has_it)
        except TimeoutError:
            raise AssertionError(f"{found} is not {want}, {detail}") from None
        return found[1]

    async def until_not_visible(self, cache: CacheName = LLAMA) -> None:
        async def is_gone() -> bool:
            found = await self.object(cache.namespace)
            return found is None or not found.digests_of(cache.name)

        await until_async(is_gone)

    def pass_time(self, seconds: float) -> None:
        """Let both clocks go on: content ages by the one, and was used at a time of the other."""
        self.clock.offset_s += seconds
        self.clock.wall_offset_s += seconds
        self.role.reconciler.trigger()

    def contents(self) -> set[str]:
        return {
            path.name.replace("-", ":", 1) for path in (self.folder / "caches/content").iterdir()
        }


@asynccontextmanager
async def a_cache_node(folder: Path, **registry: Any) -> AsyncIterator[CacheNode]:
    """Yield a node whose role does not run yet."""
    clock = LoopClock()
    async with (
        InMemoryApiServer(clock) as api,
        a_client(api, clock) as client,
        RegistryDouble(**registry) as opened,
    ):
        for definition in build_cache_crds():
            await client.create(resources.CUSTOM_RESOURCE_DEFINITIONS, definition)
        for namespace in (TEAM, OTHER_TEAM, "gpu"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await client.create(resources.NAMESPACES, body)
        await client.create(
            resources.NODES,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}},
            },
        )
        yield CacheNode(folder, api, client, opened)
