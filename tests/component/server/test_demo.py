"""`gpu-control-plane demo` checks its claims, and its exit status is not 0 when one does not hold."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.chapters.accounting import accounts
from demo.chapters.device_assignment import discovery, manual_assignment
from demo.cluster import SERVER_USER
from demo.demo_folder import demo_folder
from demo.main import run_demo
from demo.objects import FLEET
from demo.run import LINE, DemoRun
from kube.resources import VALIDATING_WEBHOOK_CONFIGURATIONS
from manifests import constants
from simulator.apiserver.requestlog import LoggedRequest
from tests.support.plugin_cluster import children_of, process_exists
from tests.support.polling import until

WITHIN_S = 660.0
"""Longer than the demo's own limit, which says what it waited for."""


async def test_the_demo_runs_to_its_end_and_checks_every_claim():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli", "demo", stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(WITHIN_S):
        output, _ = await process.communicate()
    text = output.decode()
    assert process.returncode == 0, text
    assert "s  ReadyForPooling=True: pools may take the devices\n" in text
    assert "  n3     gfd         False   " in text
    assert " s later the operand's objects are gone:\n" in text
    assert "✓ 14 pods were bound, each with exactly one write to the API server" in text
    assert "  train-2 (ended)    n2     GPU-n2-0 … GPU-n2-7 (8)\n" in text
    assert " MiB were pulled and extracted\n" in text
    assert " s; nothing was pulled\n" in text
    assert "  llama   Outdated   2       2        0       1         2\n" in text
    assert "  $ kubectl gpu why wide\n  default/wide has waited " in text
    assert "    - ask for 3 units: node n" in text
    assert "  nvidia-driver-daemonset-ubuntu22.04   " in text
    assert (
        "  wait-for-jobs-required  WaitingForPodsToEnd: waits for the end of default/train\n"
        in text
    )
    assert (
        "  ✓ both nodes run driver 580.95.05, take pods again, and have their agent back\n" in text
    )
    last = "  ✓ it says who has the devices, and what would help, each remedy tried on a copy\n"
    assert text.endswith(f"{last}\nEvery claim above was checked.\n")
    assert [line for line in text.splitlines() if len(line) > LINE] == []


async def _write_twice(run: DemoRun) -> None:
    """Make the server look as if it had written to a pod beside its binding."""
    path = "/api/v1/namespaces/default/pods/train"
    run.cluster.api.requests.append(LoggedRequest(method="PATCH", path=path, user=SERVER_USER))


async def _kill_the_server(run: DemoRun) -> None:
    run.cluster.server.process.kill()
    await run.cluster.server.process.wait()


async def _let_everything_in(run: DemoRun) -> None:
    name = constants.VALIDATING_CONFIGURATION
    await run.cluster.client.delete(VALIDATING_WEBHOOK_CONFIGURATIONS, name)


async def test_a_claim_that_is_false_fails_the_demo(capsys: pytest.CaptureFixture[str]):
    status = await run_demo(None, [(FLEET, (_write_twice, accounts))])
    output = capsys.readouterr().out
    assert status == 1
    claim = "0 pods were bound, each with exactly one write to the API server"
    assert f"\nNOT TRUE: {claim}\nThe last lines of the server's log:\n" in output
    assert "Every claim above was checked." not in output


async def test_what_should_be_refused_and_is_not_fails_the_demo(
    capsys: pytest.CaptureFixture[str],
):
    status = await run_demo(None, [(FLEET, (_let_everything_in, discovery, manual_assignment))])
    output = capsys.readouterr().out
    assert status == 1
    claim = "an assignment of n3-0000-17-00.0 to slices is refused"
    assert f"\nNOT TRUE: {claim}\nThe last lines of the server's log:\n" in output


async def test_a_server_that_dies_fails_the_demo_with_a_message(capsys: pytest.CaptureFixture[str]):
    status = await run_demo(None, [(FLEET, (_kill_the_server, manual_assignment))])
    output = capsys.readouterr().out
    assert status == 1
    assert "\nBROKEN: " in output
    assert 'failed calling webhook "gpupools.gpu.deckhouse.io"' in output
    assert "Traceback" not in output


def test_the_folder_of_a_demo_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """tmp_path is longer than the path of a node's socket may be."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with demo_folder() as folder:
        assert folder.startswith("/tmp/gpu-demo-")


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for the sockets of nodes, whose paths may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    ("ending", "flags"),
    [(signal.SIGTERM, ()), (signal.SIGHUP, ("--console",)), (signal.SIGKILL, ())],
)
async def test_no_server_outlives_a_demo_that_is_ended_by(
    ending: signal.Signals, flags: tuple[str, ...], short_folder: Path
):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "demo", *flags),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(short_folder)},
    )
    assert process.stdout is not None
    if ending is signal.SIGKILL:
        # The first chapter: a server that has only begun ends by itself without the API server in the demo's process.
        await process.stdout.readuntil("──".encode())
    await until(lambda: children_of(process.pid) != [])
    servers = children_of(process.pid)
    process.send_signal(ending)
    await process.wait()
    await until(lambda: not any(map(process_exists, servers)))
    if ending is not signal.SIGKILL:
        assert process.returncode == 1
        assert await asyncio.to_thread(os.listdir, short_folder) == []
