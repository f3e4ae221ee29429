"""The whole server as `serve` runs it, in this process, against the in-memory API server.

Installed as an operator does it: CRDs, namespace, webhook configurations. Times are short; what has to
be waited for is asked for until it holds.
"""

import asyncio
import base64
import gc
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import yaml

from api.foreign.core import Pod
from certs.bundle import Bundle
from certs.tls import client_context
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.errors import KubeError
from kube.leader_election import Lease
from kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from manifests import constants
from manifests.install.crds import build_crds
from manifests.install.webhooks import (
    UrlClient,
    WebhookSettings,
    build_mutating_configuration,
    build_validating_configuration,
)
from server.main import serve
from server.settings import Settings
from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks.chain import User
from simulator.karpenter.karpenter_crds import karpenter_crds
from simulator.node import nfd
from tests.support.loop_clock import LoopClock, ServerClock
from tests.support.polling import until_async
from tests.support.ports import free_port

if TYPE_CHECKING:
    from reconciler.controller_spec import ProcessClock
    from server.configuration.config_source import ConfigSource

ADMIN_TOKEN = "admin"
SERVER_TOKEN = "server"
SERVER_USER = constants.service_account_username(constants.DEFAULT_NAMESPACE)


class _Secret(msgspec.Struct):
    data: dict[str, bytes]


class Cluster:
    """An API server with our objects in it; `client` is the operator's."""

    def __init__(self, api: InMemoryApiServer, client: KubeClient, folder: Path) -> None:
        self.api = api
        self.client = client
        self.folder = folder
        self.port = free_port()
        """Where the webhooks are called, and the first server listens."""

    async def install(self) -> None:
        namespace = {"metadata": {"name": constants.DEFAULT_NAMESPACE}}
        await self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", **namespace})
        for crd in build_crds():
            await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        settings = WebhookSettings(client=UrlClient(base_url=f"https://127.0.0.1:{self.port}"))
        await self.client.create(
            MUTATING_WEBHOOK_CONFIGURATIONS, build_mutating_configuration(settings)
        )
        await self.client.create(
            VALIDATING_WEBHOOK_CONFIGURATIONS, build_validating_configuration(settings)
        )

    async def install_karpenter(self) -> None:
        """Install the definitions of Karpenter's kinds; not every cluster has them."""
        for crd in karpenter_crds():
            await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)

    async def install_discovery(self) -> None:
        """Install what nodes tell of themselves with; not every cluster has it."""
        namespace = {"metadata": {"name": nfd.NAMESPACE}}
        await self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", **namespace})
        await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, nfd.node_feature_crd())

    async def install_scheduler(self) -> None:
        """Install the Deployment that is restarted when it trusts other CAs; no pod is made of it."""
        name = {"name": constants.SCHEDULER_DEPLOYMENT, "namespace": constants.DEFAULT_NAMESPACE}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": name}
        await self.client.create(DEPLOYMENTS, body)

    async def install_service(self) -> None:
        """Install the Service without a selector, which the leader leads to itself."""
        name = {"name": constants.SERVICE_NAME, "namespace": constants.DEFAULT_NAMESPACE}
        await self.client.create(
            SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": name}
        )

    async def bundle(self) -> Bundle:
        secret = await self.client.get(
            SECRETS, _Secret, constants.SERVING_SECRET, namespace=constants.DEFAULT_NAMESPACE
        )
        return Bundle.from_secret(secret.data)

    async def trusts_webhooks(self) -> bool:
        """Return whether the caBundle of every webhook is the one that the server serves under."""
        trusted = base64.b64encode((await self.bundle()).trust_pem).decode()
        for resource, name in (
            (MUTATING_WEBHOOK_CONFIGURATIONS, constants.MUTATING_CONFIGURATION),
            (VALIDATING_WEBHOOK_CONFIGURATIONS, constants.VALIDATING_CONFIGURATION),
        ):
            found = await self.client.get(resource, dict[str, Any], name)
            if any(
                webhook["clientConfig"].get("caBundle") != trusted for webhook in found["webhooks"]
            ):
                return False
        return True

    async def lease_holder(self) -> str:
        lease = await self.client.get(
            LEASES, Lease, constants.LEASE_NAME, namespace=constants.DEFAULT_NAMESPACE
        )
        return lease.spec.holder_identity

    async def give_lease_to(self, holder: str, *, duration_s: int = 1) -> None:
        """Write another holder into the Lease, as another replica does."""
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": constants.LEASE_NAME,
                "namespace": constants.DEFAULT_NAMESPACE,
            },
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": duration_s},
        }
        await self.client.apply(LEASES, lease, field_manager="another-replica")

    async def stored_pod(self, name: str) -> Pod:
        return await self.client.get(PODS, Pod, name, namespace="default")

    async def until_stable(self) -> None:
        """Wait until nobody has written anything but Leases for longer than controllers wait to coalesce."""
        quiet_for, before = 0, -1
        while quiet_for < 50:
            await asyncio.sleep(0.05)
            now = sum("/leases" not in write.path for write in self.api.requests.writes())
            quiet_for, before = (quiet_for + 1, now) if now == before else (0, now)

    def kubeconfig(self) -> Path:
        file = self.folder / "kubeconfig"
        file.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": self.api.url}}],
                    "users": [{"name": "u", "user": {"token": SERVER_TOKEN}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        return file


class RunningServer:
    """One `serve`; `ended` holds what it raised, once it has ended with that."""

    def __init__(
        self,
        cluster: Cluster,
        port: int,
        settings: Settings,
        clock: "ProcessClock | None" = None,
        source: "ConfigSource | None" = None,
    ) -> None:
        self.cluster = cluster
        self.url = f"https://127.0.0.1:{port}"
        self._settings = settings
        self._source = source
        self._clock = clock or ServerClock()
        self.ended: Exception | None = None
        self.is_over = False
        self._context: ssl.SSLContext | None = None

    async def run(self) -> None:
        try:
            await serve(self._settings, clock=self._clock, source=self._source)
        except Exception as error:  # noqa: BLE001  # the tests look at it
            self.ended = error
        finally:
            self.is_over = True

    async def get(self, path: str, *, token: str | None = None) -> tuple[int, str]:
        """Return status and text; (0, error) where there is no answer."""
        return await self.call("GET", path, token=token)

    async def call(
        self, method: str, path: str, body: bytes | None = None, *, token: str | None = None
    ) -> tuple[int, str]:
        """Ask as kube-scheduler does, with its certificate."""
        bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            context = await self._tls()
            async with (
                aiohttp.ClientSession() as session,
                session.request(
                    method,
                    self.url + path,
                    data=body,
                    ssl=context,
                    headers={"Content-Type": "application/json", **bearer},
                ) as answer,
            ):
                return answer.status, await answer.text()
        except (aiohttp.ClientError, KubeError) as error:
            return 0, str(error)

    async def _tls(self) -> ssl.SSLContext:
        """Return the scheduler's TLS; kept, so that it works while the API server is away."""
        if self._context is None:
            bundle = await self.cluster.bundle()
            self._context = client_context(bundle.trust_pem, bundle.client)
        return self._context

    async def is_ready(self) -> bool:
        return (await self.get(constants.READINESS_PATH))[0] == 200

    async def until_ready(self) -> None:
        await until_async(self._is_ready_or_over)
        assert not self.is_over, self.ended

    async def _is_ready_or_over(self) -> bool:
        return self.is_over or await self.is_ready()

    async def checks(self) -> dict[str, bool]:
        """Return what /readyz says of each check; none while it does not answer."""
        _, report = await self.get(constants.READINESS_PATH)
        lines = [line for line in report.splitlines() if line[:1] == "["]
        return {line[4:]: line[1] == "+" for line in lines}

    async def metric(self, name: str) -> str:
        """Return the lines of a metric."""
        _, text = await self.get(constants.METRICS_PATH)
        return "\n".join(line for line in text.splitlines() if line.startswith(name))


def settings_for(cluster: Cluster, port: int, **changes: Any) -> Settings:
    fields: dict[str, Any] = {
        "kubeconfig": cluster.kubeconfig(),
        "listen": {"host": "127.0.0.1", "port": port},
        "tls": {"ip_addresses": ["127.0.0.1"], "check_every_s": 0.2},
        # As installed: on a busy machine a lease of a second is lost between two renewals.
        "leadership": {"duration_s": 15, "settle_s": 0.01},
        "drain_s": 0,
        "api_timeout_s": 5.0,
        "device_plugin": {"image": "registry.test/gpu-control-plane:test"},
        **changes,
    }
    # Of the listener, a test changes what it names.
    fields["listen"] = {"host": "127.0.0.1", "port": port} | fields["listen"]
    return Settings(**fields)


@asynccontextmanager
async def a_cluster(folder: Path, clock: LoopClock | None = None) -> AsyncIterator[Cluster]:
    """Run an API server; the times that it writes are of this clock."""
    clock = clock or LoopClock()
    api = InMemoryApiServer(
        clock,
        tokens={
            ADMIN_TOKEN: User(name="kubernetes-admin", groups=("system:masters",)),
            SERVER_TOKEN: User(name=SERVER_USER, groups=("system:serviceaccounts",)),
        },
    )
    async with api, KubeClient(StaticConnection(api.url, token=ADMIN_TOKEN), clock) as client:
        yield Cluster(api, client, folder)


@asynccontextmanager
async def a_server(
    cluster: Cluster,
    *,
    port: int | None = None,
    clock: "ProcessClock | None" = None,
    source: "ConfigSource | None" = None,
    **changes: Any,
) -> AsyncIterator[RunningServer]:
    """Run a server until the end of the block; it may end before.

    Its clock is the loop's unless another is given: in virtual time, a Lease of the machine's clock
    would run out late or never.
    """
    port = port or cluster.port
    settings = settings_for(cluster, port, **changes) if source is None else source.initial
    server = RunningServer(cluster, port, settings, clock, source)
    thresholds = gc.get_threshold()
    # The server collects once before it is ready; what earlier tests left is not to be walked then.
    gc.freeze()
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(server.run())
            try:
                yield server
            finally:
                task.cancel()
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
