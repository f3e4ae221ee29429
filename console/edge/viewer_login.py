"""Who a viewer is and what it may see: the port behind which the two ways to log in are."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, final

from console.console_data import DeviceDecision
from console.rows import DecisionAnswer

if TYPE_CHECKING:
    from aiohttp import web

    from console.rows import ViewerRow
    from console.visibility import Visibility

Decide = Callable[[DeviceDecision], Awaitable[DecisionAnswer]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedIn:
    """A viewer, and what it may see."""

    row: "ViewerRow"
    visibility: "Visibility"
    until: float | None = None
    """Monotonic time from which on the rights are to be asked for again; None where they do not end."""
    decide: Decide | None = field(default=None, compare=False, repr=False)
    """Writes a decision with the viewer's own credentials; None where this console takes no decisions. Raises
    DecisionRefusedError."""

    def has_rights_of(self, other: "LoggedIn") -> bool:
        return (self.row, self.visibility) == (other.row, other.visibility)


class ViewerLogin(Protocol):
    """One way to log in."""

    def check_host(self, host: str) -> None:
        """Refuse a request to a host that is none of ours, in lower case; raises RefusedError."""

    def log_in(self, request: "web.BaseRequest") -> "web.Response":
        """Answer /api/v1/login; raises RefusedError, also where there is nothing to log in to."""

    async def viewer(self, request: "web.BaseRequest", namespace: str | None) -> LoggedIn:
        """Return whose request it is, with rights in this namespace where it has none in all of them.

        Raises:
            RefusedError: 401 where the viewer has to log in, 403 where it lacks a right, 503 where nothing is known.
        """
