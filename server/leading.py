"""Leading: from the Lease to the right to decide, and back.

Holding the Lease is not enough. What an earlier leader wrote last may be unknown here, because the
watch is behind, or because it was on its way when the Lease changed hands. So

    Lease taken → wait, unless it was released → read the pods that are bound → decide

and what the wait is worth, and the fence that makes it worth anything, is in
docs/design/0004-high-availability.md. Who finds its own record again after a renewal that failed
is in the same term and goes on at once.
"""

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from kube.backoff import Backoff
from kube.errors import KubeError, cut
from manifests.fencing import leadership_token

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kube.leases import Term

_log = structlog.get_logger()
CATCH_UP_BACKOFF_S: Final = 0.1


class Election(Protocol):
    """What is asked of a `kube.leases.LeaderElection`."""

    leading: asyncio.Event
    term: "Term | None"

    def is_leading(self) -> bool:
        """Say whether we hold the Lease at this very moment."""


@final
class Leading:
    """Whether this replica decides for the cluster, and under which term."""

    def __init__(
        self, election: Election, catch_up: "Callable[[], Awaitable[None]]", *, settle_s: float
    ) -> None:
        """Take the election, and what reads all that earlier leaders have bound."""
        self._election = election
        self._catch_up = catch_up
        self._settle_s = settle_s
        self._taken_over: Term | None = None
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

    def token(self) -> str | None:
        """Return what a Binding says of our term."""
        term = self._election.term
        return None if term is None else leadership_token(term.holder, term.transitions)

    def stop(self) -> None:
        """Decide nothing any more; the Lease is still ours."""
        self._is_over = True

    async def take_over(self) -> None:
        """Return once this replica decides."""
        backoff = Backoff(base_s=CATCH_UP_BACKOFF_S)
        while not self.decides():
            await self._election.leading.wait()
            if self._is_over:
                await asyncio.Event().wait()
            try:
                await self._take_over(self._election.term)
            except KubeError as error:
                delay_s = backoff.fail()
                _log.warning(
                    "not known yet what is bound",
                    cause=type(error).__name__,
                    error=cut(str(error)),
                    retry_in_s=round(delay_s, 2),
                )
                await asyncio.sleep(delay_s)

    async def _take_over(self, term: "Term | None") -> None:
        if term is not None and term is not self._taken_over:
            if not term.follows_release:
                await asyncio.sleep(self._settle_s)
            await self._catch_up()
        # Whoever leads under another term by now has all of this before it.
        self._taken_over = term
