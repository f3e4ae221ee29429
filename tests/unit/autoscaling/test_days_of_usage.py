"""The money of a day outlasts a clock that jumps to another day and is set right, and the end of the process meanwhile."""

import datetime as dt

import pytest

from api.kinds.autoscaling import AutoscalingStatus
from api.status_conditions import format_time
from autoscaling import device_hours
from autoscaling.device_use import DeviceUse, UsageSample
from tests.support.scale_requests import START

USAGE = UsageSample(devices={DeviceUse.BUSY: 1}, micro={DeviceUse.BUSY: 12_000_000})
HOUR = dt.timedelta(hours=1)
DAY = dt.timedelta(days=1)


def spent_after(hours: int) -> device_hours.UsageTotals:
    totals = device_hours.UsageTotals(day=START.date(), counted_at=START)
    for hour in range(hours):
        totals = device_hours.advanced(totals, USAGE, START + (hour + 1) * HOUR)
    return totals


def restarted(totals: device_hours.UsageTotals, now: dt.datetime) -> device_hours.UsageTotals:
    status = AutoscalingStatus(
        usage=device_hours.usage_statuses(totals, USAGE),
        day=totals.day.isoformat(),
        counted_at=format_time(totals.counted_at),
        other_day=device_hours.other_day(totals),
    )
    return device_hours.totals_from(status, now)


@pytest.mark.parametrize("jump", [DAY, -DAY, 30 * DAY])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_jumps_a_day_and_is_set_right_empties_nothing(
    jump: dt.timedelta, is_restarted: bool
):
    totals = spent_after(10)
    assert totals.spent_micro == 120_000_000
    now = totals.counted_at
    for moment in (now + jump, now + dt.timedelta(seconds=5)):
        totals = device_hours.advanced(totals, USAGE, moment)
        if is_restarted:
            totals = restarted(totals, moment)
    assert totals.day == START.date()
    # A gap counts as an hour at most.
    assert 120_000_000 <= totals.spent_micro <= 132_000_000


def test_the_next_day_begins_at_zero():
    totals = device_hours.advanced(spent_after(10), USAGE, START.replace(hour=0) + DAY)
    assert totals.spent_micro == 0
    assert totals.other is not None
    assert totals.other.spent_micro == 120_000_000
    assert totals.other.other is None
