"""Child processes of a benchmark, their certificates, and a client's TLS."""

import asyncio
import contextlib
import datetime as dt
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import aiohttp
import psutil
import yaml

from certs.bundle import Bundle, Requirements
from certs.renewal import renew
from certs.tls import client_context
from certs.validity import RenewalNeeded, needs_renewal
from cli.parent_process import end_with_parent
from tests.bench.report import ROOT, checked, rss_mib

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.bench.sizes import ClusterSize

GRACE_S = 120.0


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def make_certificates(directory: "Path") -> "ssl.SSLContext":
    """Write tls.crt, tls.key and ca.crt; return the TLS of a client that may call the extender."""
    required = Requirements.for_service("bench", "bench", extra_ip_addresses=["127.0.0.1"])
    now = dt.datetime.now(dt.UTC)  # noqa: TID251  # a benchmark's own clock
    empty = Bundle.from_secret({})
    needed = needs_renewal(empty, required, now)
    assert isinstance(needed, RenewalNeeded)
    bundle = renew(empty, needed, required=required, now=now)
    (directory / "ca.crt").write_bytes(bundle.trust_pem)
    (directory / "tls.crt").write_bytes(bundle.serving.certificate_pem)
    (directory / "tls.key").write_bytes(bundle.serving.key_pem)
    return client_context(bundle.trust_pem, bundle.client)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def child(
    module: str,
    *options: str,
    stderr: int | IO[bytes] | None = None,
    env: dict[str, str] | None = None,
) -> "Iterator[subprocess.Popen[str]]":
    """Run a module as a process that ends with this one."""
    command = [sys.executable, "-m", module, *options]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        cwd=ROOT,
        env=env,
        preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509  # this program has no thread yet
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def served(directory: "Path", *options: str) -> "Iterator[tuple[int, int]]":
    """Run `tests.bench.served`; yield its port and pid."""
    port = free_port()
    log_path = directory / f"served-{port}.log"
    given = ("--port", str(port), "--certificates", str(directory), *options)
    with log_path.open("wb") as log, child("tests.bench.served", *given, stderr=log) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            tail = log_path.read_text(encoding="utf-8")[-2000:]
            raise RuntimeError(f"the measured process did not start:\n{tail}")
        yield port, process.pid


def options_of(size: "ClusterSize") -> tuple[str, ...]:
    """Return the options of `tests.bench.served` and `tests.bench.api_process` for a size."""
    return (
        "--nodes",
        str(size.nodes),
        "--pods",
        str(size.pods),
        "--pool-count",
        str(size.pool_count),
    )


class ApiServer:
    """A full in-memory API server in a process of its own; it does what it is told."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.url = self._line()

    def change(self, per_s: int) -> None:
        """Have objects change so many times a second from now on."""
        self._send(f"change {per_s}")

    def expire_watches(self) -> None:
        """End every watch, and answer the next one that resumes with 410."""
        self._send("expire")

    def _send(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextlib.contextmanager
def api_server(size: "ClusterSize", *options: str) -> "Iterator[ApiServer]":
    """Run `tests.bench.api_process` with a cluster of this size in it."""
    with child("tests.bench.api_process", *options_of(size), *options) as process:
        yield ApiServer(process)


@dataclass(frozen=True)
class Turns:
    """What the measured server says of a second of its life."""

    gap_ms: float
    """Longest gap between two turns of a task that asks for one every millisecond."""
    cpu_ms: float
    """Most processor time of the loop's thread between two turns."""
    recorded: int
    """Reservations, and pods that are kept."""


class MeasuredServer:
    """The real server, in a process that also tells how its loop fares."""

    def __init__(self, process: "subprocess.Popen[str]", directory: "Path", port: int) -> None:
        self._process = process
        self._directory = directory
        self.port = port
        self.turns: list[Turns] = []
        self._reported = asyncio.Condition()

    @property
    def rss_mib(self) -> float:
        return rss_mib(self._process.pid)

    @property
    def cpu_s(self) -> float:
        """Processor time since it started."""
        return cpu_s(self._process.pid)

    async def wait_ready(self) -> float:
        """Wait for /readyz; return the largest resident memory seen until then."""
        peak = 0.0
        deadline = time.perf_counter() + GRACE_S
        async with aiohttp.ClientSession() as session:
            while time.perf_counter() < deadline:
                if self._process.poll() is not None:
                    raise RuntimeError(f"the server ended:\n{self.log()[-2000:]}")
                peak = max(peak, self.rss_mib)
                url = f"https://127.0.0.1:{self.port}/readyz"
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(url, ssl=False) as answer:
                        if answer.status == 200:
                            return peak
                await asyncio.sleep(0.02)
        raise TimeoutError(f"the server was not ready:\n{self.log()[-2000:]}")

    async def metrics(self) -> dict[str, float]:
        """Return every series, by its name and labels as they are written."""
        url = f"https://127.0.0.1:{self.port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
            lines = (await answer.text()).splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    async def capacity(self) -> dict[str, int]:
        """Return the sums over pools of the capacity gauges."""
        series = await self.metrics()
        return {
            kind: sum(
                int(value)
                for name, value in series.items()
                if name.startswith(f"gpupool_capacity_{kind}{{")
            )
            for kind in ("total", "used", "reserved", "available")
        }

    async def wait_capacity(self, **expected: int) -> None:
        """Wait until the gauges show these sums."""
        deadline = time.perf_counter() + 30
        seen: dict[str, int] = {}
        while time.perf_counter() < deadline:
            seen = await self.capacity()
            if seen.items() >= expected.items():
                checked("capacity")
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"capacity is {seen}, wanted {expected}")

    def log(self) -> str:
        return (self._directory / "server.log").read_text(encoding="utf-8")

    async def next_turns(self, seconds: int) -> list[Turns]:
        """Return what is told of so many seconds from now on; one that has begun does not count."""
        start = len(self.turns) + 1
        async with self._reported:
            await self._reported.wait_for(lambda: len(self.turns) >= start + seconds)
        return self.turns[start : start + seconds]

    async def listen(self) -> None:
        """Take in what the process tells of its loop, until it ends or this is cancelled."""
        assert self._process.stdout is not None
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: protocol, self._process.stdout)
        try:
            async for line in reader:
                async with self._reported:
                    self.turns.append(Turns(**json.loads(line)))
                    self._reported.notify_all()
        finally:
            transport.close()
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def measured_server(
    directory: "Path", api_url: str, **settings: Any
) -> "AsyncIterator[MeasuredServer]":
    """Start the real server beside an API server; certificates lie in the directory."""
    port = free_port()
    path = _settings(directory, api_url, port, settings)
    with (
        (directory / "server.log").open("wb") as log,
        child(
            *("tests.bench.measured", "--settings", str(path)),
            stderr=log,
        ) as process,
    ):
        server = MeasuredServer(process, directory, port)
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(server.listen())
            try:
                yield server
            finally:
                listening.cancel()


def _settings(directory: "Path", url: str, port: int, more: dict[str, Any]) -> "Path":
    kubeconfig = directory / "kubeconfig"
    named = {"cluster": "bench", "user": "bench"}
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "bench", "cluster": {"server": url}}],
                "users": [{"name": "bench", "user": {"token": "bench"}}],
                "contexts": [{"name": "bench", "context": named}],
                "current-context": "bench",
            }
        ),
        encoding="utf-8",
    )
    settings = directory / "settings.yaml"
    settings.write_text(
        yaml.safe_dump(
            {
                "kubeconfig": str(kubeconfig),
                "listen": {"host": "127.0.0.1", "port": port},
                "tls": {"source": "Files", "directory": str(directory)},
                "extender": {"client_ca_file": str(directory / "ca.crt")},
                **more,
            }
        ),
        encoding="utf-8",
    )
    return settings
