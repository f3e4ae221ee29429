"""A log of all requests, so that tests can count writes."""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator

_WRITING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_KEPT: Final = 200_000
"""Older requests are forgotten; tests count in the hundreds."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """One request, logged on arrival."""

    method: str
    path: str
    user: str
    query: str = ""
    dry_run: bool = False

    @property
    def is_write(self) -> bool:
        return self.method in _WRITING and not self.dry_run


@final
class RequestLog:
    """The requests in order of arrival, whatever their outcome."""

    def __init__(self) -> None:
        self._requests: deque[LoggedRequest] = deque(maxlen=_KEPT)

    def __iter__(self) -> "Iterator[LoggedRequest]":
        return iter(tuple(self._requests))

    def __len__(self) -> int:
        return len(self._requests)

    def append(self, request: LoggedRequest) -> None:
        self._requests.append(request)

    def writes(self, *, user: str | None = None, path: str = "") -> list[LoggedRequest]:
        """Return the write requests of one user or of all, whose path contains the text."""
        return [
            request
            for request in self._requests
            if request.is_write and path in request.path and user in {None, request.user}
        ]

    def clear(self) -> None:
        self._requests.clear()
