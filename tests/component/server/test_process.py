"""`gpu-control-plane serve` as a process: exit status, what it prints, signals."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from cli.exit_status import FAILED, MISUSED, OK
from tests.support.polling import LIMIT_S
from tests.support.running_server import Cluster, RunningServer, settings_for


@asynccontextmanager
async def a_process(*arguments: str) -> AsyncIterator[Process]:
    environ = {
        name: value
        for name, value in os.environ.items()
        if name != "KUBECONFIG" and not name.startswith("GPU_CONTROL_PLANE_")
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli", *arguments, stdout=PIPE, stderr=PIPE, env=environ
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def end_of(process: Process) -> tuple[int | None, str, str]:
    """Return exit status, standard output and standard error."""
    async with asyncio.timeout(LIMIT_S):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def settings_file(cluster: Cluster, folder: Path, **changes: Any) -> str:
    settings = settings_for(cluster, cluster.port, **changes)
    file = folder / "settings.yaml"
    file.write_text(yaml.safe_dump(settings.model_dump(mode="json")))
    return str(file)


async def test_process_that_is_told_to_stop_ends_with_0_and_has_logged_json_lines(
    cluster: Cluster, tmp_path: Path
) -> None:
    settings = settings_file(cluster, tmp_path)
    probe = RunningServer(cluster, cluster.port, settings_for(cluster, cluster.port))
    async with a_process("serve", "--settings", settings) as process:
        await probe.until_ready()
        process.send_signal(signal.SIGTERM)
        status, out, err = await end_of(process)
    assert (status, out) == (OK, "")
    lines = [json.loads(line) for line in err.splitlines()]
    assert all({"event", "level", "time"} <= line.keys() for line in lines)
    events = [line["event"] for line in lines]
    expected = ["listening", "started leading", "serving", "draining", "lease released", "stopped"]
    assert [event for event in events if event in expected] == expected
    assert await cluster.lease_holder() == ""


async def test_port_that_is_taken_ends_the_process_with_a_line(
    cluster: Cluster, tmp_path: Path
) -> None:
    taken = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with taken:
        port = taken.sockets[0].getsockname()[1]
        flags = ["--settings", settings_file(cluster, tmp_path), "--listen.port", str(port)]
        async with a_process("serve", *flags) as process:
            status, _, err = await end_of(process)
    assert status == FAILED
    assert f"gpu-control-plane: cannot listen on 127.0.0.1:{port}: " in err
    assert "Traceback" not in err


async def test_kubeconfig_that_is_missing_ends_the_process_with_a_line(tmp_path: Path) -> None:
    missing = tmp_path / "kubeconfig"
    no_daemon_sets = ("--device_plugin.mode", "None", "--node_agent.enabled", "false")
    async with a_process("serve", "--kubeconfig", str(missing), *no_daemon_sets) as process:
        status, _, err = await end_of(process)
    assert status == MISUSED
    assert err == f"gpu-control-plane: no usable configuration: no kubeconfig at {missing}\n"


async def test_image_without_a_registry_ends_the_process_with_a_line() -> None:
    """Privileged pods of it would run what a user has put on docker.io under that name."""
    for image in ("", "gpu-control-plane", "gpu/control-plane:1", "gpu-control-plane@sha256:00"):
        async with a_process("serve", "--device_plugin.image", image) as process:
            status, _, err = await end_of(process)
        assert status == MISUSED
        assert (
            f"device_plugin.image, node_agent.image, bootstrap: {image!r} names no registry" in err
        )


async def test_no_command_prints_what_there_is() -> None:
    async with a_process() as process:
        status, out, _ = await end_of(process)
    assert status == MISUSED
    assert all(command in out for command in ("serve", "render", "demo"))
