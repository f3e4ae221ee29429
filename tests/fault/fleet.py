"""Our servers as a cluster runs them: installed by our manifests, restarted when they end, each with
a proxy of its own to the API server, all behind one Service.

The Service is a double too, an HTTPS proxy: it sends webhooks and scheduler calls to a replica that
says it is ready, or resets the connection where there is none. It shows the certificate out of our
Secret, and for a client that had one itself it shows the scheduler's to the server.
"""

import asyncio
import base64
import contextlib
import ssl
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import aiohttp
import yaml

from tests.cluster.environment import (
    binaries,
    client,
    components,
    kubeconfigs,
    polling,
    server_process,
)
from tests.cluster.system import installation
from tests.fault.breaking import Armed
from tests.fault.forked import ForkedServer, ForkServer
from tests.fault.proxy import NoUpstreamError, Proxy, Route
from tests.fault.unreadable_objects import with_next_values
from tests.fault.upgrades.driver_rollout import IMAGES
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.environment import control_plane as control_planes
    from tests.cluster.environment import kubectl as kubectls

PROBED_EVERY_S: Final = 0.1
RESTARTED_AFTER_S: Final = 0.2
CALM_S: Final = 1.5
"""Between two traps that end a server."""
TOKEN_LASTS_S: Final = 24 * 3600
API_TIMEOUT_S: Final = 2.0
"""Ours in these runs, so that a request can be held for longer than that many times a minute."""
BIND_TIMEOUT_S = 4.0
"""The server's own constant: what judges imports nothing of it."""

_PROBE_TIMEOUT: Final = aiohttp.ClientTimeout(total=1)


@final
class _ToApiServer:
    def __init__(self, control_plane: "control_planes.ControlPlane", replica: int) -> None:
        context = ssl.create_default_context(cafile=str(control_plane.ca_file))
        self._route = Route(control_plane.url, context, replica)

    def route(self, path: str, *, has_certificate: bool) -> Route:
        return self._route


@final
class Replica:
    """One server process and its way to the API server."""

    def __init__(self, number: int, port: int, process: ForkedServer, proxy: Proxy) -> None:
        self.number = number
        self.url = f"https://127.0.0.1:{port}"
        self.process = process
        self.proxy = proxy
        self.is_ready = False
        """What the Service last heard."""
        self.should_run = False
        """Whether it is to run: then it is started again when it ends."""
        self.ends = 0
        """How often it ended."""

    def kill9(self) -> None:
        self.process.kill9()
        self.is_ready = False

    async def probe(self, session: aiohttp.ClientSession) -> None:
        try:
            async with session.get(f"{self.url}/readyz", ssl=False) as answer:
                self.is_ready = answer.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            self.is_ready = False


@final
class _ToReplicas:
    """The Service: those that are ready, one after the other."""

    def __init__(self, replicas: list[Replica]) -> None:
        self._replicas = replicas
        self._next = 0
        self.plain = _trusting()
        self.as_scheduler = _trusting()

    def route(self, path: str, *, has_certificate: bool) -> Route:
        ready = [item for item in self._replicas if item.is_ready]
        if not ready:
            raise NoUpstreamError
        self._next += 1
        replica = ready[self._next % len(ready)]
        return Route(
            replica.url, self.as_scheduler if has_certificate else self.plain, replica.number
        )


@final
class Fleet:
    """Installed once; runs share it."""

    def __init__(
        self,
        control_plane: "control_planes.ControlPlane",
        kubectl: "kubectls.Kubectl",
        *,
        replicas: int,
        name: str,
    ) -> None:
        """`name` must be new to the run of the control plane: it names processes and files."""
        self._control_plane = control_plane
        self._kubectl = kubectl
        self._name = name
        self._count = replicas
        self._system = installation.GpuSystem(control_plane, kubectl)
        self._directory = control_plane.run.directory / name
        self._directory.mkdir()
        self.armed = Armed()
        self.clock = self._directory / "clock-offset"
        self.set_clock(0)
        self.replicas: list[Replica] = []
        self.probes = Counter[bool]()
        """How often a replica was ready, and nobody."""
        self._served_since: float | None = None
        self.armed.may_end = self._has_served
        self._forks = ForkServer(control_plane.run)
        self._service_port = ports.free_port()
        self._routing = _ToReplicas(self.replicas)
        self._service: Proxy | None = None
        self._manifests = ""
        self.scheduler: components.KubeScheduler
        self._stock_scheduler = components.KubeScheduler(
            control_plane, name=f"{name}-stock-scheduler"
        )
        # Of pods that ask for no unit, such as those of DaemonSets; no step ends it.

    def set_clock(self, offset_s: float) -> None:
        """Set the wall clock of every server."""
        fresh = self.clock.with_suffix(".new")
        fresh.write_text(str(offset_s))
        fresh.replace(self.clock)

    @contextlib.asynccontextmanager
    async def installed(self) -> "AsyncIterator[None]":
        """Install everything; in the end the processes are ended, and what was applied is deleted."""
        try:
            await self.install()
            yield
        finally:
            await self._end()

    async def install(self) -> None:
        """Apply the manifests, start the servers, the Service and kube-scheduler."""
        url = f"https://127.0.0.1:{self._service_port}"
        settings = ("--settings", str(self._write_settings("rendered", ports.free_port())))
        targets = [
            ["crds", *settings],
            ["rbac", *settings],
            ["webhooks", "--url", url],
            ["policy", *settings],
        ]
        rendered = await asyncio.gather(*(self._system.render(*target) for target in targets))
        self._manifests = with_next_values("".join(rendered))
        # Those of others; the servers find them when they start.
        others = await _definitions_of_others()
        await self._kubectl("apply", "-f", "-", stdin=others, timeout_s=120)
        await self._kubectl(
            "apply", "--validate=strict", "-f", "-", stdin=self._manifests, timeout_s=120
        )
        for number in range(self._count):
            self.replicas.append(await self._new_replica(number))
        for replica in self.replicas:
            replica.should_run = True
            await replica.proxy.start()
            replica.process.start()
        await self._wait_until_ready(60)
        files = await self._certificates()
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(files["tls.crt"], files["tls.key"])
        serving.load_verify_locations(files["ca.crt"])
        serving.verify_mode = ssl.CERT_OPTIONAL
        self._routing.as_scheduler.load_cert_chain(files["scheduler.crt"], files["scheduler.key"])
        self._service = Proxy(self._service_port, serving, self._routing, self.armed)
        await self._service.start()
        self.scheduler = await self._new_scheduler(url, files)
        await self.scheduler.start()
        await self._stock_scheduler.start()

    async def _end(self) -> None:
        for replica in self.replicas:
            replica.should_run = False
            replica.kill9()
            await replica.proxy.close()
        self._forks.close()
        if self._service is not None:
            await self._service.close()
            self.scheduler.kill9()
            self._stock_scheduler.kill9()
        await installation.remove(self._control_plane, self._kubectl, self._manifests)
        async with client.open_client(self._control_plane.kubeconfig()) as api:
            await polling.eventually(
                lambda: _is_gone(api, f"/api/v1/namespaces/{installation.NAMESPACE}"),
                what="our namespace deleted",
                within=60,
            )

    async def supervise(self) -> NoReturn:
        """Probe the replicas, and start again those that ended, until cancelled."""
        async with aiohttp.ClientSession(timeout=_PROBE_TIMEOUT) as session:
            ended_at: dict[int, float] = {}
            loop = asyncio.get_running_loop()
            while True:
                for replica in self.replicas:
                    process = replica.process
                    if process.running or not replica.should_run:
                        ended_at.pop(replica.number, None)
                    elif loop.time() > ended_at.setdefault(replica.number, loop.time()) + (
                        RESTARTED_AFTER_S
                    ):
                        replica.ends += 1
                        process.start()
                async with asyncio.TaskGroup() as group:
                    for replica in self.replicas:
                        group.create_task(replica.probe(session))
                is_served = any(replica.is_ready for replica in self.replicas)
                self.probes[is_served] += 1
                if not is_served:
                    self._served_since = None
                elif self._served_since is None:
                    self._served_since = loop.time()
                await asyncio.sleep(PROBED_EVERY_S)

    def _has_served(self) -> bool:
        """Say whether a replica has been ready for a while."""
        since = self._served_since
        return since is not None and asyncio.get_running_loop().time() > since + CALM_S

    async def serving(self, within: float) -> Replica | None:
        """Return a replica that is ready, None when there was none in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while True:
                    for replica in self.replicas:
                        if replica.is_ready:
                            return replica
                    await asyncio.sleep(PROBED_EVERY_S)
        return None

    def leader(self) -> Replica:
        """Return the replica that serves, or the first where none does."""
        return next((replica for replica in self.replicas if replica.is_ready), self.replicas[0])

    def resume_all(self) -> None:
        """Let replicas go on that a step has stopped in their tracks."""
        for replica in self.replicas:
            if replica.process.running:
                replica.process.resume()

    def crashes(self) -> list[str]:
        """Return how servers ended that nobody ended, since the last call."""
        found = []
        for replica in self.replicas:
            crashes, replica.process.crashes = replica.process.crashes, []
            found += [f"exit status {crash}, see {replica.process.log_path}" for crash in crashes]
        return found

    def proxies(self) -> list[Proxy]:
        return [replica.proxy for replica in self.replicas]

    async def metrics(self) -> installation.Metrics | None:
        """Read /metrics of the replica that serves; None where none does."""
        await asyncio.sleep(installation.PAGE_S)
        replica = self.leader()
        try:
            async with (
                aiohttp.ClientSession(timeout=_PROBE_TIMEOUT) as session,
                session.get(f"{replica.url}/metrics", ssl=False) as answer,
            ):
                return installation.Metrics(await answer.text())
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    async def _wait_until_ready(self, within: float) -> None:
        async with (
            asyncio.timeout(within),
            aiohttp.ClientSession(timeout=_PROBE_TIMEOUT) as session,
        ):
            while not any(replica.is_ready for replica in self.replicas):
                for replica in self.replicas:
                    await replica.probe(session)
                await asyncio.sleep(PROBED_EVERY_S)

    async def _new_replica(self, number: int) -> Replica:
        control_plane = self._control_plane
        proxy_port, port = ports.free_port(), ports.free_port()
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        keys = control_plane.credentials.serving
        serving.load_cert_chain(keys.certificate, keys.key)
        proxy = Proxy(proxy_port, serving, _ToApiServer(control_plane, number), self.armed)
        name = f"{self._name}-server-{number}"
        settings = self._write_settings(name, port)
        kubeconfig = await self._kubeconfig("gpu-control-plane", proxy.url)
        process = ForkedServer(
            self._forks,
            control_plane.run.directory / f"{name}.log",
            ["--clock", str(self.clock), "serve", "--settings", str(settings)],
            {"KUBECONFIG": str(kubeconfig)},
        )
        return Replica(number, port, process, proxy)

    def _write_settings(self, name: str, port: int) -> Path:
        path = self._directory / f"{name}.settings.yaml"
        path.write_text(yaml.safe_dump(_settings(port)))
        return path

    async def _kubeconfig(self, account: str, url: str) -> Path:
        namespace = installation.NAMESPACE
        async with client.open_client(self._control_plane.kubeconfig()) as api:
            answer = await api.create(
                f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
                {
                    "apiVersion": "authentication.k8s.io/v1",
                    "kind": "TokenRequest",
                    "spec": {"expirationSeconds": TOKEN_LASTS_S},
                },
            )
        return kubeconfigs.write_kubeconfig(
            self._directory / f"{account}-{url.rpartition(':')[2]}.kubeconfig",
            url=url,
            ca_file=self._control_plane.ca_file,
            user=account,
            login={"token": answer["status"]["token"]},
        )

    async def _certificates(self) -> dict[str, Path]:
        async with client.open_client(self._control_plane.kubeconfig()) as api:
            data = (await api.get(installation.SECRET))["data"]
        files = {}
        for key in ("ca.crt", "tls.crt", "tls.key", "scheduler.crt", "scheduler.key"):
            files[key] = self._directory / key
            files[key].touch(mode=0o600)
            files[key].write_bytes(base64.b64decode(data[key]))
        return files

    async def _new_scheduler(self, url: str, files: dict[str, Path]) -> components.KubeScheduler:
        kubeconfig = await self._kubeconfig("gpu-scheduler", self._control_plane.url)
        rendered = await self._system.render(
            "scheduler-config",
            *("--url", url),
            *("--ca-file", str(files["ca.crt"])),
            *("--client-cert", str(files["scheduler.crt"])),
            *("--client-key", str(files["scheduler.key"])),
            *("--kubeconfig", str(kubeconfig)),
        )
        document = yaml.safe_load(rendered)
        # A run has seconds where a cluster has minutes; the default is 10 s.
        document["podMaxBackoffSeconds"] = 2
        return components.KubeScheduler(
            self._control_plane,
            configuration=yaml.safe_dump(document),
            name=f"{self._name}-scheduler",
        )


async def _is_gone(api: client.ApiClient, path: str) -> bool:
    try:
        await api.get(path)
    except client.ApiRefusedError as refused:
        return refused.status == 404
    return False


def _settings(port: int) -> dict[str, Any]:
    return {
        "device_plugin": {"image": server_process.IMAGE},
        "listen": {"host": "127.0.0.1", "port": port},
        "tls": {"ip_addresses": ["127.0.0.1"], "check_every_s": 5},
        "drain_s": 0.5,
        "api_timeout_s": API_TIMEOUT_S,
        "inventory": {"node_gone_s": 5},
        "bootstrap": {
            "period_s": 1.0,
            "operands": "External",
            # Nodes of the growing pool have no labels of Node Feature Discovery, and so no validator.
            "validator": {"requirement": "Ignored"},
        },
        "node_software": {"enabled": True, "images": IMAGES},
    }


async def _definitions_of_others() -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fault.cloud", "--print-definitions"),
        stdout=asyncio.subprocess.PIPE,
        cwd=binaries.ROOT,
    )
    printed, _ = await process.communicate()
    return printed.decode()


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
