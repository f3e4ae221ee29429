"""The in-memory API server answers as the real one: its conformance suite, against the real one.

An API server of its own, without controllers and kubelets: what they write into every namespace, and
do to every pod, is no part of what the in-memory one promises.
"""

import asyncio
import os
import subprocess
import sys

import pytest

from tests.cluster.environment import binaries, control_plane, processes

_LIMIT_S = 300


@pytest.fixture
async def bare_api_server(run, progress):
    programs = binaries.find_binaries(progress)
    with processes.Run(run.directory / "conformance") as own_run:
        started = control_plane.ControlPlane(
            own_run,
            programs,
            # Nobody makes the accounts that it would demand.
            apiserver_flags=["--disable-admission-plugins=ServiceAccount"],
        )
        await started.start()
        yield started


async def test_conformance_suite_holds_for_the_real_api_server(bare_api_server):
    environment = {
        **os.environ,
        "CONFORMANCE_API_URL": bare_api_server.url,
        "CONFORMANCE_API_TOKEN": bare_api_server.token(),
        "CONFORMANCE_API_CA": str(bare_api_server.ca_file),
    }
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "pytest", "-q", "-k", "real", "tests/component/conformance"],
        cwd=binaries.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    assert " passed" in done.stdout.splitlines()[-1]
