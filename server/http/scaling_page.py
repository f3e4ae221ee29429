"""/debug/scale: which nodes are asked for, and why pods wait. It names pods, so that only the extender's callers see it."""

from typing import TYPE_CHECKING, Final, final

import msgspec
import structlog

from http_edge.replies import TEXT, Reply

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from http_edge.routes import Headers
    from server.http.authentication import ExtenderAuthentication

    Report = Callable[[], bytes | None]
    """Returns JSON; None on a replica that does not lead."""

_STANDBY: Final = msgspec.json.encode(
    {
        "leading": False,
        "message": "this replica does not lead and plans nothing; ask the holder of the Lease",
    }
)

_log = structlog.get_logger()


@final
class ScalingPage:
    """Answers authenticated callers."""

    def __init__(self, callers: "ExtenderAuthentication", report: "Report") -> None:
        self._callers = callers
        self._report = report

    def show(self, transport: "asyncio.BaseTransport | None", headers: "Headers") -> Reply:
        refusal = self._callers.refusal_of(transport, headers)
        if refusal is not None:
            _log.warning("debug page refused", reason=refusal)
            return Reply(401, refusal.encode(), TEXT)
        report = self._report()
        return Reply(200, _STANDBY if report is None else report)
