"""Takeover: from the Lease to the permission to decide, and back.

Holding the Lease is not enough. The API server must refuse Bindings that an earlier leader has not sent yet, and
its last writes may be unknown here: the watch is behind, or they were on their way when the Lease changed hands.

    Lease acquired → term written → wait, unless the Lease was released → read all bound pods → decide

docs/design/0004-high-availability.md explains the wait and the fence that it relies on. A replica that finds its
own record again after a failed renewal is in the same term and continues at once.

If the term is deleted or overwritten, Bindings are refused, and a refused Binding causes a check. A term that is not
ours is taken over again, since Bindings of another replica may have passed meanwhile.
"""

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from kube.backoff import Backoff
from kube.errors import KubeError, one_line

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from kube.leader_election import Term

_log = structlog.get_logger()
CATCH_UP_BACKOFF_S: Final = 0.1
CATCH_UP_BACKOFF_CAP_S: Final = 5.0
"""The CRD may be missing until an operator applies it; no pod is bound until then."""
CHECK_PAUSE_S: Final = 0.5
"""Seconds between two checks of the term: Bindings are also refused for other reasons."""


class Election(Protocol):
    """Port to `kube.leader_election.LeaderElection`."""

    leading: asyncio.Event
    term: "Term | None"

    def is_leading(self) -> bool:
        """Return whether this replica holds the Lease at this moment."""


class TermFence(Protocol):
    """Port to `server.leadership.fence.Fence`."""

    @property
    def token(self) -> str:
        """Return the token with which Bindings name our term."""

    def end(self) -> None:
        """Retire the current number."""

    async def begin(self, leads: "Callable[[], bool]") -> None:
        """Write our term; raises where it is not known to be written."""

    async def holds(self) -> bool:
        """Return whether the stored term is ours."""


@final
class Takeover:
    """Permission of this replica to decide for the cluster, and the term that it decides under."""

    def __init__(
        self,
        election: Election,
        fence: TermFence,
        catch_up: "Callable[[], Awaitable[None]]",
        *,
        wait_s: float,
        rng: "random.Random | None" = None,
    ) -> None:
        """Prepare.

        Args:
            election: the Lease.
            fence: the term object.
            catch_up: reads all bindings of earlier leaders.
            wait_s: wait for writes of a leader that did not release the Lease.
            rng: jitter of retries.
        """
        self._rng = rng
        self._election = election
        self._fence = fence
        self._catch_up = catch_up
        self._wait_s = wait_s
        self._begun: Term | None = None
        """Term of the Lease for which the term object was written last."""
        self._taken_over: Term | None = None
        self._was_overtaken = False
        self._is_check_requested = asyncio.Event()
        self._is_over = False

    def decides(self) -> bool:
        """Return whether decisions may be made and written at this moment."""
        term = self._election.term
        return (
            not self._is_over
            and term is not None
            and term is self._taken_over
            and self._election.is_leading()
        )

    def token(self) -> str:
        return self._fence.token

    def stop(self) -> None:
        """Decide nothing from now on; the Lease is kept."""
        self._is_over = True

    def request_check(self) -> None:
        """Have the term checked: the API server refused a Binding."""
        self._is_check_requested.set()

    async def until_overtaken(self) -> None:
        """Return when a check, caused by `request_check`, finds the term deleted or overwritten; decisions end then."""
        backoff = self._backoff()
        while True:
            await self._is_check_requested.wait()
            # Before the check: a Binding that is refused during it causes another one.
            self._is_check_requested.clear()
            try:
                holds = await self._fence.holds()
            except KubeError as error:
                self._is_check_requested.set()
                await self._pause(backoff, "leadership term could not be read", error)
                continue
            if not holds:
                _log.warning("leadership term overtaken: the object was deleted or changed")
                self._taken_over = None
                self._begun = None
                self._was_overtaken = True
                return
            backoff.succeed()
            await asyncio.sleep(CHECK_PAUSE_S)

    async def take_over(self) -> None:
        """Return once this replica decides."""
        backoff = self._backoff()
        while not self.decides():
            await self._election.leading.wait()
            if self._is_over:
                await asyncio.Event().wait()
            try:
                await self._take_over(self._election.term)
            except KubeError as error:
                await self._pause(backoff, "takeover failed", error)
            else:
                if not self._election.is_leading():
                    # The event is cleared a little later than the clock says.
                    await asyncio.sleep(CATCH_UP_BACKOFF_S)

    async def _take_over(self, term: "Term | None") -> None:
        if term is not None and term is not self._taken_over:
            if term is not self._begun:
                self._fence.end()
                self._begun = term
            await self._fence.begin(
                lambda: self._election.term is term and self._election.is_leading()
            )
            if self._was_overtaken or not term.follows_release:
                await asyncio.sleep(self._wait_s)
            await self._catch_up()
            self._was_overtaken = False
        # A leader of another term by now has all of this before it.
        self._taken_over = term

    def _backoff(self) -> Backoff:
        return Backoff(base_s=CATCH_UP_BACKOFF_S, cap_s=CATCH_UP_BACKOFF_CAP_S, rng=self._rng)

    async def _pause(self, backoff: Backoff, event: str, error: KubeError) -> None:
        delay_s = backoff.fail()
        _log.warning(
            event,
            cause=type(error).__name__,
            error=one_line(str(error)),
            retry_in_s=round(delay_s, 2),
        )
        await asyncio.sleep(delay_s)
