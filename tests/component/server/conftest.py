"""The application over HTTPS, with the scheduler's certificate or without any."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.running_server import Cluster, a_cluster
from tests.support.served_app import TOKEN, ServedApp, TestAuthority, served_app


@pytest.fixture(scope="session")
def authority() -> TestAuthority:
    return TestAuthority()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


@pytest.fixture
async def anonymous(authority: TestAuthority, token_file: Path) -> AsyncIterator[ServedApp]:
    """A caller without a certificate, as the API server is."""
    async with served_app(authority, token_file) as served:
        yield served


@pytest.fixture
def scheduler(anonymous: ServedApp) -> ServedApp:
    """The same application, called by kube-scheduler with its certificate."""
    anonymous.pair = anonymous.authority.client("gpu-scheduler")
    return anonymous


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """An API server with everything installed, for `tests.support.running_server.a_server`."""
    async with a_cluster(tmp_path) as cluster:
        await cluster.install()
        yield cluster
