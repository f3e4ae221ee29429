"""What every test needs of pytest."""

import asyncio


def pytest_configure() -> None:
    """Say that this thread has no event loop.

    looptime asks the policy for one before every plain test too; a policy that was never told
    otherwise makes one, which nobody closes, and its ResourceWarning fails whichever test comes next.
    """
    asyncio.set_event_loop(None)
