"""Streams of viewers, as server-sent events: opened, written as fast as the viewer reads, reviewed, ended."""

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

import msgspec
import structlog
from aiohttp import web

from console.console_data import TooManyViewersError
from console.edge.console_answers import HEADERS, RefusedError
from console.rows import StreamEnd
from telemetry.console_metrics import EVENTS_SENT, STREAMS_DROPPED, VIEWERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from api.clock import Clock
    from console.console_data import ConsoleData, EventStream
    from console.edge.viewer_limits import ViewerLimits
    from console.edge.viewer_login import LoggedIn

    ReviewAgain = Callable[[], Awaitable[LoggedIn]]
    """Returns the viewer of the stream as it is now; raises RefusedError."""

STREAM_HEADERS: Final = {
    **HEADERS,
    "Content-Type": "text/event-stream; charset=utf-8",
    # nginx would keep events back until its buffer is full.
    "X-Accel-Buffering": "no",
}
PIECE: Final = 128 * 1024
"""Bytes that are written at a time, within `ViewerLimits.answer_s`: the snapshot of a large cluster has megabytes."""
REVIEW_AGAIN_S: Final = 5.0
"""Seconds after a review to which the API server did not answer."""

_BACKLOG: Final = "backlog"
_UNREAD: Final = "unread"

for _cause in (_BACKLOG, _UNREAD):
    STREAMS_DROPPED.labels(_cause)
_log = structlog.get_logger()


@final
class ViewerStreams:
    """The streams that are open."""

    def __init__(self, data: "ConsoleData", clock: "Clock", limits: "ViewerLimits") -> None:
        self._data = data
        self._clock = clock
        self._limits = limits
        self._open: set[_OpenStream] = set()
        self._end: StreamEnd | None = None

    async def serve(
        self, request: web.BaseRequest, viewer: "LoggedIn", review: "ReviewAgain"
    ) -> web.StreamResponse:
        """Write events until the viewer goes away, its rights end, or `end_all` is called.

        Raises:
            RefusedError: no further stream can be opened.
        """
        if self._end is not None:
            raise _unavailable(self._end.message)
        stream = _OpenStream(request, viewer, clock=self._clock, limits=self._limits)
        try:
            events = self._data.open_stream(viewer.row, viewer.visibility, drop=stream.drop)
        except TooManyViewersError as error:
            raise _unavailable(str(error)) from error
        self._open.add(stream)
        VIEWERS.inc()
        _log.info("stream opened", user=viewer.row.name, namespace=viewer.row.namespace)
        try:
            return await stream.run(events, review)
        finally:
            events.close()
            self._open.discard(stream)
            VIEWERS.dec()
            _log.info("stream closed", user=viewer.row.name)

    def end_all(self, message: str) -> None:
        """End every stream with an event, and open none any more."""
        self._end = StreamEnd(message=message)
        for stream in self._open:
            stream.end(self._end)


@final
class _OpenStream:
    """One stream."""

    def __init__(
        self,
        request: web.BaseRequest,
        viewer: "LoggedIn",
        *,
        clock: "Clock",
        limits: "ViewerLimits",
    ) -> None:
        self._request = request
        self._viewer = viewer
        self._clock = clock
        self._limits = limits
        self._end: StreamEnd | None = None
        self._waiting: asyncio.Timeout | None = None
        # while it waits for an event
        self._unreviewed_since: float | None = None

    def end(self, end: StreamEnd) -> None:
        """End it with this event, once what is being written is written."""
        self._end = end
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())

    def drop(self, cause: str = _BACKLOG) -> None:
        """Cut the connection: its viewer does not read."""
        STREAMS_DROPPED.labels(cause).inc()
        if self._request.transport is not None:
            self._request.transport.abort()

    async def run(self, events: "EventStream", review: "ReviewAgain") -> web.StreamResponse:
        response = web.StreamResponse(headers=STREAM_HEADERS)
        await response.prepare(self._request)
        due = self._viewer.until
        while self._end is None or events.is_inside_event:
            if due is not None and self._clock.monotonic() >= due:
                due = await self._review(review)
                continue
            event = await self._next(events, due)
            if event is not None:
                await self._write(response, event)
                EVENTS_SENT.inc(not events.is_inside_event)
        await self._write(response, b"event: end\ndata: %b\n\n" % msgspec.json.encode(self._end))
        await response.write_eof()
        return response

    async def _next(self, events: "EventStream", due: float | None) -> bytes | None:
        """Return the next event; None where the stream ends, or its viewer is to be reviewed."""
        left_s = None if due is None else max(due - self._clock.monotonic(), 0.0)
        try:
            async with asyncio.timeout(left_s) as self._waiting:
                return await events.next_event()
        except TimeoutError:
            return None
        finally:
            self._waiting = None

    async def _write(self, response: web.StreamResponse, event: bytes) -> None:
        """Write an event in pieces, each within a bounded time."""
        remaining = memoryview(event)
        while remaining:
            piece, remaining = remaining[:PIECE], remaining[PIECE:]
            try:
                async with asyncio.timeout(self._limits.answer_s):
                    await response.write(piece)
            except TimeoutError:
                self.drop(_UNREAD)
                raise ConnectionResetError("the viewer does not read") from None

    async def _review(self, review: "ReviewAgain") -> float | None:
        """Ask again who the viewer is; return when to ask next."""
        now = self._clock.monotonic()
        try:
            viewer = await review()
        except RefusedError as error:
            is_unknown = error.status is HTTPStatus.SERVICE_UNAVAILABLE
            if self._unreviewed_since is None:
                self._unreviewed_since = now
            if not is_unknown or now - self._unreviewed_since >= self._limits.unreviewed_s:
                self._end = StreamEnd(message=str(error), is_login_needed=not is_unknown)
            return now + REVIEW_AGAIN_S
        self._unreviewed_since = None
        if not viewer.has_rights_of(self._viewer):
            self._end = StreamEnd(message="the viewer's rights have changed")
        return viewer.until


def _unavailable(text: str) -> RefusedError:
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "5"})
