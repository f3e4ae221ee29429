"""What every test needs of pytest."""

import asyncio
import os

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, database=None, deadline=None, print_blob=True)
settings.register_profile("long", max_examples=3000, database=None, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `--long` ask for the long form of the tests that have one."""
    parser.addoption("--long", action="store_true", help="a million steps instead of thousands")


@pytest.fixture(scope="session")
def is_long(request: pytest.FixtureRequest) -> bool:
    """Whether `--long` was given: many more steps, examples or requests of the same test."""
    return bool(request.config.getoption("--long"))


def pytest_configure(config: pytest.Config) -> None:
    """Load the long profile of hypothesis for `--long`, and say that this thread has no event loop.

    looptime asks the policy for one before every plain test too; a policy that was never told
    otherwise makes one, which nobody closes, and its ResourceWarning fails whichever test comes next.
    """
    if config.getoption("--long", default=False):
        settings.load_profile("long")
    asyncio.set_event_loop(None)
