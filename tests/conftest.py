"""Options and profiles of every test run.

A test is long in one of three ways, and `make long-test` runs all three with `--long`:
`@pytest.mark.long` runs with `--long` alone, the fixture `is_long` makes a test longer,
and hypothesis tries more examples.
"""

import asyncio
import gc
import os

import pytest
from hypothesis import settings

from tests.support import slow_tests

settings.register_profile(
    "ci", max_examples=25, derandomize=True, database=None, deadline=None, print_blob=True
)
settings.register_profile("long", max_examples=300, database=None, deadline=None, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the long form of tests that have one")
    parser.addoption(
        "--check-slow-list",
        action="store_true",
        help="fail where a test that tests/slow.txt does not name is slow",
    )
    parser.addoption(
        "--write-slow-list",
        action="store_true",
        help="measure all tests, and write tests/slow.txt",
    )


@pytest.fixture(scope="session")
def is_long(request: pytest.FixtureRequest) -> bool:
    """Whether `--long` was given: many more steps, examples or requests of the same test."""
    return bool(request.config.getoption("--long"))


def pytest_configure(config: pytest.Config) -> None:
    """Load the profile of hypothesis, and tell asyncio that this thread has no event loop.

    looptime asks the policy for one before every plain test too; a policy that was never told
    otherwise makes one, which is never closed, and its ResourceWarning fails the next test.
    """
    profile = "long" if config.getoption("--long", default=False) else "ci"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", profile))
    asyncio.set_event_loop(None)
    gc.disable()
    writes = config.getoption("--write-slow-list", default=False)
    if writes or config.getoption("--check-slow-list", default=False):
        config.pluginmanager.register(slow_tests.CpuTimes(writes=writes))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark slow tests; leave out what is marked `long` without `--long`, else mark all that has a long form."""
    slow_tests.mark_slow_tests(items)
    if not config.getoption("--long", default=False):
        left_out = [item for item in items if item.get_closest_marker("long")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker("long")]
        return
    for item in items:
        has_examples = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if has_examples or "is_long" in getattr(item, "fixturenames", ()):
            item.add_marker("long")


def pytest_collection_finish() -> None:
    """Collect garbage from here on, without what collected tests keep: going through it is a sixth of the collection."""
    gc.freeze()
    gc.enable()
