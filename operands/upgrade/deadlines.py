"""How long a node may stay in a state.

A deadline counts from the start of the state, or of this process's leadership if that is later: in a time in which nothing
acted nothing could be done. A state that may last has no deadline, and is overdue after a day.
"""

import datetime as dt
from typing import TYPE_CHECKING, Final

from api.driver_upgrade import UpgradeState

if TYPE_CHECKING:
    from operands.upgrade.facts import UpgradeTimes
    from operands.upgrade.parameters import UpgradeParameters
    from operands.upgrade.record import UpgradeRecord

_CORDON_S: Final = 300
"""Two writes; longer means that the API server refuses them."""
_RESTART_S: Final = 1800
"""The driver's startup probe allows 60 s and 120 times 10 s; and before it, images are pulled and pods leave."""
VALIDATION_S: Final = 600
"""Time limit in seconds, as in NVIDIA's GPU Operator."""
OVERDUE_AFTER: Final = dt.timedelta(days=1)
_FIRST_PAUSE_S: Final = 600
_LONGEST_PAUSE_S: Final = 6 * 3600
_MOST_DOUBLINGS: Final = 16

_FIXED: Final = {
    UpgradeState.CORDON_REQUIRED: _CORDON_S,
    UpgradeState.UNCORDON_REQUIRED: _CORDON_S,
    UpgradeState.POD_RESTART_REQUIRED: _RESTART_S,
    UpgradeState.VALIDATION_REQUIRED: VALIDATION_S,
}


def limit_s(parameters: "UpgradeParameters", state: UpgradeState) -> int:
    """Return the seconds that a state may last; 0: no limit."""
    if state is UpgradeState.WAIT_FOR_JOBS_REQUIRED:
        return parameters.awaited.limit_s
    if state is UpgradeState.POD_DELETION_REQUIRED:
        return 0 if parameters.pod_deletion is None else parameters.pod_deletion.limit_s
    if state is UpgradeState.DRAIN_REQUIRED:
        return 0 if parameters.drain is None else parameters.drain.limit_s
    return _FIXED.get(state, 0)


def planned_end(
    parameters: "UpgradeParameters", state: UpgradeState, now: dt.datetime
) -> dt.datetime | None:
    """Return when a state that begins now ends at the latest; None: it may last."""
    is_skipped = state is UpgradeState.WAIT_FOR_JOBS_REQUIRED and not parameters.awaited.is_any
    seconds = _CORDON_S if is_skipped else limit_s(parameters, state)
    return now + _seconds(seconds) if seconds else None


def deadline_of(
    parameters: "UpgradeParameters", record: "UpgradeRecord", times: "UpgradeTimes"
) -> dt.datetime | None:
    """Return when the state is over, or overdue; None where it may last for ever."""
    if record.since is None:
        return None
    if record.state is UpgradeState.UPGRADE_FAILED:
        return record.since + pause_after(record.attempt)
    seconds = limit_s(parameters, record.state)
    return None if seconds == 0 else max(record.since, times.leading_since) + _seconds(seconds)


def is_over(
    parameters: "UpgradeParameters", record: "UpgradeRecord", times: "UpgradeTimes"
) -> bool:
    deadline = deadline_of(parameters, record, times)
    return deadline is not None and times.now >= deadline


def is_overdue(
    parameters: "UpgradeParameters", record: "UpgradeRecord", times: "UpgradeTimes"
) -> bool:
    """Return whether the state lasts longer than it should; one that ends by its deadline never does for long."""
    if record.since is None or record.state.is_idle:
        return False
    has_end = limit_s(parameters, record.state) != 0
    return (has_end and is_over(parameters, record, times)) or (
        times.now - record.since >= OVERDUE_AFTER
    )


def pause_after(attempt: int) -> dt.timedelta:
    """Return how long a failed node rests before the next attempt: 10 minutes, doubled up to 6 hours."""
    doublings = max(0, min(attempt - 1, _MOST_DOUBLINGS))
    return _seconds(min(_FIRST_PAUSE_S * 2**doublings, _LONGEST_PAUSE_S))


def _seconds(number: int) -> dt.timedelta:
    return dt.timedelta(seconds=number)
