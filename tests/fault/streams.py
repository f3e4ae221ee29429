"""A watch on its way from the API server to a client, line by line, and what may befall it.

Everything here is something a client must be ready for: a watch may end or be slow at any moment, and
one that begins again at an older version shows its events again, in their order, up to the newest. Two
events that trade places are of different objects and reach the client in one piece, so that no version
is skipped by a cut between them; a bookmark never overtakes an event.
"""

import asyncio
import json
from collections import Counter, deque
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol, final

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

REMEMBERED: Final = 30
"""Events of a watch that may be shown again."""
_SWAP_WITHIN_S: Final = 1.0
_BUFFERED_LINES: Final = 1000


class Disturbance(Enum):
    """What befalls a watch."""

    CUT = "cut"
    SLOW = "slow"
    GONE = "gone"
    TWICE = "twice"
    REPLAY = "replay"
    SWAP = "swap"


_Item = bytes | tuple[Disturbance, str, float] | None
"""A line, a disturbance with its name and amount, or the end of the watch."""


class Writer(Protocol):
    """The client's side."""

    async def write(self, data: bytes) -> None:
        """Send, in one piece."""


@final
class WatchStream:
    """One watch of one client."""

    def __init__(self, used: "Counter[str]") -> None:
        """Count in `used`, by the name that a disturbance is given, what really happened."""
        self._used = used
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(_BUFFERED_LINES)
        self._recent: deque[bytes] = deque(maxlen=REMEMBERED)
        self._repeat: deque[tuple[str, int]] = deque()
        # what awaits the next event, to be shown again: name, how many events
        self._swaps: deque[str] = deque()
        self._first: bytes | None = None
        # the event that waits to trade places with the next

    def disturb(self, disturbance: Disturbance, name: str, amount: float) -> bool:
        """Have it happen to this watch, in turn; False when the watch is too far behind for that.

        `amount` is a number of seconds for SLOW, of events for REPLAY.
        """
        try:
            self._queue.put_nowait((disturbance, name, amount))
        except asyncio.QueueFull:
            return False
        return True

    async def pump(self, lines: "AsyncIterator[bytes]", to: Writer) -> bool:
        """Pass every line on until the watch ends; False when the client must see a reset."""
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._read(lines))
            ended_properly = await self._pass_all(to)
            reading.cancel()
        return ended_properly

    async def _pass_all(self, to: Writer) -> bool:
        while True:
            item = await self._next(to)
            if item is None:
                await self._flush(to)
                return True
            if isinstance(item, bytes):
                await self._pass(item, to)
                continue
            disturbance, name, amount = item
            if name:
                self._note(disturbance, name)
            if disturbance is Disturbance.CUT:
                return False
            if disturbance is Disturbance.GONE:
                await self._flush(to)
                await to.write(_GONE)
                return True
            await self._befall(disturbance, name, amount)

    def _note(self, disturbance: Disturbance, name: str) -> None:
        if disturbance in {Disturbance.CUT, Disturbance.GONE, Disturbance.SLOW}:
            self._used[name] += 1

    async def _read(self, lines: "AsyncIterator[bytes]") -> None:
        end: tuple[Disturbance, str, float] | None = None
        try:
            async for line in lines:
                await self._queue.put(line)
        except aiohttp.ClientError:
            end = (Disturbance.CUT, "", 0)
        await self._queue.put(end)

    async def _next(self, to: Writer) -> "_Item":
        if self._first is None:
            return await self._queue.get()
        try:
            async with asyncio.timeout(_SWAP_WITHIN_S):
                return await self._queue.get()
        except TimeoutError:
            await self._flush(to)
            return await self._queue.get()

    async def _befall(self, disturbance: Disturbance, name: str, amount: float) -> None:
        match disturbance:
            case Disturbance.SLOW:
                await asyncio.sleep(amount)
            case Disturbance.TWICE:
                self._repeat.append((name, 1))
            case Disturbance.REPLAY:
                self._repeat.append((name, round(amount) + 1))
            case Disturbance.SWAP:
                self._swaps.append(name)
            case Disturbance.CUT | Disturbance.GONE:
                raise AssertionError(f"{name} ends a watch")

    async def _pass(self, line: bytes, to: Writer) -> None:
        change, uid = _identify(line)
        if change in {"BOOKMARK", "ERROR"}:
            await self._flush(to)
            await to.write(line)
            return
        if self._first is not None:
            first, self._first = self._first, None
            is_other = uid != _identify(first)[1]
            if is_other:
                self._used[self._swaps.popleft()] += 1
            pair = (line, first) if is_other else (first, line)
            self._recent.extend((first, line))
            await to.write(b"".join(pair))
            return
        if self._swaps:
            self._first = line
            return
        self._recent.append(line)
        again = b""
        if self._repeat:
            name, count = self._repeat.popleft()
            self._used[name] += 1
            again = b"".join(list(self._recent)[-count:])
        await to.write(line + again)

    async def _flush(self, to: Writer) -> None:
        if self._first is not None:
            first, self._first = self._first, None
            self._recent.append(first)
            await to.write(first)


def _identify(line: bytes) -> tuple[str, str]:
    """Return the type of an event and the uid of its object."""
    event = json.loads(line)
    return event["type"], event["object"].get("metadata", {}).get("uid", "")


_GONE: Final = (
    json.dumps(
        {
            "type": "ERROR",
            "object": {
                "apiVersion": "v1",
                "kind": "Status",
                "metadata": {},
                "status": "Failure",
                "reason": "Expired",
                "code": 410,
                "message": "too old resource version: 1 (2)",
            },
        }
    ).encode()
    + b"\n"
)
