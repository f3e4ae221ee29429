"""What every test needs of pytest."""

import asyncio
import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, database=None, deadline=None, print_blob=True)
settings.register_profile("long", max_examples=3000, database=None, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure() -> None:
    """Say that this thread has no event loop.

    looptime asks the policy for one before every plain test too; a policy that was never told
    otherwise makes one, which nobody closes, and its ResourceWarning fails whichever test comes next.
    """
    asyncio.set_event_loop(None)
