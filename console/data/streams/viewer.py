"""What waits for one viewer: the rest of its snapshot, and the events behind it."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

MOST_BACKLOG: Final = 1_000_000
"""Bytes behind the snapshot."""


@final
class ViewerStream:
    """Implements `console.console_data.EventStream`."""

    def __init__(
        self,
        follow: "Callable[[ViewerStream], Awaitable[None]]",
        head: "Callable[[], bytes]",
        *,
        drop: "Callable[[], None]",
        on_close: "Callable[[ViewerStream], None]",
    ) -> None:
        """Start with nothing; the first call of `next_event` takes the snapshot.

        Args:
            follow: hands over a snapshot by `begin`, and from there on each event by `put`.
            head: makes the beginning of the snapshot.
            drop: called once where the viewer does not read.
            on_close: called once when the stream is closed.
        """
        self._follow = follow
        self._head = head
        self._drop = drop
        self._on_close = on_close
        self._parts: deque[bytes] = deque()
        self._events: deque[bytes] = deque()
        self._backlog = 0
        self._has_begun = False
        self.is_closed = False
        self._arrived = asyncio.Event()

    @property
    def is_inside_event(self) -> bool:
        return bool(self._parts)

    async def next_event(self) -> bytes:
        if not self._has_begun and not self.is_closed:
            await self._follow(self)
        if self._parts:
            return self._parts.popleft()
        while not self._events:
            if self.is_closed:
                raise ConnectionResetError("the stream is closed")
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        self._backlog -= len(event)
        return event

    def begin(self, parts: "Sequence[bytes]", later: "Sequence[bytes]") -> None:
        """Take a snapshot, and the events since."""
        self._has_begun = True
        self._parts.append(self._head())
        self._parts.extend(parts)
        for event in later:
            self.put(event)

    def put(self, event: bytes) -> None:
        """Let an event wait; the viewer is dropped where too much of them does."""
        if self.is_closed:
            return
        self._events.append(event)
        self._backlog += len(event)
        self._arrived.set()
        if self._backlog > MOST_BACKLOG:
            self.close()
            self._drop()

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._parts.clear()
        self._events.clear()
        self._arrived.set()
        self._on_close(self)
