"""How late the event loop is: a sleeper that notes by how much it overslept."""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn

from telemetry.metrics import EVENT_LOOP_LAG

if TYPE_CHECKING:
    from api.clock import Clock

PERIOD_S: Final = 0.1


async def measure_loop_lag(clock: "Clock") -> NoReturn:
    """Measure until cancelled."""
    while True:
        due = clock.monotonic() + PERIOD_S
        await asyncio.sleep(PERIOD_S)
        EVENT_LOOP_LAG.observe(max(0.0, clock.monotonic() - due))
