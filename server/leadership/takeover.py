"""Leading: from the Lease to the right to decide, and back.

Holding the Lease is not enough. The API server must refuse what an earlier leader has not sent yet,
and what it wrote last may be unknown here, because the watch is behind, or because it was on its way
when the Lease changed hands. So

    Lease taken → term written → wait, unless the Lease was released → read the pods that are bound
    → decide

and what the wait is worth, and the fence that makes it worth anything, is in
docs/design/0004-high-availability.md. Who finds its own record again after a renewal that failed
is in the same term and goes on at once.

Somebody may delete the term or write another one. Bindings are refused then, which makes us look; a
term that is not ours is taken over anew, since whose bindings passed meanwhile is not known.
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
"""The kind may be missing until an operator applies it; nothing is bound until then."""
LOOK_PAUSE_S: Final = 0.5
"""Between two looks at the term: bindings are also refused for reasons that are not its."""


class Election(Protocol):
    """What is asked of a `kube.leader_election.LeaderElection`."""

    leading: asyncio.Event
    term: "Term | None"

    def is_leading(self) -> bool:
        """Say whether we hold the Lease at this very moment."""


class TermFence(Protocol):
    """What is asked of a `server.leadership.fence.Fence`."""

    @property
    def token(self) -> str:
        """Return what a Binding says of our term."""

    def end(self) -> None:
        """Let the next term be another one."""

    async def begin(self, leads: "Callable[[], bool]") -> None:
        """Write our term, or raise."""

    async def holds(self) -> bool:
        """Say whether our term is the one at the API server."""


@final
class Takeover:
    """Whether this replica decides for the cluster, and under which term."""

    def __init__(
        self,
        election: Election,
        fence: TermFence,
        catch_up: "Callable[[], Awaitable[None]]",
        *,
        settle_s: float,
        rng: "random.Random | None" = None,
    ) -> None:
        """Take the election, the fence, and what reads all that earlier leaders have bound."""
        self._rng = rng
        self._election = election
        self._fence = fence
        self._catch_up = catch_up
        self._settle_s = settle_s
        self._begun: Term | None = None
        """The Lease's term for which the fence's was begun last."""
        self._taken_over: Term | None = None
        self._was_overtaken = False
        self._doubted = asyncio.Event()
        self._is_over = False

    def decides(self) -> bool:
        """Say whether decisions may be made and written at this very moment."""
        term = self._election.term
        return (
            not self._is_over
            and term is not None
            and term is self._taken_over
            and self._election.is_leading()
        )

    def token(self) -> str:
        """Return what a Binding says of our term."""
        return self._fence.token

    def stop(self) -> None:
        """Decide nothing any more; the Lease is still ours."""
        self._is_over = True

    def doubt(self) -> None:
        """Look whether the term is still ours: the API server refused a Binding."""
        self._doubted.set()

    async def until_overtaken(self) -> None:
        """Return when a look, caused by `doubt`, found the term gone or another one; we decide no more."""
        backoff = self._backoff()
        while True:
            await self._doubted.wait()
            # Before the look: a Binding that is refused during it asks for another one.
            self._doubted.clear()
            try:
                holds = await self._fence.holds()
            except KubeError as error:
                self._doubted.set()
                await self._pause(backoff, "not known whether the term is ours", error)
                continue
            if not holds:
                _log.warning("term overtaken: somebody deleted or changed it")
                self._taken_over = None
                self._begun = None
                self._was_overtaken = True
                return
            backoff.succeed()
            await asyncio.sleep(LOOK_PAUSE_S)

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
                await self._pause(backoff, "not taken over yet", error)
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
                await asyncio.sleep(self._settle_s)
            await self._catch_up()
            self._was_overtaken = False
        # Whoever leads under another term by now has all of this before it.
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
