"""Registry of the problems that keep a node's agent from working in full.

Each part has at most one problem, under a name of its own (its source), and clears it when it is over. The
summary is the condition AgentDegraded: the first reason, in the order of the enum, and all texts. A text must
not have figures that move, since each change of it is a write.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, final

import structlog

from kube.errors import one_line
from telemetry.conditions import AgentDegraded

_ORDER: Final = {reason: number for number, reason in enumerate(AgentDegraded)}

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, with the reason for the condition."""

    reason: AgentDegraded
    text: str


NO_PROBLEM: Final = Problem(AgentDegraded.AS_EXPECTED, "")


@final
class ProblemRegistry:
    """The problems of one process; every method is one step."""

    def __init__(self) -> None:
        self._by_source: dict[str, Problem] = {}
        self.changed = asyncio.Event()
        """Set at each change; a waiter clears it before it reads the summary."""

    def set(self, source: str, reason: AgentDegraded, text: str) -> None:
        """Set the problem of a source; logged where it is new."""
        problem = Problem(reason, one_line(text))
        if self._by_source.get(source) != problem:
            self._by_source[source] = problem
            _log.warning("problem", source=source, reason=reason.value, error=problem.text)
            self.changed.set()

    def clear(self, source: str) -> None:
        """Clear the problem of a source; there need not be one."""
        problem = self._by_source.pop(source, None)
        if problem is not None:
            _log.info("problem is over", source=source, reason=problem.reason.value)
            self.changed.set()

    def summary(self) -> Problem:
        """Return the worst reason and all texts, the same for the same problems in any order."""
        if not self._by_source:
            return NO_PROBLEM
        found = sorted(self._by_source.items(), key=lambda item: (_ORDER[item[1].reason], item[0]))
        texts = dict.fromkeys(problem.text for _, problem in found)
        return Problem(found[0][1].reason, "; ".join(texts))
