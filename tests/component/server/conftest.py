"""The application over HTTPS, with the scheduler's certificate or without any."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

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
