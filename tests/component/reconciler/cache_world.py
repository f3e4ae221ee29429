"""Kernel caches at an API server in memory, as users, admission and nodes leave them, and the leader's controllers.

Nothing runs by itself: `until_stable` shows the world to the process and reconciles every key until nothing is written.
Admission is played by `admit`: it signs what has no signature, as the webhook does within a request.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from api.cache_name import CacheName
from api.foreign.core import Node
from api.image_reference import Digest
from api.kinds.gkmcache import CacheImageFacts, ClusterGKMCache, GKMCache
from api.kinds.gkmcachenode import CachedDigest, ClusterGKMCacheNode, GKMCacheNode
from api.kinds.gpudevice import GPUDevice
from api.names import API_VERSION, GKM_API_VERSION, MUTATION_SIGNATURE_ANNOTATION
from kernelcache import admitted_image
from kernelcache.signatures.mutation import MutationKeys
from kube import resources
from kube.client import KubeClient
from kube.errors import AlreadyExists, KubeError, NotFound
from manifests.caches.crds import build_cache_crds
from manifests.install.crds import build_crds
from pool.facts import node_facts
from reconciler.kernelcache.cache_node_cleanup import CacheNodeCleanup
from reconciler.kernelcache.cache_status import CacheSources, CacheStatusReconciler
from reconciler.kernelcache.device_targets import DeviceTargets
from reconciler.sinks.device import observe_device
from reconciler.sinks.gkm_cache import observe_cache
from reconciler.sinks.gkm_cache_node import observe_cache_node
from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks.chain import User
from tests.support.client_of_api import a_client
from tests.support.controllers import new_stores
from tests.support.kernel_caches import IMAGE
from tests.support.loop_clock import LoopClock
from tests.support.recorded_events import RecordedEvents
from tests.support.scheduling import Time

KEYS: Final = MutationKeys(current=b"k" * 32, previous=None)
NEXT_KEYS: Final = MutationKeys(current=b"n" * 32, previous=b"k" * 32)
LLAMA: Final = CacheName(namespace="team", name="llama")
SHARED: Final = CacheName(namespace="", name="shared")
MOST_ROUNDS: Final = 30
LEADER: Final = "leader"


@dataclass
class PublicKeys:
    """The proof as the server has it."""

    keys: MutationKeys | None = KEYS

    def is_loaded(self) -> bool:
        return self.keys is not None

    def proven(self, cache: GKMCache) -> admitted_image.ProvenImage | str:
        assert self.keys is not None, "asked before the keys are read"
        meta = cache.metadata
        return admitted_image.proven_image(
            meta.annotations or {},
            admitted_image.CacheRevision(
                name=cache.cache_name, generation=meta.generation, image=cache.spec.image
            ),
            self.keys,
        )


@dataclass
class LeadingProcess:
    """One leader: what it has seen, and its controllers."""

    client: KubeClient
    time: Time
    proof: PublicKeys
    recorder: RecordedEvents = field(default_factory=RecordedEvents)

    def __post_init__(self) -> None:
        self.stores = new_stores()
        self.targets = DeviceTargets(self.stores.devices)
        self.stores.devices.changes.subscribe(self.targets.observe)
        self.status = CacheStatusReconciler(
            self.client,
            CacheSources(
                caches=self.stores.gkm_caches,
                nodes=self.stores.gkm_cache_nodes,
                targets=self.targets,
                proof=self.proof,
            ),
            recorder=self.recorder,
            now=self.time.now,
        )
        self.cleanup = CacheNodeCleanup(self.client, self.stores.index, self.stores.gkm_cache_nodes)


async def _nothing() -> None:
    """Do nothing after a step."""


@dataclass
class CacheWorld:
    api: InMemoryApiServer
    admin: KubeClient
    """Sees the world without faults in its way."""
    client: KubeClient
    """The leader's."""
    time: Time = field(default_factory=Time)
    admission_keys: MutationKeys | None = KEYS
    """None: the webhook does not answer, and nothing is signed."""
    proof: PublicKeys = field(default_factory=PublicKeys)
    after_step: Callable[[], Awaitable[None]] = _nothing
    terms: int = 1

    def __post_init__(self) -> None:
        self.process = LeadingProcess(self.client, self.time, self.proof)

    async def change_leader(self) -> None:
        self.terms += 1
        self.process = LeadingProcess(self.client, self.time, self.proof)
        await self.observe()

    # --- the leader ------------------------------------------------------------------------------

    async def observe(self) -> None:
        """Let the process see the world as it is now."""
        await self.admit()
        stores = self.process.stores
        stores.node_sink.replace_all(
            (await self.admin.list_as(resources.NODES, Node, node_facts)).items
        )
        stores.device_sink.replace_all(
            (await self.admin.list_as(resources.GPU_DEVICES, GPUDevice, observe_device)).items
        )
        stored, on_nodes = stores.gkm_caches, stores.gkm_cache_nodes
        for resource, kind, store in (
            (resources.GKM_CACHES, GKMCache, stored.namespaced),
            (resources.CLUSTER_GKM_CACHES, ClusterGKMCache, stored.cluster),
        ):
            store.replace_all((await self.admin.list_as(resource, kind, observe_cache)).items)
        for resource, node_kind, node_store in (
            (resources.GKM_CACHE_NODES, GKMCacheNode, on_nodes.namespaced),
            (resources.CLUSTER_GKM_CACHE_NODES, ClusterGKMCacheNode, on_nodes.cluster),
        ):
            node_store.replace_all(
                (await self.admin.list_as(resource, node_kind, observe_cache_node)).items
            )

    async def reconcile(self) -> None:
        """Reconcile every key once; a fault of the API server is met by the next round."""
        process = self.process
        for name in list(process.stores.gkm_caches.names()):
            await self._step(process.status.reconcile(name))
        for node in process.stores.gkm_cache_nodes.node_names():
            await self._step(process.cleanup.reconcile(node))

    async def _step(self, reconciling: Awaitable[object]) -> None:
        with contextlib.suppress(KubeError):
            await reconciling
        await self.after_step()

    async def until_stable(self, *, user: str = LEADER) -> None:
        """Observe and reconcile until nothing is written any more."""
        for _ in range(MOST_ROUNDS):
            await self.observe()
            before = len(self.api.requests.writes(user=user))
            await self.reconcile()
            if len(self.api.requests.writes(user=user)) == before:
                return
        raise AssertionError("it does not come to rest")

    def events(self) -> list[tuple[str, str]]:
        return [(item.type, item.reason) for item in self.process.recorder.taken()]

    # --- what others do --------------------------------------------------------------------------

    async def add_cache(
        self,
        name: CacheName = LLAMA,
        *,
        digest: Digest,
        facts: CacheImageFacts = IMAGE,
        keys: MutationKeys = KEYS,
        **spec: Any,
    ) -> None:
        """Create a cache as a user does, with what admission adds."""
        image = spec.pop("image", "registry.example/llama:1")
        body = {
            "apiVersion": GKM_API_VERSION,
            "kind": _cache_resource(name).kind,
            "metadata": {
                **_metadata(name.namespace, name.name),
                "annotations": _signed(name, 1, image, digest, facts, keys=keys),
            },
            "spec": {"image": image, **spec},
        }
        await self.admin.create(_cache_resource(name), body)

    async def change_image(self, name: CacheName = LLAMA, *, image: str, digest: Digest) -> None:
        cache = await self.cache(name)
        assert self.admission_keys is not None
        annotations = _signed(
            name,
            cache.metadata.generation + 1,
            image,
            digest,
            IMAGE,
            keys=self.admission_keys,
        )
        await self.patch(name, {"metadata": {"annotations": annotations}, "spec": {"image": image}})

    async def annotate(self, annotations: dict[str, str | None]) -> None:
        """Change annotations by their names in `gkm.io`, past admission."""
        found = {f"gkm.io/{key}": value for key, value in annotations.items()}
        await self.patch(LLAMA, {"metadata": {"annotations": found}})

    async def patch(self, name: CacheName, body: dict[str, Any]) -> None:
        await self.admin.merge_patch(
            _cache_resource(name), body, name=name.name, namespace=name.namespace or None
        )

    async def delete(self, name: CacheName = LLAMA) -> None:
        await self.admin.delete(_cache_resource(name), name.name, namespace=name.namespace or None)

    async def admit(self) -> None:
        """Sign each cache that lost its signature, for its digest."""
        if self.admission_keys is None:
            return
        for resource, kind in (
            (resources.GKM_CACHES, GKMCache),
            (resources.CLUSTER_GKM_CACHES, ClusterGKMCache),
        ):
            for cache in (await self.admin.list_(resource, kind)).items:
                meta, digest = cache.metadata, cache.annotated_digest
                if digest is None or meta.annotation(MUTATION_SIGNATURE_ANNOTATION):
                    continue
                signed = _signed(
                    cache.cache_name,
                    meta.generation,
                    cache.spec.image,
                    Digest(digest),
                    IMAGE,
                    keys=self.admission_keys,
                )
                await self.patch(cache.cache_name, {"metadata": {"annotations": signed}})

    async def cache(self, name: CacheName = LLAMA) -> GKMCache:
        return await self.admin.get(
            _cache_resource(name),
            GKMCache if name.namespace else ClusterGKMCache,
            name.name,
            namespace=name.namespace or None,
        )

    async def is_there(self, name: CacheName = LLAMA) -> bool:
        try:
            await self.cache(name)
        except NotFound:
            return False
        return True

    async def add_node(
        self, node: str, *, pool: str | None = "whole", capability: str = "9.0", devices: int = 1
    ) -> None:
        await self.admin.create(
            resources.NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
        )
        for number in range(devices):
            name = f"{node}-{number}"
            await self.admin.create(
                resources.GPU_DEVICES,
                {"apiVersion": API_VERSION, "kind": "GPUDevice", "metadata": {"name": name}},
            )
            status: dict[str, Any] = {"nodeName": node, "computeCapability": capability}
            if pool is not None:
                status["poolRef"] = {"name": pool}
            await self.admin.merge_patch(
                resources.GPU_DEVICES, {"status": status}, name=name, subresource="status"
            )

    async def remove_node(self, node: str) -> None:
        await self.admin.delete(resources.NODES, node)

    async def report(
        self,
        node: str,
        caches: dict[str, dict[str, CachedDigest]],
        *,
        namespace: str = "team",
        finalizers: list[str] | None = None,
    ) -> None:
        """Write a node's object, as its agent does."""
        resource = resources.GKM_CACHE_NODES if namespace else resources.CLUSTER_GKM_CACHE_NODES
        where: dict[str, Any] = {"name": node, "namespace": namespace or None}
        held = [f"gkm.io.{name}/finalizer" for name in caches] if finalizers is None else finalizers
        try:
            await self.admin.get(resource, dict[str, Any], **where)
        except NotFound:
            await self.admin.create(
                resource,
                {
                    "apiVersion": GKM_API_VERSION,
                    "kind": resource.kind,
                    "metadata": _metadata(namespace, node),
                },
            )
        await self.admin.merge_patch(resource, {"metadata": {"finalizers": held or None}}, **where)
        # A merge would keep caches that the node no longer has.
        for status in ({"caches": None}, {"nodeName": node, "caches": _raw(caches)}):
            await self.admin.merge_patch(
                resource, {"status": status}, subresource="status", **where
            )

    async def node_objects(self) -> list[str]:
        found = [
            *(await self.admin.list_(resources.GKM_CACHE_NODES, GKMCacheNode)).items,
            *(await self.admin.list_(resources.CLUSTER_GKM_CACHE_NODES, GKMCacheNode)).items,
        ]
        return [f"{item.metadata.namespace}/{item.metadata.name}" for item in found]

    async def forget_node_object(self, node: str, namespace: str = "team") -> None:
        await self.report(node, {}, namespace=namespace, finalizers=[])
        await self.admin.delete(resources.GKM_CACHE_NODES, node, namespace=namespace)


def _metadata(namespace: str, name: str) -> dict[str, Any]:
    return {"name": name, **({"namespace": namespace} if namespace else {})}


def _raw(caches: dict[str, dict[str, CachedDigest]]) -> Any:
    return msgspec.to_builtins(caches)


def _cache_resource(name: CacheName) -> resources.Resource:
    return resources.GKM_CACHES if name.namespace else resources.CLUSTER_GKM_CACHES


def _signed(
    name: CacheName,
    generation: int,
    image: str,
    digest: Digest,
    facts: CacheImageFacts,
    *,
    keys: MutationKeys,
) -> dict[str, str]:
    return admitted_image.image_annotations(
        admitted_image.AdmittedImage(digest=digest, facts=facts),
        admitted_image.CacheRevision(name=name, generation=generation, image=image),
        keys,
        user="alice",
    )


async def install_cache_kinds(admin: KubeClient) -> None:
    """Install the definitions of kernel caches' kinds, where they are missing."""
    for definition in build_cache_crds():
        with contextlib.suppress(AlreadyExists):
            await admin.create(resources.CUSTOM_RESOURCE_DEFINITIONS, definition)


@asynccontextmanager
async def a_cache_world() -> AsyncIterator[CacheWorld]:
    """A namespace `team`, and nothing in it. The leader is the user `LEADER` of the API server."""
    clock = LoopClock()
    tokens = {name: User(name=name) for name in ("admin", LEADER)}
    async with (
        InMemoryApiServer(clock, tokens=tokens) as api,
        a_client(api, clock, token="admin") as admin,
        a_client(api, clock, token=LEADER) as client,
    ):
        definitions = {crd["metadata"]["name"]: crd for crd in (*build_crds(), *build_cache_crds())}
        for definition in definitions.values():
            await admin.create(resources.CUSTOM_RESOURCE_DEFINITIONS, definition)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await admin.create(resources.NAMESPACES, namespace)
        yield CacheWorld(api, admin, client)
