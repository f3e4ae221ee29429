"""What keeps the agent of a node from doing its work in full, told by all of its parts in one place.

Each part has one problem at most, under a name of its own (its source), and takes it away when it is over.
What comes of it is a verdict for the condition AgentDegraded: the first reason, in the order of the enum,
and all texts. A text must not have figures that move, since each change of it is a write.
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
    """What is wrong."""

    reason: AgentDegraded
    text: str


NO_PROBLEM: Final = Problem(AgentDegraded.AS_EXPECTED, "")


@final
class ProblemRegistry:
    """The problems of one process; every method is one step."""

    def __init__(self) -> None:
        self._by_source: dict[str, Problem] = {}
        self.changed = asyncio.Event()
        """Set at each change; whoever waits for it clears it before looking."""

    def set(self, source: str, reason: AgentDegraded, text: str) -> None:
        """Note what is wrong now; logged where it is news."""
        problem = Problem(reason, one_line(text))
        if self._by_source.get(source) != problem:
            self._by_source[source] = problem
            _log.warning("problem", source=source, reason=reason.value, error=problem.text)
            self.changed.set()

    def clear(self, source: str) -> None:
        """Note that nothing is wrong any more; it need not have been."""
        problem = self._by_source.pop(source, None)
        if problem is not None:
            _log.info("problem is over", source=source, reason=problem.reason.value)
            self.changed.set()

    def verdict(self) -> Problem:
        """Return the worst reason and all texts, the same for the same problems in any order."""
        if not self._by_source:
            return NO_PROBLEM
        found = sorted(self._by_source.items(), key=lambda item: (_ORDER[item[1].reason], item[0]))
        texts = dict.fromkeys(problem.text for _, problem in found)
        return Problem(found[0][1].reason, "; ".join(texts))
