"""WATCH: the events of one client, as lines.

A watch has no queue of its own. It reads the collection's shared history after a remembered
version, so a slow client costs nothing; one that falls behind the history gets 410, as on the real
server.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from simulator.apiserver.apply.ownership import Ownership
from simulator.apiserver.errors import expired
from simulator.apiserver.store.objects import encode, event_line

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from simulator.apiserver.resource_types import ResourceType
    from simulator.apiserver.store.objects import Change, Collection, Revision, Stored
    from simulator.apiserver.store.selectors import ListSelection

Json = dict[str, Any]

_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_BATCH_BYTES: Final = 256 * 1024


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    resource: "ResourceType"
    selection: "ListSelection"
    version: int
    """0: start with what is there now."""
    bookmarks: bool
    sends_initial_events: bool
    """Start with the present objects, and end them with a bookmark."""
    timeout_s: float | None


@final
class WatchStream:
    """One watch; `lines` yields its bytes until an orderly end."""

    def __init__(
        self,
        request: WatchRequest,
        collection: "Collection",
        revision: "Revision",
        *,
        bookmark_interval_s: float,
        is_stopping: "Callable[[], bool]",
    ) -> None:
        self._request = request
        self._collection = collection
        self._revision = revision
        self._bookmark_interval_s = bookmark_interval_s
        self._is_stopping = is_stopping
        self._version = request.version
        self.is_cut = False
        """The client is not to get the end of it."""

    def cut(self) -> None:
        """End the stream early; `is_cut` tells the end from an orderly one."""
        self.is_cut = True
        self._collection.history.wake()

    async def lines(self) -> "AsyncGenerator[bytes, None]":
        """Yield one or more whole lines at a time.

        It ends at the time-out, when the server stops, or after an ERROR event.
        """
        loop = asyncio.get_running_loop()
        timeout_s = self._request.timeout_s
        ends_at = None if timeout_s is None else loop.time() + timeout_s
        if initial := self._initial_lines():
            yield initial
        bookmark_at = loop.time() + self._bookmark_interval_s
        while not (self.is_cut or self._is_stopping()):
            next_change = self._collection.history.next_change
            changes = self._collection.history.after(self._version)
            if changes is None:
                yield self._gone_line()
                return
            for batch in self._batches(changes):
                yield batch
            wakes_at = bookmark_at if ends_at is None else min(bookmark_at, ends_at)
            if not changes:
                await _wait_until(next_change, wakes_at)
            if loop.time() >= bookmark_at:
                bookmark_at = loop.time() + self._bookmark_interval_s
                if self._request.bookmarks:
                    yield self._bookmark_line()
            if ends_at is not None and loop.time() >= ends_at:
                if self._request.bookmarks:
                    yield self._bookmark_line()
                return

    def _initial_lines(self) -> bytes:
        """Return the present objects as events, if the client named no version."""
        if self._request.version and not self._request.sends_initial_events:
            return b""
        stored = sorted(self._collection.all(self._request.selection.namespace), key=_key_of)
        lines = [
            event_line("ADDED", item.encoded)
            for item in stored
            if self._request.selection.matches(item.body)
        ]
        self._version = self._revision.current
        if self._request.sends_initial_events:
            lines.append(self._bookmark_line({_INITIAL_EVENTS_END: "true"}))
        return b"".join(lines)

    def _batches(self, changes: "list[Change]") -> "list[bytes]":
        """Return the events of the changes, in pieces of limited size."""
        batches: list[bytes] = []
        lines: list[bytes] = []
        size = 0
        for change in changes:
            self._version = change.version
            if line := self._line(change):
                lines.append(line)
                size += len(line)
            if size > _BATCH_BYTES:
                batches.append(b"".join(lines))
                lines, size = [], 0
        if lines:
            batches.append(b"".join(lines))
        return batches

    def _line(self, change: "Change") -> bytes:
        """Return the watch event of the change for this selection; empty without one."""
        matches = self._request.selection.matches
        is_in = change.kind != "DELETED" and matches(change.stored.body)
        was_in = change.previous is not None and matches(change.previous.body)
        if is_in and was_in == (change.kind == "MODIFIED"):
            return change.line
        if is_in:
            return event_line("MODIFIED" if was_in else "ADDED", change.stored.encoded)
        if not was_in:
            return b""
        if change.kind == "DELETED":
            return change.line
        return self._deleted_line(change)

    def _deleted_line(self, change: "Change") -> bytes:
        """Return the DELETED event of an object that left the selection, with its state before."""
        assert change.previous is not None
        body = change.previous.copy()
        body["metadata"]["resourceVersion"] = str(change.version)
        return event_line("DELETED", encode(body, change.previous.ownership))

    def _bookmark_line(self, annotations: Json | None = None) -> bytes:
        if self._version > self._revision.current:
            # As kube-apiserver, to which a version of before a restore lies in the future.
            return b""
        resource = self._request.resource
        # Everything up to the counter's present value has been sent, or does not concern us.
        if self._collection.history.after(self._version) == []:
            self._version = self._revision.current
        metadata: Json = {"resourceVersion": str(self._version)}
        if annotations:
            metadata["annotations"] = annotations
        body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return event_line("BOOKMARK", encode(body, Ownership()))

    def _gone_line(self) -> bytes:
        fault = expired(
            f"too old resource version: {self._version} ({self._collection.history.floor})"
        )
        return event_line("ERROR", msgspec.json.encode(fault.body))


def _key_of(stored: "Stored") -> tuple[str, str]:
    return stored.key


async def _wait_until(event: asyncio.Event, when: float) -> None:
    """Wait for the event, but not beyond the loop time given."""
    try:
        async with asyncio.timeout_at(when):
            await event.wait()
    except TimeoutError:
        return
