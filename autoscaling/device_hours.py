"""Device-hours and money of a scaling pool, by the use of its devices.

Figures grow between two looks by what the later one shows. A clock that jumps back adds nothing, and of a gap longer than
`MOST_AT_ONCE` only that much counts, since the end of a process and a clock that jumps ahead look alike. Every day (UTC) begins
at zero.
"""

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from api.kinds.autoscaling import ScaleUsage
from api.status_conditions import parse_time
from autoscaling.device_use import DeviceUse
from autoscaling.scaling_model import MICRO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.kinds.autoscaling import AutoscalingStatus
    from autoscaling.device_use import UsageLook

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

    @property
    def spent_micro(self) -> int:
        return sum(self.micro_ms.values()) // _HOUR_MS


def totals_from(status: "AutoscalingStatus | None", now: dt.datetime) -> UsageTotals:
    """Return what a status keeps; of another day, or without one, a new count."""
    counted_at = parse_time(status.counted_at) if status is not None else None
    day = now.date()
    if status is None or counted_at is None or status.day != day.isoformat():
        start = dt.datetime.combine(day, dt.time(), dt.UTC)
        since = now if counted_at is None else max(min(counted_at, now), start)
        return UsageTotals(day=day, counted_at=since)
    if not any(one.devices for one in status.usage or ()):
        counted_at = now  # nothing ran until now, so that nothing was written
    by_use = {use: one for one in status.usage or () for use in DeviceUse if use.value == one.state}
    return UsageTotals(
        day=day,
        counted_at=counted_at,
        device_ms={use: _parsed(one.device_hours, _HOUR_MS) for use, one in by_use.items()},
        micro_ms={
            use: _parsed(one.cost, MICRO) * _HOUR_MS for use, one in by_use.items() if one.cost
        },
    )


def advanced(totals: UsageTotals, usage: "UsageLook", now: dt.datetime) -> UsageTotals:
    """Return the totals with the time since they were counted, at the figures of this look."""
    start = dt.datetime.combine(now.date(), dt.time(), dt.UTC)
    if totals.day != now.date():
        totals = UsageTotals(day=now.date(), counted_at=max(totals.counted_at, start))
    passed = min(now - totals.counted_at, MOST_AT_ONCE, now - start)
    passed_ms = max(0, passed // dt.timedelta(milliseconds=1))
    return UsageTotals(
        day=totals.day,
        counted_at=now,
        device_ms=_grown(totals.device_ms, usage.devices, passed_ms),
        micro_ms=_grown(totals.micro_ms, usage.micro, passed_ms),
    )


def usage_statuses(totals: UsageTotals, usage: "UsageLook") -> list[ScaleUsage]:
    """Return the figures as the status shows them, one for each use."""
    return [
        ScaleUsage(
            state=use.value,
            devices=usage.devices.get(use, 0),
            device_hours=decimal_text(totals.device_ms.get(use, 0), _HOUR_MS),
            cost=decimal_text(totals.micro_ms[use], MICRO * _HOUR_MS)
            if use in totals.micro_ms
            else "",
        )
        for use in DeviceUse
    ]


def decimal_text(amount: int, one: int) -> str:
    """Return a fraction `amount / one` with up to four places, without zeros at the end."""
    figure = f"{amount * 10**_PLACES // one:0{_PLACES + 1}}"
    return f"{figure[:-_PLACES]}.{figure[-_PLACES:]}".rstrip("0").rstrip(".")


def _grown(
    before: "Mapping[DeviceUse, int]", rates: "Mapping[DeviceUse, int]", passed_ms: int
) -> dict[DeviceUse, int]:
    return {
        use: before.get(use, 0) + rates.get(use, 0) * passed_ms
        for use in DeviceUse
        if use in before or use in rates
    }


def _parsed(text: str, one: int) -> int:
    """Return a decimal number times `one`; 0 for what is no number."""
    whole, _, places = text.partition(".")
    if not (whole + places).isdecimal() or len(text) > 30:
        return 0
    return int(whole or "0") * one + int(places or "0") * one // int("1" + "0" * len(places))
