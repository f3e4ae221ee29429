"""Error injection: rules that make chosen requests fail.

A rule examines a request's line and sender, not its body. The first rule in order of addition that
applies decides, and later rules do not see the request. Each rule counts its matches, from 1.
"""

import re
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulator.apiserver.requestlog import LoggedRequest


class Breakage(Enum):
    """The effect of a rule on a request."""

    STATUS = "status"
    """It is answered with a status and not carried out."""
    RESET_BEFORE = "reset before"
    """The connection is reset; the request is not processed."""
    RESET_AFTER = "reset after"
    """The request is processed, and the connection is reset instead of a response."""
    DELAY = "delay"
    """It is carried out later."""


@final
@dataclass(slots=True)
class InjectedError:
    breakage: Breakage
    method: str
    """Upper case; empty for all."""
    path: re.Pattern[str]
    """Searched in the path, which has no query."""
    _: KW_ONLY
    query: re.Pattern[str] = re.compile("")
    """Searched in the query: a watch has the path of its list."""
    user: str = ""
    """Its sender; empty for all."""
    nth: int = 1
    """The first matching request that it picks."""
    times: int = 1
    """How many in a row it picks."""
    status: int = 500
    delay_s: float = 0.0
    seen: int = field(default=0, init=False)
    """How many requests matched so far."""

    def picks(self, request: "LoggedRequest") -> bool:
        """Count the request if it matches, and return whether it fails."""
        if not self._matches(request):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times

    def _matches(self, request: "LoggedRequest") -> bool:
        return bool(
            self.method in {"", request.method}
            and self.user in {"", request.user}
            and self.path.search(request.path)
            and self.query.search(request.query)
        )


@final
class ErrorInjection:
    def __init__(self) -> None:
        self._rules: list[InjectedError] = []

    def __iter__(self) -> "Iterator[InjectedError]":
        return iter(self._rules)

    def fail(
        self, method: str, path: str, status: int, *, nth: int = 1, times: int = 1
    ) -> InjectedError:
        """Answer matching requests with a status; they are not processed."""
        rule = InjectedError(
            Breakage.STATUS, method, re.compile(path), nth=nth, times=times, status=status
        )
        return self.add(rule)

    def reset_before(
        self, method: str, path: str, *, nth: int = 1, times: int = 1
    ) -> InjectedError:
        """Reset the connection before matching requests are processed."""
        rule = InjectedError(Breakage.RESET_BEFORE, method, re.compile(path), nth=nth, times=times)
        return self.add(rule)

    def reset_after(self, method: str, path: str, *, nth: int = 1, times: int = 1) -> InjectedError:
        """Reset the connection after matching requests were processed."""
        rule = InjectedError(Breakage.RESET_AFTER, method, re.compile(path), nth=nth, times=times)
        return self.add(rule)

    def delay(
        self, method: str, path: str, delay_s: float, *, nth: int = 1, times: int = 1
    ) -> InjectedError:
        """Process matching requests after a delay."""
        rule = InjectedError(
            Breakage.DELAY, method, re.compile(path), nth=nth, times=times, delay_s=delay_s
        )
        return self.add(rule)

    def add(self, rule: InjectedError) -> InjectedError:
        """Add a rule and return it."""
        self._rules.append(rule)
        return rule

    def clear(self) -> None:
        self._rules.clear()

    def pick(self, request: "LoggedRequest") -> InjectedError | None:
        """Return the rule that applies to a request, counting it."""
        for rule in self._rules:
            if rule.picks(request):
                return rule
        return None
