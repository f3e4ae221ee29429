"""The demo's cluster: in-memory API server, scheduler and kubelet doubles, and our real server.

Three nodes of eight cards. n1 and n2 belong to the pool of whole cards; n3 has four cards in it and
four in the pool of time slices.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any, Final, Self, final

import aiohttp
import msgspec
import yaml

from api.core import Pod
from api.gpupool import GPUPool
from api.meta import Model, ObjectMeta
from api.names import API_VERSION, RESOURCE_PREFIX
from certs.bundle import Bundle
from certs.tls import client_context
from kube.client import KubeClient
from kube.configuration import configuration_for
from kube.errors import NotFound
from kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    GPU_DEVICES,
    GPU_POOLS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    PODS,
    SECRETS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from manifests import constants
from manifests.crds import build_crds
from manifests.webhooks import (
    UrlClient,
    WebhookSettings,
    build_mutating_configuration,
    build_validating_configuration,
)
from server.clock import SystemClock
from simulator import conditions
from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks import User
from simulator.extender import ExtenderClient
from simulator.kubelet import KubeletDouble, register_node
from simulator.scheduler import SchedulerDouble

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from pathlib import Path
    from types import TracebackType

SERVER_USER: Final = constants.service_account_username(constants.DEFAULT_NAMESPACE)
SERVER_TOKEN: Final = "demo-server"  # noqa: S105  # of a cluster that lives for a minute on loopback
ADMIN_TOKEN: Final = "demo-admin"  # noqa: S105  # likewise
CARDS_PER_NODE: Final = 8
SLICED_FROM: Final = 4
"""Cards 4..7 of n3 are time-sliced."""
NODES: Final = ("n1", "n2", "n3")
WHOLE, SLICES = "whole", "slices"
SLICES_PER_CARD: Final = 4
START_TIMEOUT_S: Final = 60.0


class _Secret(msgspec.Struct):
    data: dict[str, bytes]


class _PodCondition(Model, frozen=True):
    type: str
    status: str
    message: str = ""


class _PodStatus(Model, frozen=True):
    conditions: list[_PodCondition] | None = None


class _ScheduledPod(Model, frozen=True):
    status: _PodStatus = _PodStatus()


class ApiEvent(Model, frozen=True):
    """An Event, as the demo shows it."""

    reason: str = ""
    note: str = ""
    regarding: ObjectMeta = ObjectMeta()


@final
class DemoCluster:
    """Everything running; `client` is the operator's."""

    def __init__(self, folder: "Path", log: "Path") -> None:
        self.clock = SystemClock()
        self._folder = folder
        self._log = log
        self._stack = contextlib.AsyncExitStack()
        self._port = _free_port()
        self.server_url = f"https://127.0.0.1:{self._port}"
        self.api = InMemoryApiServer(
            self.clock,
            tokens={
                ADMIN_TOKEN: User(name="kubernetes-admin", groups=("system:masters",)),
                SERVER_TOKEN: User(name=SERVER_USER, groups=("system:serviceaccounts",)),
            },
            match_condition=conditions.evaluate,
        )
        self.client: KubeClient
        self.kubelet: KubeletDouble
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        """Start all of it."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.api)
            self.client = await stack.enter_async_context(self._client(ADMIN_TOKEN))
            await self._install()
            await self._start_server(stack)
            await self._start_doubles(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        """Stop all of it."""
        await self._stack.aclose()

    # --- what the story does -------------------------------------------------------------------

    async def create_pod(self, body: "Mapping[str, Any]") -> list[str]:
        """Create a pod as a user would; return the warnings that the user sees.

        Raises:
            PodDenied: admission refused it.
        """
        meta = body["metadata"]
        url = f"{self.api.url}{PODS.path(meta['namespace'])}"
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(url, json=body) as answer,
        ):
            if answer.status != 201:
                raise PodDenied((await answer.json())["message"])
            return [
                warning.split('"', 1)[1].rstrip('"')
                for warning in answer.headers.getall("Warning", [])
            ]

    async def pod(self, name: str, namespace: str = "default") -> Pod | None:
        """Return a pod, or None."""
        try:
            return await self.client.get(PODS, Pod, name, namespace=namespace)
        except NotFound:
            return None

    async def why_unscheduled(self, name: str, namespace: str = "default") -> str:
        """Return what kube-scheduler wrote about a pod that it found no node for; else nothing."""
        pod = await self.client.get(PODS, _ScheduledPod, name, namespace=namespace)
        for condition in pod.status.conditions or ():
            if (condition.type, condition.status) == ("PodScheduled", "False"):
                return condition.message
        return ""

    async def pool(self, name: str) -> GPUPool:
        """Return a pool."""
        return await self.client.get(GPU_POOLS, GPUPool, name)

    def server_writes(self) -> list[tuple[str, str]]:
        """Return method and path of every write that our server made on pods."""
        return [
            (request.method, request.path)
            for request in self.api.requests
            if request.user == SERVER_USER and request.method != "GET" and "/pods/" in request.path
        ]

    def server_pod_reads(self) -> int:
        """Return how often our server read a single pod."""
        return sum(
            request.user == SERVER_USER and request.method == "GET" and "/pods/" in request.path
            for request in self.api.requests
        )

    # --- starting ------------------------------------------------------------------------------

    def _client(self, token: str) -> KubeClient:
        return KubeClient(configuration_for(self.api.url, token=token), self.clock)

    async def _install(self) -> None:
        """Do what an operator does once: CRDs, webhooks, pools; and what node software reports."""
        for name in (constants.DEFAULT_NAMESPACE, "ml-team", "students"):
            await self.client.create(
                NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        for crd in build_crds():
            await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        settings = WebhookSettings(client=UrlClient(base_url=self.server_url))
        await self.client.create(
            MUTATING_WEBHOOK_CONFIGURATIONS, build_mutating_configuration(settings)
        )
        await self.client.create(
            VALIDATING_WEBHOOK_CONFIGURATIONS, build_validating_configuration(settings)
        )
        for number, node in enumerate(NODES):
            await self._add_node(node, sliced=number == len(NODES) - 1)

    async def add_pools(self) -> None:
        """Create the two pools, through the validating webhook."""
        for pool in pools():
            await self.client.create(GPU_POOLS, pool)

    async def _add_node(self, node: str, *, sliced: bool) -> None:
        whole = SLICED_FROM if sliced else CARDS_PER_NODE
        allocatable = {f"{RESOURCE_PREFIX}{WHOLE}": whole}
        if sliced:
            allocatable[f"{RESOURCE_PREFIX}{SLICES}"] = (CARDS_PER_NODE - whole) * SLICES_PER_CARD
        await register_node(self.client, node, allocatable)
        for card in range(CARDS_PER_NODE):
            device = a_device(node, card, WHOLE if card < whole else SLICES)
            await self.client.create(GPU_DEVICES, device)
            await self.client.merge_patch(
                GPU_DEVICES,
                {"status": device["status"]},
                name=device["metadata"]["name"],
                subresource="status",
            )

    async def _start_server(self, stack: contextlib.AsyncExitStack) -> None:
        kubeconfig = self._folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(self.api.url)), encoding="utf-8")
        settings = self._folder / "settings.yaml"
        settings.write_text(
            yaml.safe_dump(
                {
                    "kubeconfig": str(kubeconfig),
                    "listen": {"host": "127.0.0.1", "port": self._port},
                    "tls": {"ip_addresses": ["127.0.0.1"]},
                    "drain_s": 0,
                }
            ),
            encoding="utf-8",
        )
        log = stack.enter_context(self._log.open("wb"))
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "server",
            "serve",
            "--settings",
            str(settings),
            stderr=log,
            env={key: value for key, value in os.environ.items() if key != "KUBECONFIG"},
        )
        stack.push_async_callback(self._stop_server)
        await self._wait_ready()

    async def _stop_server(self) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.wait()

    async def _wait_ready(self) -> None:
        deadline = self.clock.monotonic() + START_TIMEOUT_S
        while not await self._is_ready():
            if self._process.returncode is not None:
                raise OSError(f"the server ended with status {self._process.returncode}")
            if self.clock.monotonic() > deadline:
                raise OSError(f"the server was not ready after {START_TIMEOUT_S:g} s")
            await asyncio.sleep(0.1)

    async def _is_ready(self) -> bool:
        url = f"{self.server_url}{constants.READINESS_PATH}"
        try:
            context = client_context((await self._bundle()).trust_pem)
            async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
                return answer.status == 200  # OK
        except (aiohttp.ClientError, NotFound):
            return False

    async def _bundle(self) -> Bundle:
        secret = await self.client.get(
            SECRETS, _Secret, constants.SERVING_SECRET, namespace=constants.DEFAULT_NAMESPACE
        )
        return Bundle.from_secret(secret.data)

    async def _start_doubles(self, stack: contextlib.AsyncExitStack) -> None:
        bundle = await self._bundle()
        extender = await stack.enter_async_context(
            ExtenderClient(
                f"{self.server_url}{constants.EXTENDER_PREFIX}",
                client_context(bundle.trust_pem, bundle.client),
            )
        )
        group = await stack.enter_async_context(_Background())
        group.spawn(SchedulerDouble(self.client, extender, self.clock).run(), "kube-scheduler")
        self.kubelet = KubeletDouble(self.client, self.clock)
        group.spawn(self.kubelet.run(), "kubelet")


class PodDenied(Exception):  # noqa: N818  # it is named for what happened
    """Admission refused a pod; the text is what the user sees."""


@final
class _Background:
    """Endless tasks that are cancelled at the end."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(None, None, None)

    def spawn(self, work: "Coroutine[Any, Any, None]", name: str) -> None:
        """Run it until the end."""
        self._tasks.append(self._group.create_task(work, name=name))


def pools() -> list[dict[str, Any]]:
    """Return the demo's two pools, as an operator would write them."""
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "GPUPool",
            "metadata": {"name": WHOLE},
            "spec": {
                "allocation": {"mode": "Exclusive"},
                "access": {"namespaces": ["default", "ml-team"]},
            },
        },
        {
            "apiVersion": API_VERSION,
            "kind": "GPUPool",
            "metadata": {"name": SLICES},
            "spec": {
                "allocation": {"mode": "TimeSlice", "slicesPerDevice": SLICES_PER_CARD},
                "reservation": {"ttl": "5s"},
            },
        },
    ]


def a_device(node: str, card: int, pool: str) -> dict[str, Any]:
    """Return what the inventory reports of a card, already assigned to its pool."""
    address = f"0000:{0x17 + card:02x}:00.0"
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUDevice",
        "metadata": {"name": f"{node}-{address.replace(':', '-')}"},
        "status": {
            "nodeName": node,
            "inventoryID": f"{node}-{address}",
            "uuid": f"GPU-{node}-{card}",
            "product": "NVIDIA-H200",
            "memoryMiB": 143771,
            "pci": {"vendor": "10de", "device": "2335", "class": "0302", "address": address},
            "poolRef": {"name": pool},
        },
    }


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "demo", "cluster": {"server": url}}],
        "users": [{"name": "server", "user": {"token": SERVER_TOKEN}}],
        "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "server"}}],
        "current-context": "demo",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
