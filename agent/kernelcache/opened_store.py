"""The store of caches as it can be used: opened, lost and opened again; its fault is in the node's condition.

A store that another process has (an agent that is being replaced), that is read-only or that has gone is tried again;
what is lost is extracted again.
"""

import asyncio
from typing import TYPE_CHECKING, Final, final

import structlog

from agent.kernelcache.content.content_store import open_store
from agent.kernelcache.content.errors import StoreError, StoreFault
from kube.backoff import Backoff
from telemetry.conditions import AgentDegraded

if TYPE_CHECKING:
    from pathlib import Path

    from agent.kernelcache.content.content_store import ContentStore
    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock

SOURCE: Final = "caches store"
"""Source of the problem in the registry."""
RETRY_S: Final = 2.0
LONGEST_RETRY_S: Final = 30.0
_STORE_FAULTS: Final = frozenset(
    {StoreFault.LOST, StoreFault.READ_ONLY, StoreFault.FULL, StoreFault.FAILED, StoreFault.IN_USE}
)
"""The others are about one content."""

_log = structlog.get_logger()


@final
class OpenedStore:
    """The store of one process."""

    def __init__(self, root: "Path", clock: "Clock", problems: "ProblemRegistry") -> None:
        self.current: ContentStore | None = None
        """None while it cannot be used."""
        self.fault = ""
        """Why it could not be opened; empty where it is open, or nothing is wrong yet."""
        self.is_taken = False
        """Another process has it, which passes when an agent is replaced."""
        self._root = root
        self._clock = clock
        self._problems = problems
        self._backoff = Backoff(base_s=RETRY_S, cap_s=LONGEST_RETRY_S, jitter=0.5)
        self._retry_at = 0.0

    async def open(self) -> "ContentStore | None":
        """Return the store, and open it where that is due."""
        if self.current is not None or self._clock.monotonic() < self._retry_at:
            return self.current
        opening = asyncio.get_running_loop().run_in_executor(
            None, open_store, self._root, self._clock
        )
        try:
            self.current = await asyncio.shield(opening)
        except StoreError as error:
            self.report_error(error)
            self.fault = str(error)
            self.is_taken = error.fault is StoreFault.IN_USE
            self._retry_at = self._clock.monotonic() + self._backoff.fail()
            return None
        except asyncio.CancelledError:
            opening.add_done_callback(_close_opened)
            raise
        self._backoff.succeed()
        self.fault, self.is_taken = "", False
        self._problems.clear(SOURCE)
        _log.info("store of kernel caches opened", contents=len(self.current.contents))
        return self.current

    def retry_in_s(self) -> float | None:
        """Return when it is opened again; None where it is open."""
        if self.current is not None:
            return None
        return max(self._retry_at - self._clock.monotonic(), 0.0)

    def report_error(self, error: StoreError) -> None:
        """Report what the store raised; one that is lost is opened again."""
        if error.fault in _STORE_FAULTS:
            self._problems.set(SOURCE, AgentDegraded.CACHES_BLOCKED, str(error))
        if error.fault is StoreFault.LOST and self.current is not None:
            self.close()
            self.fault = str(error)
            self._retry_at = self._clock.monotonic() + self._backoff.fail()

    def clear_problem(self) -> None:
        """Note that the store was written."""
        self._problems.clear(SOURCE)

    def close(self) -> None:
        """Let another process open it."""
        store, self.current = self.current, None
        if store is not None:
            store.close()


def _close_opened(opening: "asyncio.Future[ContentStore]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
