"""Waiting in real time, bounded and explained."""

import asyncio
import inspect
import ssl
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.cluster.environment import processes

T = TypeVar("T")

PATIENCE_S: Final = 120.0
"""Default of all waits for a fact, far beyond what any takes on a busy machine: only a failing test waits so long."""

_ANSWER_QUOTED = 600
"""Characters of a refused probe's answer that are quoted; /readyz lists ~50 checks."""


@overload
async def eventually(
    predicate: "Callable[[], Awaitable[T | None]]",
    *,
    what: str,
    within: float = ...,
    every: float = ...,
) -> T: ...


@overload
async def eventually(
    predicate: "Callable[[], T | None]", *, what: str, within: float = ..., every: float = ...
) -> T: ...


async def eventually(
    predicate: "Callable[[], Any]", *, what: str, within: float = PATIENCE_S, every: float = 0.1
) -> Any:
    """Return the first truthy value of `predicate`, plain or async, asked every `every` seconds.

    An AssertionError out of it means "not yet"; any other exception passes. Fails after `within`
    seconds, a hanging predicate included, naming `what` was awaited and what was seen last.
    """
    seen = "the first answer did not come"
    deadline = asyncio.timeout(within)
    try:
        async with deadline:
            while True:
                try:
                    answer = predicate()
                    value = await answer if inspect.isawaitable(answer) else answer
                except AssertionError as not_yet:
                    seen = f"{not_yet}"
                else:
                    if value:
                        return value
                    seen = f"{value!r}"
                await asyncio.sleep(every)
    except TimeoutError:
        if not deadline.expired():
            raise
        raise AssertionError(f"not within {within:g} s: {what}; last seen: {seen}") from None


def https_probe(
    url: str, *, ca_file: "Path | None", token: str | None = None, timeout_s: float = 5
) -> "processes.Probe":
    """Return a probe that is satisfied by a 200 of `url`; without `ca_file` any certificate will do."""
    context: ssl.SSLContext | bool = False
    if ca_file is not None:
        context = ssl.create_default_context(cafile=str(ca_file))
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def probe() -> str | None:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.get(url, ssl=context) as response,
            ):
                if response.status == 200:
                    return None
                return f"{url} said {response.status} {(await response.text())[:_ANSWER_QUOTED]}"
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"{url}: {type(error).__name__} {error}"

    return probe
