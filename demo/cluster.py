"""The demo's cluster: fakes of API server, scheduler, kubelet and node agents, and the real server."""

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any, Final, Self, final

import aiohttp
import yaml

from api.foreign.core import Pod
from api.kinds.gkmcache import GKMCache
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.meta import Condition, Model, ObjectMeta
from api.names import ASSIGNMENT_ANNOTATION
from certs.tls import client_context
from demo.child_programs import output_of
from demo.control_plane import DemoServer, write_kubeconfig
from demo.kubectl_stand_in import KubectlStandIn
from demo.node_caches import NodeCaches, cache_settings
from demo.node_programs import NodePrograms
from demo.signed_images import DemoImages
from demo.software_programs import SoftwarePrograms
from http_edge.system_clock import SystemClock
from kube.client import MERGE_PATCH, KubeClient
from kube.config.connection import StaticConnection
from kube.errors import NotFound
from kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    GKM_CACHES,
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    GPU_POOLS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    PODS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from kube.resources import NODES as NODE_RESOURCE
from manifests import constants
from manifests.caches.crds import build_cache_crds
from manifests.install import webhooks
from manifests.install.crds import build_crds
from manifests.nvidia.operator_crds import build_operator_crds
from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks.chain import User
from simulator.karpenter.fake_karpenter import FakeKarpenter, KarpenterTimes
from simulator.karpenter.karpenter_crds import karpenter_crds
from simulator.node import nfd
from simulator.node.daemon_sets import FakeDaemonSets
from simulator.node.inline_volumes import InlineVolumes
from simulator.node.joining_nodes import JoiningNodes, NodeBehaviour
from simulator.node.kubelet import FakeKubelet, register_node
from simulator.node.pool_plugins import PoolPlugins
from simulator.scheduler.extender_client import ExtenderClient
from simulator.scheduler.fake import FakeScheduler, ScheduledNode

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from pathlib import Path
    from types import TracebackType

    from agent.settings import AgentSettings
    from demo.fleet import Fleet
    from simulator.node.node_agent import FakeNodeAgent

SERVER_USER: Final = constants.service_account_username(constants.DEFAULT_NAMESPACE)
SERVER_TOKEN: Final = "demo-server"  # noqa: S105  # of a cluster that lives for a minute on loopback
ADMIN_TOKEN: Final = "demo-admin"  # noqa: S105  # likewise
KARPENTER_TIMES: Final = KarpenterTimes(batch_s=0.3, validation_s=1.0)
"""Karpenter's own: 1 and 15 s or more."""

CACHE_GRACE_S: Final = 1.0
"""Time that content of caches stays which nothing needs; the default is five minutes."""


class _PodStatus(Model, frozen=True):
    conditions: list[Condition] | None = None


class _ScheduledPod(Model, frozen=True):
    status: _PodStatus = _PodStatus()


class ApiEvent(Model, frozen=True):
    """An Event, as the demo shows it."""

    reason: str = ""
    note: str = ""
    regarding: ObjectMeta = ObjectMeta()


@final
class DemoCluster:
    """All processes and fakes; `client` is the operator's."""

    def __init__(self, folder: "Path", log: "Path", fleet: "Fleet") -> None:
        self.clock = SystemClock()
        self._fleet = fleet
        self.server = DemoServer(folder, log, self.clock)
        self.images = DemoImages(folder / "images")
        self._folder = folder
        self._stack = contextlib.AsyncExitStack()
        self.api = InMemoryApiServer(
            self.clock,
            tokens={
                ADMIN_TOKEN: User(name="kubernetes-admin", groups=("system:masters",)),
                SERVER_TOKEN: User(name=SERVER_USER, groups=("system:serviceaccounts",)),
            },
        )
        self.volumes = InlineVolumes(nodes=folder / "kubelets")
        self.client: KubeClient
        self.kubectl: KubectlStandIn
        self.kubelet: FakeKubelet
        self.programs: NodePrograms
        self.software: SoftwarePrograms
        """Software of nodes whose software a ClusterPolicy brings."""

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.api)
            self.server.kernel_caches = {"enabled": False}
            self.server.serves_software = bool(self._fleet.systems)
            if self._fleet.has_caches:
                await stack.enter_async_context(self.images.registry)
                self.server.kernel_caches = {
                    "verification": {"keys": [self.images.public_pem]},
                    "registries": {
                        "plain_http": [self.images.registry.host],
                        "private": [self.images.registry.host],
                    },
                    "grace_s": CACHE_GRACE_S,
                }
            self.client = await stack.enter_async_context(self.administrator())
            self.kubectl = await stack.enter_async_context(
                KubectlStandIn(self._folder / "kubectl", self.api.url, ADMIN_TOKEN)
            )
            self.programs = NodePrograms(
                self.client, self.clock, folder=self._folder / "nodes", fleet=self._fleet
            )
            self.software = SoftwarePrograms(self.client, self.programs)
            await self._install()
            await stack.enter_async_context(
                self.server.serving(self.api.url, SERVER_TOKEN, self.client)
            )
            await self._start_doubles(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        await self._stack.aclose()

    @property
    def agents(self) -> "dict[str, FakeNodeAgent]":
        """The node agents, by node."""
        return self.programs.agents

    async def join(self, node: str) -> None:
        """Let a node join the cluster; its labels are those that kubelet sets."""
        system = self._fleet.systems.get(node)
        if system is None:
            await register_node(self.client, node, {})
            return
        labels, info = system.labels(), system.node_info()
        await register_node(self.client, node, {}, labels=labels, system=info)

    async def create_pod(self, body: "Mapping[str, Any]") -> list[str]:
        """Create a pod as a user would; return the warnings to the user.

        Raises:
            AdmissionDenied: admission refused it.
        """
        return await self._write("POST", PODS.path(body["metadata"]["namespace"]), body)

    async def assign(self, device: str, pool: str) -> list[str]:
        """Annotate a device with a pool, as `kubectl annotate` does; return the warnings.

        Raises:
            AdmissionDenied: admission refused it.
        """
        patch = {"metadata": {"annotations": {ASSIGNMENT_ANNOTATION: pool}}}
        return await self._write("PATCH", GPU_DEVICES.path(None, device), patch)

    async def change_pool(self, name: str, spec: "Mapping[str, Any]") -> list[str]:
        """Change fields of a pool's spec, as `kubectl patch` does; return the warnings.

        Raises:
            AdmissionDenied: admission refused it.
        """
        return await self._write("PATCH", GPU_POOLS.path(None, name), {"spec": spec})

    async def create_cache(self, body: "Mapping[str, Any]") -> list[str]:
        """Create a GKMCache; return the warnings.

        Raises:
            AdmissionDenied: admission refused it.
        """
        return await self._write("POST", GKM_CACHES.path(body["metadata"]["namespace"]), body)

    async def change_cache(self, name: str, image: str) -> list[str]:
        """Change the image of a GKMCache; return the warnings.

        Raises:
            AdmissionDenied: admission refused it.
        """
        path = GKM_CACHES.path("default", name)
        return await self._write("PATCH", path, {"spec": {"image": image}})

    async def cache(self, name: str) -> GKMCache:
        return await self.client.get(GKM_CACHES, GKMCache, name, namespace="default")

    async def what_if(self, body: "Mapping[str, Any]") -> str:
        """Return what `gpu-control-plane simulate --pod` says about a pod.

        Raises:
            OSError: it cannot say anything.
        """
        kubeconfig = write_kubeconfig(self._folder / "user", self.api.url, ADMIN_TOKEN)
        file = self._folder / "pod.yaml"
        file.write_text(yaml.safe_dump(body), encoding="utf-8")
        return await output_of(
            "cli", "simulate", "--pod", str(file), "--kubeconfig", str(kubeconfig)
        )

    async def _write(self, method: str, path: str, body: "Mapping[str, Any]") -> list[str]:
        """Write without our own client, which truncates messages and drops warnings."""
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        if method == "PATCH":
            headers["Content-Type"] = MERGE_PATCH
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, f"{self.api.url}{path}", json=body) as answer,
        ):
            if answer.status >= 400:
                raise AdmissionDenied((await answer.json())["message"])
            return [
                warning.split('"', 1)[1].rstrip('"')
                for warning in answer.headers.getall("Warning", [])
            ]

    async def pod(self, name: str, namespace: str = "default") -> Pod | None:
        try:
            return await self.client.get(PODS, Pod, name, namespace=namespace)
        except NotFound:
            return None

    async def pod_condition(
        self, name: str, type_: str, namespace: str = "default"
    ) -> Condition | None:
        pod = await self.client.get(PODS, _ScheduledPod, name, namespace=namespace)
        return next(
            (condition for condition in pod.status.conditions or () if condition.type == type_),
            None,
        )

    async def why_unscheduled(self, name: str, namespace: str = "default") -> str:
        """Return kube-scheduler's message about an unschedulable pod, or nothing."""
        found = await self.pod_condition(name, "PodScheduled", namespace)
        return found.message if found is not None and found.status == "False" else ""

    async def pool(self, name: str) -> GPUPool:
        return await self.client.get(GPU_POOLS, GPUPool, name)

    async def devices(self) -> dict[str, GPUDevice]:
        found = (await self.client.list_(GPU_DEVICES, GPUDevice)).items
        return {entry.name: entry for entry in sorted(found, key=lambda item: item.name)}

    async def device(self, name: str) -> GPUDevice:
        return await self.client.get(GPU_DEVICES, GPUDevice, name)

    async def inventories(self) -> list[GPUNodeInventory]:
        return (await self.client.list_(GPU_NODE_INVENTORIES, GPUNodeInventory)).items

    async def allocatable(self, node: str, resource: str) -> int:
        """Return the allocatable units of a resource on a node."""
        found = await self.client.get(NODE_RESOURCE, ScheduledNode, node)
        return found.allocatable(resource)

    async def event(self, reason: str, name: str, *, says: str = "") -> ApiEvent | None:
        """Return an Event with this reason about an object of this name, or None."""
        for event in (await self.client.list_(EVENTS, ApiEvent)).items:
            if (event.reason, event.regarding.name) == (reason, name) and says in event.note:
                return event
        return None

    def server_writes(self) -> list[tuple[str, str]]:
        """Return method and path of every write of the server to pods."""
        return [
            (request.method, request.path)
            for request in self.api.requests
            if request.user == SERVER_USER and request.method != "GET" and "/pods/" in request.path
        ]

    def server_pod_reads(self) -> int:
        """Return how often the server read a single pod."""
        return sum(
            request.user == SERVER_USER and request.method == "GET" and "/pods/" in request.path
            for request in self.api.requests
        )

    def administrator(self) -> KubeClient:
        """Return a new client with all rights, to be entered."""
        return KubeClient(StaticConnection(self.api.url, token=ADMIN_TOKEN), self.clock)

    async def _install(self) -> None:
        """Install CRDs and webhooks."""
        for name in (constants.DEFAULT_NAMESPACE, nfd.NAMESPACE, *self._fleet.namespaces):
            await self.client.create(
                NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        for crd in (*build_crds(), *build_cache_crds(), nfd.node_feature_crd(), *karpenter_crds()):
            await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        for crd in build_operator_crds() if self._fleet.systems else ():
            await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        settings = webhooks.WebhookSettings(
            client=webhooks.UrlClient(base_url=self.server.url),
            serves_caches=self._fleet.has_caches,
        )
        await self.client.create(
            MUTATING_WEBHOOK_CONFIGURATIONS, webhooks.build_mutating_configuration(settings)
        )
        await self.client.create(
            VALIDATING_WEBHOOK_CONFIGURATIONS, webhooks.build_validating_configuration(settings)
        )

    async def stored_caches(self, node: str) -> list[str]:
        """Return the digests of the caches that are on a node's disk."""
        directory = self._cache_directory(node) / "content"
        return [
            item.replace("-", ":", 1)
            for item in sorted(await asyncio.to_thread(os.listdir, directory))
        ]

    def _cache_directory(self, node: str) -> "Path":
        return self._folder / "nodes" / node / "gkm"

    def _cache_settings(self, node: str) -> "AgentSettings":
        return cache_settings(
            node,
            self._cache_directory(node),
            kubelet=self.volumes.root(node),
            registry=self.images.registry.host,
            grace_s=CACHE_GRACE_S,
        )

    async def _start_doubles(self, stack: contextlib.AsyncExitStack) -> None:
        bundle = await self.server.bundle(self.client)
        extender = await stack.enter_async_context(
            ExtenderClient(
                f"{self.server.url}{constants.EXTENDER_PREFIX}",
                client_context(bundle.trust_pem, bundle.client),
            )
        )
        group = await stack.enter_async_context(BackgroundTasks())
        group.spawn(FakeScheduler(self.client, extender, self.clock).run(), "kube-scheduler")
        runtime = self.software if self._fleet.systems else self.programs
        self.kubelet = FakeKubelet(self.client, self.clock, runtime, volumes=self.volumes)
        group.spawn(self.kubelet.run(), "kubelet")
        for node in self._fleet.nodes if self._fleet.has_caches else ():
            settings, devices = self._cache_settings(node), self._fleet.devices_of(node)
            caches = NodeCaches(self.client, self.clock, settings, devices=devices)
            for name, work in caches.tasks().items():
                group.spawn(work, f"{node}/{name}")
        sets = FakeDaemonSets(self.client, self.clock, namespace=constants.DEFAULT_NAMESPACE)
        group.spawn(sets.run(), "DaemonSets")
        plugins = PoolPlugins(self.client, self.clock, namespace=constants.DEFAULT_NAMESPACE)
        group.spawn(plugins.run(), "device plugins")
        if not self._fleet.elastic:
            return
        karpenter = FakeKarpenter(self.client, self.clock, times=KARPENTER_TIMES)
        group.spawn(karpenter.run(), "Karpenter")
        # the agents of its nodes are pods, as on any other node
        behaviour = {self._fleet.elastic: NodeBehaviour(devices_after_s=None)}
        joining = JoiningNodes(self.client, self.clock, behaviour)
        group.spawn(joining.run(), "kubelets of new nodes")


class AdmissionDenied(Exception):  # noqa: N818  # it is named for what happened
    """Admission refused the request; the text is the user's message."""


@final
class BackgroundTasks:
    """Endless tasks that are cancelled on exit. What the body of the context raises leaves it as it is."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[object]] = []

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(None, None, None)

    def spawn(self, work: "Coroutine[Any, Any, object]", name: str) -> None:
        self._tasks.append(self._group.create_task(work, name=name))
