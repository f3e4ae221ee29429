"""Cancelling a coroutine at each of its suspensions in turn, as asyncio would at that moment."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

MANY = 500
"""More suspensions than any scenario has: one that never finishes fails here."""


class Stepping(Coroutine[Any, Any, T]):
    """A coroutine that counts its suspensions and cancels its task at one of them."""

    def __init__(self, work: Coroutine[Any, Any, T], cancel_at: int) -> None:
        self._work = work
        self._cancel_at = cancel_at
        self.suspensions = 0

    @property
    def is_interrupted(self) -> bool:
        """Whether the suspension to cancel at has come."""
        return self.suspensions >= self._cancel_at

    def send(self, value: Any) -> Any:
        return self._suspended(self._work.send(value))

    def throw(  # type: ignore[override]  # the one form that asyncio uses
        self, error: BaseException, value: Any = None, traceback: TracebackType | None = None
    ) -> Any:
        return self._suspended(self._work.throw(error))

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return (yield from self._work.__await__())

    def _suspended(self, future: Any) -> Any:
        self.suspensions += 1
        if self.suspensions == self._cancel_at:
            task = asyncio.current_task()
            assert task is not None
            # The future that is about to be awaited is cancelled before anything else happens.
            task.cancel()
        return future


async def runs_through(work: Coroutine[Any, Any, object], *, cancel_at: int) -> bool:
    """Run it, cancel it at that suspension; True when it was over before.

    A cancellation that is swallowed fails.
    """
    stepping = Stepping(work, cancel_at)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stepping)
    assert task.cancelled() is stepping.is_interrupted
    return not stepping.is_interrupted


async def at_every_suspension(attempt: Callable[[int], Awaitable[bool]]) -> int:
    """Make an attempt for each number from 1, until one runs through; return how many did not."""
    for number in range(1, MANY):
        if await attempt(number):
            return number - 1
    raise AssertionError(f"not through after {MANY} suspensions")
