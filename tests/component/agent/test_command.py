"""`gpu-control-plane device-plugin` as a process: it serves, says that it is ready, and stops when told."""

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from server.cli import MISUSED, OK, run
from simulator.kubelet_plugins import PluginsOfKubelet
from tests.component.agent.node import RESOURCE, MountedConfig
from tests.support.polling import LIMIT_S, until, until_async


@asynccontextmanager
async def a_process(*arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-m", "server", "device-plugin", *arguments, stderr=PIPE
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_the_command_serves_the_file_until_it_is_told_to_stop(
    kubelet: PluginsOfKubelet, folder: Path, unused_tcp_port: int
):
    mounted = MountedConfig(folder / "pool")
    mounted.put_cards("GPU-1")
    options = {
        "--node": "n1",
        "--config": str(mounted.path),
        "--plugins-directory": str(kubelet.directory),
        "--port": str(unused_tcp_port),
    }
    base = f"http://127.0.0.1:{unused_tcp_port}"

    async with (
        a_process(*(part for pair in options.items() for part in pair)) as process,
        aiohttp.ClientSession() as session,
    ):

        async def is_ready() -> bool:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{base}/readyz") as answer:
                    return answer.status == 200
            return False

        await until(lambda: kubelet.capacity(RESOURCE) == 1)
        await until_async(is_ready)
        async with session.get(f"{base}/livez") as answer:
            assert answer.status == 200
        async with session.get(f"{base}/metrics") as answer:
            assert "gpu_task_failures" in await answer.text()
        await kubelet.stop()
        async with session.get(f"{base}/readyz") as answer:
            assert answer.status == 503
            assert await answer.text() == f"{RESOURCE} is not registered with kubelet\n"
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LIMIT_S):
            _, error = await process.communicate()
    assert process.returncode == OK, error.decode()
    assert not (kubelet.directory / "gpu.deckhouse.io_whole.sock").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="no node"),
        pytest.param(["--node", "n1"], id="neither a file nor all pools"),
        pytest.param(["--node", "n1", "--all-pools", "--config", "f"], id="both"),
        pytest.param(["--node", "n1", "--all-pools", "--hand-out", "Magic"], id="unknown way"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as end:
        run(["device-plugin", *arguments])
    assert end.value.code == MISUSED
    assert "usage:" in capsys.readouterr().err


async def test_a_missing_way_to_the_api_server_is_named(tmp_path: Path, unused_tcp_port: int):
    kubeconfig = str(tmp_path / "none")
    arguments = ["--node", "n1", "--all-pools", "--kubeconfig", kubeconfig]
    async with a_process(*arguments, "--port", str(unused_tcp_port)) as process:
        async with asyncio.timeout(LIMIT_S):
            _, error = await process.communicate()
    assert process.returncode == MISUSED
    assert kubeconfig in error.decode()
