"""What a request is and what it is answered with, however either is carried: over HTTP, or as a call."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from multidict import MultiMapping

    from simulator.apiserver.errors import StatusError
    from simulator.apiserver.store.watch import WatchStream

JSON: Final = "application/json"
MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""Most bytes of a body, as the real server."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRequest:
    method: str
    path: str
    """Unquoted."""
    query: "MultiMapping[str]"
    query_string: str
    """Unquoted."""
    content_type: str
    """Without parameters; empty where the request names none."""
    user_agent: str
    authorization: str
    read: "Callable[[], Awaitable[bytes]]"
    """Return the body, or raise a StatusError if it is larger than `MAX_BODY_BYTES`."""


@final
@dataclass(frozen=True, slots=True)
class CompleteAnswer:
    """A response with its whole body."""

    status: int
    encoded: bytes
    warnings: list[str] = field(default_factory=list)
    content_type: str = JSON


@final
@dataclass(frozen=True, slots=True)
class WatchAnswer:
    """A response that goes on: 200, and the lines of a watch as they come."""

    stream: "WatchStream"


@final
@dataclass(frozen=True, slots=True)
class ConnectionCut:
    """No response: the client sees its connection reset."""


Answer = CompleteAnswer | WatchAnswer | ConnectionCut


def refusal(fault: "StatusError", warnings: list[str] | None = None) -> CompleteAnswer:
    return CompleteAnswer(fault.status, msgspec.json.encode(fault.body), warnings or [])
