"""The end of the process, in good order: hand over first, then leave.

    decide no more → writes of ours end → what is on its way to be bound is through → Lease released
    → pods are still admitted here, and clients told to connect anew, until `drain_s` is over

Ready for as long as nobody else would get the requests: Kubernetes sends them to a terminating replica
that says it is ready while there is no other. `YIELD_S` after another one has the Lease we say that we
are not, for those who do not know that we are terminating.
"""

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from pool.reservations.reservation import ReservationPhase

if TYPE_CHECKING:
    from server.process import ControlPlane

SUCCESSOR_LOOK_S: Final = 0.1
YIELD_S: Final = 2.0
"""From the Lease of another replica to requests that reach it: it catches up (0.1 s), the kubelet asks
whether it is ready (once a second), and kube-proxies and API servers learn of it."""
_STEP_S: Final = 0.005
_UNDER_WAY: Final = frozenset({ReservationPhase.COMMITTED, ReservationPhase.DOUBTFUL})

_log = structlog.get_logger()


async def drain(plane: "ControlPlane") -> None:
    """Hand over, and answer what still comes in until `drain_s` is over."""
    drain_s = plane.settings.drain_s
    _log.info("draining", for_s=drain_s)
    ends_at = plane.clock.monotonic() + drain_s
    if plane.settings.leadership.enabled:
        if plane.leading.decides():
            plane.readiness.is_handing_over = True
            await _hand_over(plane)
            await _wait_for_successor(plane, until=ends_at)
        else:
            # A Lease that we just took is not released: whoever finds it so would not wait for
            # what its earlier holder may have sent.
            plane.leading.stop()
            plane.election.stand_down()
    plane.readiness.is_stopping = True
    await asyncio.sleep(max(0.0, ends_at - plane.clock.monotonic()))


async def _hand_over(plane: "ControlPlane") -> None:
    """Release the Lease when our last write is through; where it may not be, let the Lease run out."""
    plane.leading.stop()
    await plane.stop_acting()
    # The write of a bind, and the read that may follow it, have this together.
    limit_s = plane.settings.extender.bind_timeout_s
    try:
        async with asyncio.timeout(limit_s):
            while _under_way(plane):  # noqa: ASYNC110  # the books are plain values
                await asyncio.sleep(_STEP_S)
    except TimeoutError:
        _log.warning("lease kept: bindings may be on their way", bindings=_under_way(plane))
        plane.election.stand_down()
        return
    await plane.election.release()
    _log.info("handed over")


def _under_way(plane: "ControlPlane") -> int:
    return sum(
        reservation.phase in _UNDER_WAY for reservation in plane.allocation_state.ledger.all()
    )


async def _wait_for_successor(plane: "ControlPlane", *, until: float) -> None:
    """Return `YIELD_S` after another replica took the Lease, but not after `until`."""
    clock = plane.clock
    while (left_s := until - clock.monotonic()) > 0:
        if await plane.election.succeeded():
            await asyncio.sleep(min(YIELD_S, left_s))
            return
        await asyncio.sleep(min(SUCCESSOR_LOOK_S, left_s))
