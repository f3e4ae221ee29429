"""From the start of the real server process to ready, beside a full in-memory API server.

The API server has a process of its own, and one of the two cores; reading and encoding its lists is
part of what is measured. Correct: /metrics shows the capacity that the world was made with.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import yaml

from tests.bench import world
from tests.bench.processes import free_port, make_certificates
from tests.bench.report import Result, rss_mib

if TYPE_CHECKING:
    from collections.abc import Iterator

LADDER = ((50, 200), (500, 2_000), (5_000, 20_000))
"""(nodes of eight cards, bound pods)."""
PATIENCE_S = 120.0


async def measure() -> list[Result]:
    return [await _at(nodes, pods) for nodes, pods in LADDER]


async def _at(nodes: int, pods: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        make_certificates(directory)
        with _api_server(nodes, pods) as url:
            port = free_port()
            settings = _settings(directory, url, port)
            started = time.perf_counter()
            with _server(directory, settings) as process:
                memory = await _wait_ready(port, process)
                seconds = time.perf_counter() - started
                await _check(port, nodes, pods)
                peak = max(memory, rss_mib(process.pid))
    at_full = nodes == LADDER[-1][0]
    return Result(
        subject="startup",
        case=f"start to ready, {nodes:,} nodes, {nodes * world.CARDS:,} devices, {pods:,} pods",
        p50_ms=seconds * 1e3,
        rss_mib=peak,
        aim="≤ 5,000 ms, ≤ 300 MiB" if at_full else "",
    )


@contextlib.contextmanager
def _api_server(nodes: int, pods: int) -> "Iterator[str]":
    command = [sys.executable, "-m", "tests.bench.api_process"]
    command += ["--nodes", str(nodes), "--pods", str(pods)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def _settings(directory: Path, url: str, port: int) -> Path:
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "bench", "cluster": {"server": url}}],
                "users": [{"name": "bench", "user": {"token": "bench"}}],
                "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
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
            }
        ),
        encoding="utf-8",
    )
    return settings


@contextlib.contextmanager
def _server(directory: Path, settings: Path) -> "Iterator[subprocess.Popen[bytes]]":
    command = [sys.executable, "-m", "server", "serve", "--settings", str(settings)]
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def _wait_ready(port: int, process: "subprocess.Popen[bytes]") -> float:
    """Return the largest resident memory seen until ready."""
    peak = 0.0
    deadline = time.perf_counter() + PATIENCE_S
    async with aiohttp.ClientSession() as session:
        while time.perf_counter() < deadline:
            assert process.poll() is None, "the server ended"
            peak = max(peak, rss_mib(process.pid))
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"https://127.0.0.1:{port}/readyz", ssl=False) as answer:
                    if answer.status == 200:
                        return peak
            await asyncio.sleep(0.02)
    raise TimeoutError("the server was not ready")


async def _check(port: int, nodes: int, pods: int) -> None:
    """Assert that the gauges show the world."""
    total = (nodes + 1) // 2 * world.CARDS + nodes // 2 * world.CARDS * 4
    deadline = time.perf_counter() + 10
    seen = {}
    while time.perf_counter() < deadline:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{port}/metrics", ssl=False) as answer,
        ):
            text = await answer.text()
        seen = {
            kind: sum(
                float(line.rsplit(" ", 1)[1])
                for line in text.splitlines()
                if line.startswith(f"gpupool_capacity_{kind}{{")
            )
            for kind in ("total", "used")
        }
        if seen == {"total": total, "used": pods}:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"capacity {seen}, wanted total {total}, used {pods}")
