"""`reservation.expiry`: ends reservations at their deadline.

One task for all reservations; expiry is data in the ledger, not a timer for each.
"""

import asyncio
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Instant
    from pool.allocation_state import AllocationState

LONGEST_SLEEP_S: Final = 1.0
"""A reservation made during the sleep may end sooner than the awaited one: its TTL is at least 5 s."""
SHORTEST_SLEEP_S: Final = 0.01
"""Ending a reservation takes tens of microseconds: of thousands a second, the ones of this time end together
without a noticeable delay of requests."""


@final
class ReservationExpiry:
    """Ends reservations in time."""

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
