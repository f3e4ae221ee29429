"""`reservation.expiry`: ends holds whose time is over, at their deadline.

One sleeper for all holds; expiry is data in the ledger, not a timer per hold.
"""

import asyncio
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from pool.allocation_state import AllocationState
    from pool.model import Instant

LONGEST_SLEEP_S: Final = 1.0
"""A hold taken while we sleep may end sooner than the one we sleep for: its TTL is at least 5 s."""
SHORTEST_SLEEP_S: Final = 0.01
"""To end a hold takes tens of microseconds: of thousands a second that end unseen, so many come at once that
nobody who waits for an answer notices."""


@final
class ReservationExpiry:
    """Ends holds in time."""

    def __init__(self, allocation_state: "AllocationState", now: "Callable[[], Instant]") -> None:
        self._allocation_state = allocation_state
        self._now = now

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            now = self._now()
            self._allocation_state.expire(now)
            deadline = self._allocation_state.ledger.next_deadline()
            left_s = LONGEST_SLEEP_S if deadline is None else deadline - now.monotonic
            await asyncio.sleep(min(LONGEST_SLEEP_S, max(SHORTEST_SLEEP_S, left_s)))
