"""Who is compared. Each starts its processes for its turn and stops them after it.

plain   kube-scheduler with no extender; pods ask for an ordinary extended resource
echo    the same with the echo extender: filter, prioritize and bind over our TLS, nothing decided
idle    the echo extender, and two webhooks that decide nothing, for pods that ask for a pool
ours    our scheduler as it is rendered, with webhooks, policy, extender and our binding
"""

import collections
import contextlib
import datetime as dt
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import yaml

from certs.bundle import Bundle, Requirements
from certs.renewal import renew
from certs.validity import RenewalNeeded, needs_renewal
from tests.bench_cluster import idle
from tests.bench_cluster.cluster import PLAIN_RESOURCE, POOL
from tests.cluster.environment import binaries, components
from tests.cluster.system import objects
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from tests.bench_cluster.cluster import BenchCluster
    from tests.cluster.environment import processes
    from tests.cluster.environment.client import JsonObject

_READY_S: Final = 30
_CONNECTION: Final = {"qps": 5000, "burst": 10_000}
"""The stock 50 requests a second would be what is measured."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """A setup during its turn."""

    scheduler: components.KubeScheduler
    extender: "processes.ChildProcess | None" = None
    taken_over: "Callable[[], Awaitable[float]] | None" = None
    """Counts reservations that ended because a pod that exists needed the units."""


class Setup(Protocol):
    """One of those that are compared."""

    name: str
    resource: str
    """What its pods ask for, one unit each."""
    scheduler_name: str

    def running(self) -> "AbstractAsyncContextManager[Running]":
        """Start everything that takes part; it is ready inside, and stopped after."""

    def check(self, bound: "Sequence[JsonObject]") -> float | None:
        """Check what must be true of all its bound pods together.

        Return the share of those that are where units were held for them, None where nothing is held.
        """


@final
class Plain:
    """Without an extender."""

    name = "no extender"
    resource = PLAIN_RESOURCE
    scheduler_name = "plain-scheduler"

    def __init__(self, cluster: "BenchCluster") -> None:
        self._scheduler = components.KubeScheduler(
            cluster.plane, configuration=_configuration(self.scheduler_name), name="plain-scheduler"
        )
        self._devices = cluster.gpus

    @contextlib.asynccontextmanager
    async def running(self) -> "AsyncIterator[Running]":
        await self._scheduler.start()
        yield Running(scheduler=self._scheduler)
        await self._scheduler.stop()

    def check(self, bound: "Sequence[JsonObject]") -> float | None:
        _check_counts(bound, self._devices)
        return None


@final
class Echo:
    """With an extender that decides nothing; its webhooks take part, or nobody calls them."""

    def __init__(self, cluster: "BenchCluster", *, webhooks: bool = False) -> None:
        slug = "idle" if webhooks else "echo"
        self.name = "echo extender, idle webhooks" if webhooks else "echo extender"
        self.resource = POOL.resource if webhooks else PLAIN_RESOURCE
        self.scheduler_name = f"{slug}-scheduler"
        self._cluster = cluster
        directory = cluster.plane.run.directory / slug
        port = ports.free_port()
        _make_certificates(directory)
        self._admission = ""
        if webhooks:
            authority = (directory / "ca.crt").read_bytes()
            self._admission = idle.configurations(f"https://127.0.0.1:{port}", authority)
        self._scheduler = components.KubeScheduler(
            cluster.plane,
            configuration=_configuration(self.scheduler_name, _extender(port, directory)),
            name=self.scheduler_name,
        )
        command = [sys.executable, "-m", "tests.bench_cluster.echo", "--port", str(port)]
        command += [
            "--certificates",
            str(directory),
            "--kubeconfig",
            str(cluster.plane.kubeconfig()),
        ]
        self._extender = cluster.plane.run.child(
            f"{slug}-extender", command, env={"PYTHONPATH": str(binaries.ROOT)}
        )
        self._devices = cluster.gpus
        self._lives = 0

    @contextlib.asynccontextmanager
    async def running(self) -> "AsyncIterator[Running]":
        self._extender.start()
        self._lives += 1
        await self._extender.wait_ready(self._is_listening, within=_READY_S)
        if self._admission:
            await self._cluster.put_up(self._admission)
        await self._scheduler.start()
        yield Running(scheduler=self._scheduler, extender=self._extender)
        await self._scheduler.stop()
        if self._admission:
            await self._cluster.take_away(self._admission)
        self._extender.kill9()

    def check(self, bound: "Sequence[JsonObject]") -> float | None:
        _check_counts(bound, self._devices)
        if self._admission:
            passed_by = [pod["metadata"]["name"] for pod in bound if not idle.has_mutated(pod)]
            assert not passed_by, f"the webhooks were not asked about {passed_by}"
        return None

    async def _is_listening(self) -> str | None:
        ready = self._extender.logs().count("ready\n") == self._lives
        return None if ready else "it does not listen yet"


@final
class Ours:
    """Our system; `settings` are put over those of the server, for variants of it."""

    resource = POOL.resource
    scheduler_name = "gpu-scheduler"

    def __init__(
        self,
        cluster: "BenchCluster",
        *,
        name: str = "ours",
        settings: "Mapping[str, Any] | None" = None,
        profile: "Mapping[str, Any] | None" = None,
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._settings = {**cluster.server_settings, **(settings or {})}
        configuration = yaml.safe_load(cluster.system.scheduler_configuration)
        configuration["profiles"][0].update(profile or {})
        self._scheduler_configuration = yaml.safe_dump(configuration)

    @contextlib.asynccontextmanager
    async def running(self) -> "AsyncIterator[Running]":
        system = self._cluster.system
        system.server.configure(self._settings)
        system.scheduler.configure(self._scheduler_configuration)
        await self._cluster.put_up(self._cluster.admission)
        await system.restore()
        yield Running(
            scheduler=system.scheduler,
            extender=system.server.process,
            taken_over=self._taken_over,
        )
        await system.scheduler.stop()
        await system.server.terminate()
        await self._cluster.take_away(self._cluster.admission)

    async def _taken_over(self) -> float:
        metrics = await self._cluster.system.metrics()
        return metrics.total("gpu_reservations_ended_total", end="taken_over")

    def check(self, bound: "Sequence[JsonObject]") -> float | None:
        objects.check_devices(bound)
        as_held: int = sum(
            objects.reservation_of(pod).get("node") == pod["spec"]["nodeName"] for pod in bound
        )
        return as_held / len(bound)


def _check_counts(bound: "Sequence[JsonObject]", devices: "Mapping[str, int]") -> None:
    used = collections.Counter(pod["spec"]["nodeName"] for pod in bound)
    over = {node: count for node, count in used.items() if count > devices[node]}
    assert not over, f"more pods than devices: {over}"


def _configuration(scheduler_name: str, extender: "JsonObject | None" = None) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": _CONNECTION,
            "profiles": [{"schedulerName": scheduler_name}],
            "extenders": [extender] if extender else [],
        }
    )


def _extender(port: int, directory: "Path") -> "JsonObject":
    return {
        "urlPrefix": f"https://127.0.0.1:{port}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "bindVerb": "bind",
        "weight": 1,
        "enableHTTPS": True,
        "tlsConfig": {
            "caFile": str(directory / "ca.crt"),
            "certFile": str(directory / "scheduler.crt"),
            "keyFile": str(directory / "scheduler.key"),
        },
        "httpTimeout": "5s",
        "nodeCacheCapable": True,
    }


def _make_certificates(directory: "Path") -> None:
    required = Requirements.for_service("bench", "bench", extra_ip_addresses=["127.0.0.1"])
    now = dt.datetime.now(dt.UTC)  # noqa: TID251  # a benchmark's own clock
    empty = Bundle.from_secret({})
    needed = needs_renewal(empty, required, now)
    assert isinstance(needed, RenewalNeeded)
    directory.mkdir(mode=0o700)
    for name, content in renew(empty, needed, required=required, now=now).as_secret().items():
        (directory / name).write_bytes(content)
