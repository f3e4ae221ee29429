"""Writes of several objects, a few at a time: a node's devices or pods do not wait for each other's round trip."""

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from kube.errors import ApiError, KubeError, TooManyRequests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

T = TypeVar("T")

DEVICES_AT_A_TIME: Final = 8
"""Devices of a node that are written at a time: those of most nodes."""


async def write_in_order(
    items: "Iterable[T]", write: "Callable[[T], Awaitable[None]]", *, at_a_time: int
) -> None:
    """Begin the writes in order, for as long as the API server answers; a refused one stops no other.

    Raises:
        KubeError: an object could not be written; the first one that ended the writes, or that was refused.
    """
    refused: list[ApiError] = []

    async def attempt(item: T) -> None:
        try:
            await write(item)
        except TooManyRequests:
            raise
        except ApiError as error:
            refused.append(error)

    failures = await write_until_failure(items, attempt, at_a_time=at_a_time)
    if failures or refused:
        raise (*failures, *refused)[0]


async def write_until_failure(
    items: "Iterable[T]", write: "Callable[[T], Awaitable[None]]", *, at_a_time: int
) -> list[KubeError]:
    """Begin the writes in order until one fails; those that have begun end. Return the failures, the first one first."""
    left = iter(items)
    failures: list[KubeError] = []

    async def work() -> None:
        for item in left:
            if failures:
                return
            try:
                await write(item)
            except KubeError as error:
                failures.append(error)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_a_time):
            group.create_task(work())
    return failures
