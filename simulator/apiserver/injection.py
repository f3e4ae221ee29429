"""Faults on request: tests say which requests fail, and how.

A rule looks at a request's line and sender, not at its body. Rules are asked in the order in which they were added; the first
that applies decides, and later ones do not see the request. Each counts what it matches, from 1.
"""

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulator.apiserver.requestlog import LoggedRequest


class Breakage(Enum):
    """What happens to a request that a rule picks."""

    STATUS = "status"
    """It is answered with a status and not carried out."""
    RESET_BEFORE = "reset before"
    """The connection is cut; it is not carried out."""
    RESET_AFTER = "reset after"
    """It is carried out, and then the connection is cut instead of an answer."""
    DELAY = "delay"
    """It is carried out later."""


@final
@dataclass(slots=True, kw_only=True)
class InjectedError:
    """One rule."""

    breakage: Breakage
    method: str
    """Upper case; empty for all."""
    path: re.Pattern[str]
    """Searched in the path, which has no query."""
    query: re.Pattern[str] = re.compile("")
    """Searched in the query: a watch has the path of its list."""
    user: str = ""
    """Who sends it; empty for all."""
    nth: int = 1
    """The first matching request that it picks."""
    times: int = 1
    """How many in a row it picks."""
    status: int = 500
    delay_s: float = 0.0
    seen: int = field(default=0, init=False)
    """How many requests matched so far."""

    def picks(self, request: "LoggedRequest") -> bool:
        """Count the request where it matches, and say whether it fails."""
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
    """The rules of one server."""

    def __init__(self) -> None:
        self._rules: list[InjectedError] = []

    def __iter__(self) -> "Iterator[InjectedError]":
        return iter(self._rules)

    def fail(
        self, method: str, path: str, status: int, *, nth: int = 1, times: int = 1
    ) -> InjectedError:
        """Answer matching requests with a status; they are not carried out."""
        return self.add(
            InjectedError(
                breakage=Breakage.STATUS,
                method=method,
                path=re.compile(path),
                nth=nth,
                times=times,
                status=status,
            )
        )

    def reset_before(
        self, method: str, path: str, *, nth: int = 1, times: int = 1
    ) -> InjectedError:
        """Cut the connection before matching requests are carried out."""
        return self.add(
            InjectedError(
                breakage=Breakage.RESET_BEFORE,
                method=method,
                path=re.compile(path),
                nth=nth,
                times=times,
            )
        )

    def reset_after(self, method: str, path: str, *, nth: int = 1, times: int = 1) -> InjectedError:
        """Cut the connection after matching requests were carried out."""
        return self.add(
            InjectedError(
                breakage=Breakage.RESET_AFTER,
                method=method,
                path=re.compile(path),
                nth=nth,
                times=times,
            )
        )

    def delay(
        self, method: str, path: str, delay_s: float, *, nth: int = 1, times: int = 1
    ) -> InjectedError:
        """Carry matching requests out only after a delay."""
        return self.add(
            InjectedError(
                breakage=Breakage.DELAY,
                method=method,
                path=re.compile(path),
                nth=nth,
                times=times,
                delay_s=delay_s,
            )
        )

    def add(self, rule: InjectedError) -> InjectedError:
        """Add any rule; return it."""
        self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Drop all rules."""
        self._rules.clear()

    def pick(self, request: "LoggedRequest") -> InjectedError | None:
        """Return the rule that applies to a request, counting it."""
        for rule in self._rules:
            if rule.picks(request):
                return rule
        return None
