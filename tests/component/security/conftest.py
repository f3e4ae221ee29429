"""The application behind our own port, with real TLS, few connections and short deadlines."""

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from http_edge.limits import Limits
from tests.support.reviews import AdmissionSetup
from tests.support.served_app import MAX_BODY_BYTES, TOKEN, ServedApp, TestAuthority, on_a_port

PLACES = 16
LIMITS = Limits(connections=PLACES, body_bytes=MAX_BODY_BYTES)
"""As in production, but for the number of connections."""


@pytest.fixture(scope="session")
def authority() -> TestAuthority:
    return TestAuthority()


@pytest.fixture
def limits() -> Limits:
    """Short deadlines; a test of many connections at once has those of production."""
    return replace(LIMITS, handshake_s=0.3, head_s=0.3)


@pytest.fixture
def webhook_callers() -> tuple[str, ...]:
    """Common names that may call webhooks; none leaves them open."""
    return ()


@pytest.fixture
async def served(
    authority: TestAuthority,
    tmp_path: Path,
    limits: Limits,
    webhook_callers: tuple[str, ...],
) -> AsyncIterator[ServedApp]:
    """The application; callers show no certificate unless the test sets `pair`."""
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    # Ids of its own: the extender counts from 0, in the same allocation state.
    admission = AdmissionSetup(_numbers=itertools.count(1000))
    app = ServedApp(authority, token_file, admission, webhook_callers=webhook_callers)
    async with on_a_port(app, limits):
        yield app


@pytest.fixture
def scheduler(served: ServedApp) -> ServedApp:
    """The same application, called by kube-scheduler with its certificate."""
    served.pair = served.authority.client("gpu-scheduler")
    return served
