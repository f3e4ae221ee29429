"""Device-hours and money of a scaling pool, by the use of its devices.

Figures grow between two passes by what the later one shows. A clock that jumps back adds nothing, and of a gap longer than
`MOST_AT_ONCE` only that much counts, since the end of a process and a clock that jumps ahead look alike. Every day (UTC) begins
at zero, and the figures of the day that was counted before it are kept beside: a clock that jumps to another day and is set
right goes on where it was.
"""

import datetime as dt
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

from api.kinds.autoscaling import DayUsage, ScaleUsage
from api.status_conditions import parse_time
from autoscaling.device_use import DeviceUse
from autoscaling.scaling_model import MICRO

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from api.kinds.autoscaling import AutoscalingStatus
    from autoscaling.device_use import UsageSample

MOST_AT_ONCE: Final = dt.timedelta(hours=1)
_HOUR_MS: Final = 3_600_000
_PLACES: Final = 4
"""Decimal places of figures in the status: a third of a second of a device."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """What was counted since the start of a day."""

    day: dt.date
    counted_at: dt.datetime
    device_ms: "Mapping[DeviceUse, int]" = field(default_factory=dict)
    """Milliseconds of devices."""
    micro_ms: "Mapping[DeviceUse, int]" = field(default_factory=dict)
    """Millionths an hour, times milliseconds."""
    other: "UsageTotals | None" = None
    """Totals of the day that was counted before this one."""

    @property
    def spent_micro(self) -> int:
        return sum(self.micro_ms.values()) // _HOUR_MS


def totals_from(status: "AutoscalingStatus | None", now: dt.datetime) -> UsageTotals:
    """Return what a status keeps of this day; without any a new count."""
    counted_at = parse_time(status.counted_at) if status is not None else None
    if status is None or counted_at is None:
        return UsageTotals(day=now.date(), counted_at=now)
    totals = _of_day(status.day, status.usage, counted_at)
    if totals is None:
        return UsageTotals(day=now.date(), counted_at=counted_at)
    if status.other_day is not None:
        other = _of_day(status.other_day.day, status.other_day.usage, counted_at)
        totals = replace(totals, other=other)
    if totals.day == now.date() and not any(item.devices for item in status.usage or ()):
        totals = replace(
            totals, counted_at=now
        )  # nothing ran until now, so that nothing was written
    return _on_day(totals, now)


def advanced(totals: UsageTotals, usage: "UsageSample", now: dt.datetime) -> UsageTotals:
    """Return the totals with the time since they were counted, at the figures of this pass."""
    totals = _on_day(totals, now)
    passed = min(now - totals.counted_at, MOST_AT_ONCE)
    passed_ms = max(0, passed // dt.timedelta(milliseconds=1))
    return UsageTotals(
        day=totals.day,
        counted_at=now,
        device_ms=_accrued(totals.device_ms, usage.devices, passed_ms),
        micro_ms=_accrued(totals.micro_ms, usage.micro, passed_ms),
        other=totals.other,
    )


def other_day(totals: UsageTotals) -> DayUsage | None:
    """Return the figures of the day that was counted before, as the status shows them."""
    other = totals.other
    if other is None or not (other.device_ms or other.micro_ms):
        return None
    return DayUsage(day=other.day.isoformat(), usage=usage_statuses(other))


def usage_statuses(totals: UsageTotals, usage: "UsageSample | None" = None) -> list[ScaleUsage]:
    """Return the figures as the status shows them, one for each use."""
    return [
        ScaleUsage(
            state=use.value,
            devices=usage.devices.get(use, 0) if usage is not None else 0,
            device_hours=decimal_text(totals.device_ms.get(use, 0), _HOUR_MS),
            cost=decimal_text(totals.micro_ms[use], MICRO * _HOUR_MS)
            if use in totals.micro_ms
            else "",
        )
        for use in _uses(totals.device_ms)
    ]


def decimal_text(amount: int, unit: int) -> str:
    """Return a fraction `amount / unit` with up to four places, without zeros at the end."""
    figure = f"{amount * 10**_PLACES // unit:0{_PLACES + 1}}"
    return f"{figure[:-_PLACES]}.{figure[-_PLACES:]}".rstrip("0").rstrip(".")


def _on_day(totals: UsageTotals, now: dt.datetime) -> UsageTotals:
    """Return the totals of the day that it is now: those that are, those of the day before them, or new ones."""
    day = now.date()
    start = dt.datetime.combine(day, dt.time(), dt.UTC)
    counted_at = max(totals.counted_at, start)
    if totals.day == day:
        return replace(totals, counted_at=counted_at)
    left, other = replace(totals, other=None), totals.other
    if other is not None and other.day == day:
        return replace(other, counted_at=counted_at, other=left)
    return UsageTotals(day=day, counted_at=counted_at, other=left)


def _of_day(
    text: str, usage: "Sequence[ScaleUsage] | None", counted_at: dt.datetime
) -> UsageTotals | None:
    """Return the figures of a day of the status; None for what is no day."""
    try:
        day = dt.date.fromisoformat(text)
    except ValueError:
        return None
    by_use = {DeviceUse(item.state): item for item in usage or ()}
    return UsageTotals(
        day=day,
        counted_at=counted_at,
        device_ms={use: _parsed(item.device_hours, _HOUR_MS) for use, item in by_use.items()},
        micro_ms={
            use: _parsed(item.cost, MICRO) * _HOUR_MS for use, item in by_use.items() if item.cost
        },
    )


def _accrued(
    before: "Mapping[DeviceUse, int]", rates: "Mapping[DeviceUse, int]", passed_ms: int
) -> dict[DeviceUse, int]:
    return {
        use: before.get(use, 0) + rates.get(use, 0) * passed_ms
        for use in _uses(before)
        if use in before or use in rates
    }


def _uses(figures: "Mapping[DeviceUse, int]") -> "Iterable[DeviceUse]":
    """Return ours, and those of another version that a status has: what they cost was spent."""
    return dict.fromkeys((*DeviceUse, *figures))


def _parsed(text: str, unit: int) -> int:
    """Return a decimal number times `unit`; 0 for what is no number."""
    whole, _, places = text.partition(".")
    if not (whole + places).isdecimal() or len(text) > 30:
        return 0
    return int(whole or "0") * unit + int(places or "0") * unit // int("1" + "0" * len(places))
