"""`python -m tests.bench_cluster --quick`: the comparison runs, and its checks hold, at a small size."""

import asyncio
import subprocess
import sys

import pytest

from tests.cluster.environment import binaries


# It starts a control plane of its own, which a cluster of another client's is no place for.
@pytest.mark.usefixtures("control_plane")
async def test_every_contender_binds_all_pods_and_passes_its_checks():
    command = [sys.executable, "-m", "tests.bench_cluster", "--quick"]
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=binaries.ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=480,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = done.stdout.splitlines()[-5:]
    echoes = ["echo extender", "echo extender, idle webhooks"]
    names = ["no extender", *echoes, "ours, Scored", "ours, Nominated"]
    for name, line in zip(names, summary, strict=True):
        assert line.startswith(f"{name}, 20 nodes, 40 pods: ")
        assert "pods/s" in line
