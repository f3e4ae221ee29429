"""`kubectl gpu console`: the page of a cluster through the real kubectl, from its address to its end."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
import pytest

from kubectl_gpu.exit_codes import ANSWERED, MISUSED, UNREADABLE
from tests.support.canned_api import Hang, Json, Reset, status
from tests.support.plugin_cluster import ROOT, ListedCluster, children_of, process_exists
from tests.support.plugin_forks import Done
from tests.support.polling import LIMIT_S, until
from tests.support.ports import free_port

WATCH = "watch of gpudevices"
HEAVY = {"cryptography", "grpc", "h2", "httptools", "kubernetes_asyncio", "pydantic", "uvloop"}


@dataclass
class RunningConsole:
    """A plugin that serves its page."""

    process: asyncio.subprocess.Process
    lines: list[str]
    """What it printed before it was ready, the address included."""
    kubectl: int
    """Process of `kubectl proxy`."""

    @property
    def address(self) -> str:
        (found,) = (line for line in self.lines if line.startswith("http://127.0.0.1:"))
        return found

    async def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; return exit code and complaints."""
        self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> tuple[int, str]:
        async with asyncio.timeout(LIMIT_S):
            _, complaints = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, complaints.decode()


@asynccontextmanager
async def console_of(
    cluster: ListedCluster, *flags: str, **variables: str
) -> AsyncIterator[RunningConsole]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubectl_gpu", "console", "--server", cluster.api.url, *flags),
        cwd=ROOT,
        env=cluster.environment(**variables),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(LIMIT_S):
            while not lines or not lines[-1].startswith("The page is served until"):
                line = await process.stdout.readline()
                assert line, (await process.communicate())[1].decode()
                lines.append(line.decode().rstrip("\n"))
        yield RunningConsole(process, lines, children_of(process.pid)[0])
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # with its `kubectl proxy`
            await process.wait()


@asynccontextmanager
async def session_of(console: RunningConsole) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """Log in as the page does; the value is its session, and the address."""
    url, _, token = console.address.partition("#token=")
    jar = aiohttp.CookieJar(unsafe=True)
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=timeout) as session:
        headers = {"Authorization": f"Bearer {token}"}
        async with session.get(f"{url}api/v1/login", headers=headers) as reply:
            assert reply.status == 204
        yield session, url


@asynccontextmanager
async def page_of(console: RunningConsole) -> AsyncIterator[aiohttp.StreamReader]:
    """Log in as the page does, and yield its stream of events."""
    async with (
        session_of(console) as (session, url),
        session.get(f"{url}api/v1/stream") as reply,
    ):
        assert reply.status == 200
        yield reply.content


async def event_of(stream: aiohttp.StreamReader) -> tuple[str, Any]:
    name, data = (await stream.readuntil(b"\n\n")).decode().splitlines()[:2]
    return name.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: "))


async def health_of(stream: aiohttp.StreamReader, subject: str) -> Any:
    """Return the next finding about a subject, which may be that there is none any more."""
    while True:
        _, change = await event_of(stream)
        if subject in change.get("health", {}):
            return change["health"][subject]


async def test_the_page_is_shown_with_the_rights_of_the_user(cluster: ListedCluster):
    async with console_of(cluster) as console:
        assert console.lines[0] == "Reading from API server"
        async with page_of(console) as stream:
            kind, snapshot = await event_of(stream)
        assert kind == "snapshot"
        assert snapshot["pools"]["training"]["free"] == 5
        assert snapshot["waiting"]["ml-team/big"]["units"] == 4
        assert snapshot["viewer"] == {"allNamespaces": True, "nodes": True}
        assert {seen.method for seen in cluster.api.seen} == {"GET"}
        assert {seen.headers["User-Agent"] for seen in cluster.reads()} >= {"kubectl-gpu-console"}
        assert await console.end(signal.SIGINT) == (ANSWERED, "")


async def test_what_the_user_may_not_read_is_said_and_left_out(cluster: ListedCluster):
    cluster.forbidden = {"nodes", "gpunodeinventories"}
    cluster.answers["/api/v1/pods"] = Json(status(403, "Forbidden", "no"), status=403)
    async with console_of(cluster, "-n", "ml-team") as console:
        async with page_of(console) as stream:
            _, snapshot = await event_of(stream)
        partial = [f"partial: {gap}" for gap in snapshot["partial"]]
        assert console.lines[: len(partial) + 1] == ["Reading from API server", *partial]
        assert partial[0].startswith(
            "partial: Pods of all namespaces may not be listed: those of ml-team"
        )
        assert "partial: Nodes may not be listed: their states are unknown." in partial
        assert snapshot["viewer"] == {"namespace": "ml-team"}
        assert "ml-team/big" in snapshot["waiting"]


async def test_an_api_server_that_goes_and_comes_back(cluster: ListedCluster):
    answer_of = cluster.api.always
    async with console_of(cluster) as console, page_of(console) as stream:
        _, snapshot = await event_of(stream)
        assert WATCH not in snapshot["health"]
        cluster.api.always = Reset()
        await cluster.api.drop_connections()
        finding = await health_of(stream, WATCH)
        assert finding["text"].startswith("gpudevices are not watched at the moment")
        cluster.api.always = answer_of
        assert await health_of(stream, WATCH) is None
        assert await console.end(signal.SIGINT) == (ANSWERED, "")


async def test_what_takes_long_to_read_is_said(cluster: ListedCluster):
    answer_of = cluster.api.always
    assert callable(answer_of)
    cluster.api.always = lambda seen: (
        Hang() if seen.path == "/api/v1/nodes" and seen.query["limit"] != "1" else answer_of(seen)
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubectl_gpu", "console", "--server", cluster.api.url),
        cwd=ROOT,
        env=cluster.environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        assert await process.stdout.readline() == b"Reading from API server\n"
        assert await process.stdout.readline() == b"still to be read: nodes, pods\n"
        process.send_signal(signal.SIGINT)
        assert await process.wait() == ANSWERED


async def test_ctrl_c_does_not_wait_for_an_api_server_that_says_nothing(cluster: ListedCluster):
    leases = "/apis/coordination.k8s.io/v1/namespaces/gpu-control-plane/leases"
    cluster.answers[leases] = Hang()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubectl_gpu", "console", "--server", cluster.api.url),
        cwd=ROOT,
        env=cluster.environment(),
    )
    await until(lambda: any(seen.path == leases for seen in cluster.api.seen))
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(5):  # a request has twice as long
        assert await process.wait() == ANSWERED
    assert list(cluster.directory.glob("kubectl-gpu-*")) == []


async def test_ctrl_c_in_a_terminal_reaches_kubectl_too_and_is_no_fault(cluster: ListedCluster):
    async with console_of(cluster) as console:
        os.killpg(console.process.pid, signal.SIGINT)
        assert await console.ended() == (ANSWERED, "")
    assert list(cluster.directory.glob("kubectl-gpu-*")) == []


async def test_a_terminated_plugin_ends_kubectl_and_leaves_nothing(cluster: ListedCluster):
    async with console_of(cluster) as console, page_of(console) as stream:
        await event_of(stream)
        assert await console.end(signal.SIGTERM) == (128 + signal.SIGTERM, "")
        assert b"event: end\n" in await stream.read()
        assert not process_exists(console.kubectl)
    assert list(cluster.directory.glob("kubectl-gpu-*")) == []


async def test_the_end_of_kubectl_proxy_ends_the_page(cluster: ListedCluster):
    async with console_of(cluster) as console:
        os.kill(console.kubectl, signal.SIGKILL)
        code, said = await console.ended()
    assert (code, said) == (
        UNREADABLE,
        "kubectl gpu: kubectl proxy ended: it ended with status -9\n",
    )


async def test_a_port_that_is_taken_is_said(cluster: ListedCluster):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = await cluster.run("console", "--port", str(port))
    assert done.returncode == MISUSED
    (line,) = done.stderr.splitlines()
    assert line == (
        f"kubectl gpu: cannot listen on 127.0.0.1:{port}: Address already in use; name another"
        " --port, or none"
    )


async def test_a_port_can_be_named_and_the_browser_is_opened_when_told(cluster: ListedCluster):
    browser, opened = cluster.directory / "browser", cluster.directory / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part; mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    port = free_port()
    flags = ("--port", str(port), "--open")
    async with console_of(cluster, *flags, BROWSER=f"{browser} %s") as console:
        await until(opened.exists)
        assert opened.read_text().strip() == console.address
        assert console.address.startswith(f"http://127.0.0.1:{port}/#token=")


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("expired", "the API server accepts no credentials of this user (401 Unauthorized)"),
        ("away", "the API server cannot be reached: "),
        ("not installed", "the API server does not serve gpupools of"),
        ("forbidden", "gpudevices of gpu.deckhouse.io/v1alpha1 may not be read: gpudevices is"),
        ("no such context", 'kubectl cannot be used: context "nowhere" does not exist'),
    ],
)
async def test_a_cluster_that_cannot_be_read(cluster: ListedCluster, trouble: str, said: str):
    flags: list[str] = []
    match trouble:
        case "expired":
            cluster.api.always = Json(status(401, "Unauthorized", "Unauthorized"), status=401)
        case "away":
            cluster.api.always = Reset()
        case "not installed":
            cluster.not_served = {"gpupools", "gpudevices"}
        case "forbidden":
            cluster.forbidden = {"gpudevices"}
        case _:
            flags = ["--context", "nowhere"]
    done = await cluster.run("console", *flags)
    assert sentence_of(done).startswith(said)
    assert list(cluster.directory.glob("kubectl-gpu-*")) == []


@pytest.mark.parametrize("flags", [("--port", "65536"), ("--port", "-1"), ("--port", "x"), ("-A",)])
async def test_a_command_line_that_cannot_be_used(cluster: ListedCluster, flags: tuple[str, ...]):
    done = await cluster.run("console", *flags)
    assert done.returncode == MISUSED
    assert cluster.api.seen == []


def test_the_page_needs_no_library_of_the_server():
    program = (
        "import sys, console.processes.local_console\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(done.stdout.split())
    assert "aiohttp" in loaded
    assert loaded & HEAVY == set()


def sentence_of(done: Done) -> str:
    assert done.returncode == UNREADABLE, (done.stdout, done.stderr)
    (line,) = done.stderr.splitlines()
    return line.removeprefix("kubectl gpu: ")


@pytest.mark.parametrize("flags", [("--decisions",), ()])
async def test_the_page_approves_a_device_with_the_rights_of_the_user_where_a_flag_says_so(
    cluster: ListedCluster, flags: tuple[str, ...]
):
    decision = {"device": "gpu-2-1", "pool": "training"}
    headers = {"X-GPU-Console": "decision"}
    async with (
        console_of(cluster, *flags) as console,
        session_of(console) as (session, url),
        session.post(f"{url}api/v1/decisions", json=decision, headers=headers) as reply,
    ):
        assert reply.status == (200 if flags else 403), await reply.text()
    sent = [
        (seen.path, seen.query, msgspec.json.decode(seen.body))
        for seen in cluster.api.seen
        if seen.method != "GET"
    ]
    metadata = {
        "annotations": {"gpu.deckhouse.io/assignment": "training"},
        "uid": "device-gpu-2-1",
    }
    path = "/apis/gpu.deckhouse.io/v1alpha1/gpudevices/gpu-2-1"
    expected = [(path, {"fieldManager": "gpu-console"}, {"metadata": metadata})]
    assert sent == (expected if flags else [])
