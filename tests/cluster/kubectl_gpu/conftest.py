"""The plugin as users have it: an executable on PATH that the real kubectl finds."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import binaries

if TYPE_CHECKING:
    from tests.cluster.environment.control_plane import ControlPlane

Done = subprocess.CompletedProcess[str]
KubectlGpu = Callable[..., Awaitable[Done]]


@pytest.fixture(scope="session")
def plugin_environment(
    progress: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Variables with which `kubectl gpu` is this tree's."""
    folder = tmp_path_factory.mktemp("plugin")
    executable = folder / "kubectl-gpu"
    executable.write_text(f'#!/bin/sh\nexec {sys.executable} -m kubectl_gpu "$@"\n')
    executable.chmod(0o755)
    kubectl = binaries.find_kubectl(progress)
    return {
        "HOME": str(folder),
        "PATH": f"{folder}:{kubectl.parent}:/usr/bin:/bin",
        "PYTHONPATH": str(binaries.ROOT),
        "PYTHONIOENCODING": "utf-8",
        "TMPDIR": str(folder),
    }


@pytest.fixture
def kubectl_gpu(control_plane: "ControlPlane", plugin_environment: dict[str, str]) -> KubectlGpu:
    """`done = await kubectl_gpu("why", "big", user="alice")`: as a user types it."""

    async def run(*arguments: str, user: str = "admin") -> Done:
        return await asyncio.to_thread(
            subprocess.run,
            ["kubectl", "gpu", *arguments],
            env=plugin_environment | {"KUBECONFIG": str(control_plane.kubeconfig(user))},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run
