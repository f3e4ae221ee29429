"""The in-memory API server answers as the real one: its conformance suite, against the real one."""

import asyncio
import os
import subprocess
import sys

from tests.cluster.environment import binaries

_LIMIT_S = 300


async def test_conformance_suite_holds_for_the_real_api_server(control_plane):
    environment = {
        **os.environ,
        "CONFORMANCE_API_URL": control_plane.url,
        "CONFORMANCE_API_TOKEN": control_plane.token(),
        "CONFORMANCE_API_CA": str(control_plane.ca_file),
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
