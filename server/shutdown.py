"""Shutdown: hand over leadership first, then stop serving.

    no more decisions → background writes end → Bindings in flight are resolved → Lease released
    → pods are still admitted, and clients asked to reconnect, until `drain_s` is over

The replica stays ready while no other one could serve: Kubernetes sends requests to a terminating replica that is
ready if there is no other endpoint. `YIELD_S` after another replica acquired the Lease it reports unready, for
clients that do not know that it terminates.
"""

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from pool.reservations.reservation import ReservationPhase
from server.binder import BIND_TIMEOUT_S

if TYPE_CHECKING:
    from server.process import ControlPlane

SUCCESSOR_CHECK_S: Final = 0.1
YIELD_S: Final = 2.0
"""Seconds from another replica's Lease to requests that reach it: it catches up (0.1 s), kubelet probes its readiness
(once a second), and kube-proxies and API servers learn of it."""
_STEP_S: Final = 0.005
_UNDER_WAY: Final = frozenset({ReservationPhase.COMMITTED, ReservationPhase.DOUBTFUL})

_log = structlog.get_logger()


async def drain(plane: "ControlPlane") -> None:
    """Hand over leadership, and answer requests until `drain_s` is over."""
    drain_s = plane.settings.drain_s
    _log.info("draining", for_s=drain_s)
    ends_at = plane.clock.monotonic() + drain_s
    if plane.settings.leadership.enabled:
        if plane.takeover.decides():
            plane.readiness.is_handing_over = True
            await _hand_over(plane)
            await _wait_for_successor(plane, until=ends_at)
        else:
            # A Lease that was just acquired is not released: its next holder would not wait for
            # Bindings that the earlier one may have sent.
            plane.takeover.stop()
            plane.election.stand_down()
    plane.readiness.is_stopping = True
    await asyncio.sleep(max(0.0, ends_at - plane.clock.monotonic()))


async def _hand_over(plane: "ControlPlane") -> None:
    """Release the Lease after the last write; if one may be in flight, let the Lease expire."""
    plane.takeover.stop()
    await plane.stop_acting()
    try:
        async with asyncio.timeout(BIND_TIMEOUT_S):
            while _bindings_in_flight(plane):  # noqa: ASYNC110  # the ledger has no event
                await asyncio.sleep(_STEP_S)
    except TimeoutError:
        _log.warning(
            "lease kept: bindings may be on their way", bindings=_bindings_in_flight(plane)
        )
        plane.election.stand_down()
        return
    await plane.election.release()
    _log.info("handed over")


def _bindings_in_flight(plane: "ControlPlane") -> int:
    return sum(
        reservation.phase in _UNDER_WAY for reservation in plane.allocation_state.ledger.all()
    )


async def _wait_for_successor(plane: "ControlPlane", *, until: float) -> None:
    """Return `YIELD_S` after another replica acquired the Lease, but not after `until`."""
    clock = plane.clock
    while (left_s := until - clock.monotonic()) > 0:
        if await plane.election.succeeded():
            await asyncio.sleep(min(YIELD_S, left_s))
            return
        await asyncio.sleep(min(SUCCESSOR_CHECK_S, left_s))
