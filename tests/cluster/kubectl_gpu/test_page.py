"""`kubectl gpu console` as users type it, on a real API server: through kubectl, with their certificates."""

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest

from kubectl_gpu.exit_codes import ANSWERED
from manifests.install.crds import build_crds
from tests.cluster.environment import definitions
from tests.support.polling import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.kubectl_gpu.conftest import KubectlGpu


@pytest.fixture
async def kinds(kubectl: "Kubectl") -> None:
    """Our kinds are served; they stay until the control plane goes."""
    crds = build_crds()
    await kubectl.apply_yaml(crds)
    await definitions.until_served(kubectl, crds)


@asynccontextmanager
async def page(
    control_plane: "ControlPlane", environment: dict[str, str]
) -> "AsyncIterator[tuple[asyncio.subprocess.Process, list[str]]]":
    """Yield the running plugin, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "gpu", "console"),
        env=environment | {"KUBECONFIG": str(control_plane.kubeconfig())},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(LIMIT_S):
            while not lines or not lines[-1].startswith("The page"):
                lines.append((await process.stdout.readline()).decode().strip())
                assert lines[-1], (await process.communicate())[1]
        yield process, lines
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.usefixtures("kinds")
async def test_the_page_of_an_administrator(
    control_plane: "ControlPlane", plugin_environment: dict[str, str]
):
    async with page(control_plane, plugin_environment) as (process, lines):
        address = next(line for line in lines if line.startswith("http://"))
        url, _, token = address.partition("#token=")
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(f"{url}api/v1/login", headers=headers) as reply:
                assert reply.status == 204
            async with session.get(f"{url}api/v1/stream") as reply:
                event = await reply.content.readuntil(b"\n\n")
        assert b'"viewer":{"allNamespaces":true,"nodes":true}' in event
        process.send_signal(signal.SIGINT)
        assert await process.wait() == ANSWERED


@pytest.mark.usefixtures("kinds")
async def test_a_user_without_rights_is_told_which(kubectl_gpu: "KubectlGpu"):
    done = await kubectl_gpu("console", user="alice")
    assert done.returncode == 3
    assert 'gpupools.gpu.deckhouse.io is forbidden: User "alice" cannot list' in done.stderr
