"""Whether a card is healthy, by what the DCGM exporter of its node and our agent say of it.

A fault takes the card out at once, but for heat, which must last. It comes back after several clean
samples in a row. Where sources differ, the bad news counts; where none speaks, nothing changes: silence
neither makes a card faulty nor heals it.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, get_args

from api.text import truncate
from inventory.debounce import DebouncedState, DebounceTerms, Track

if TYPE_CHECKING:
    from inventory.health.dcgm import DeviceReading, ExporterPage

IGNORED_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Faults of an application, which the card survives (NVIDIA's device plugin ignores the same)."""


class FaultKind(Enum):
    """What is wrong with a card; of several the first is named."""

    XID_ERROR = "xid"
    ECC_ERROR = "ecc"
    LOST = "lost"
    THERMAL = "thermal"
    REPORTED_UNHEALTHY = "reported"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a card; the text has no figure that moves while the fault lasts."""

    kind: FaultKind
    text: str


@dataclass(frozen=True, slots=True)
class HealthReport:
    """What our agent says of a card."""

    status: str
    """`Healthy`, `Unhealthy` or `Lost` (`api.foreign.nodefeature.AgentDevice`); any other word is no report."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PageSeen:
    """The page of a node's exporter, and when it was read (monotonic seconds)."""

    at: float
    page: "ExporterPage"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthDebounceTerms:
    """What makes a card faulty, and what heals it."""

    ignored_xids: frozenset[int] = IGNORED_XIDS
    clean_samples: int = 3
    """In a row, to come back."""
    hot_samples: int = 3
    """In a row in which heat made the card slower, to be faulty."""
    period_s: float = 10.0
    """What is closer together than this is one sample."""
    freshness_s: float = 120.0
    """A page that is older says nothing any more."""

    @property
    def steadiness(self) -> DebounceTerms:
        """Return how many samples change the standing: one bad one is enough."""
        return DebounceTerms(good_samples=self.clean_samples, bad_samples=1, period_s=self.period_s)


_UP: Final = Track(DebouncedState.UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """What is known of a card between two looks."""

    track: Track = _UP
    fault: Fault | None = None
    """What it is, or was last, taken out for."""
    is_known: bool = False
    """Some source has spoken of it."""
    read_at: float | None = None
    """When the page was read that the next four are of."""
    figures: "DeviceReading | None" = None
    exporter_fault: Fault | None = None
    hot_samples: int = 0
    was_listed: bool = False
    """An exporter has listed it: one that does not any more has lost it."""

    @property
    def is_faulted(self) -> bool:
        """Say whether the card is to be kept out of new placements."""
        return self.track.standing is DebouncedState.DOWN

    @property
    def present_fault(self) -> Fault | None:
        """Return what the card is taken out for, None where it is not."""
        return self.fault if self.is_faulted else None

    def next_sample_in(self, now: float, terms: HealthDebounceTerms) -> float | None:
        """Return when a look may be a new sample; None while nothing is about to change."""
        return self.track.next_sample_in(now, terms.steadiness)


UNKNOWN: Final = DeviceHealth()


def examine(
    before: DeviceHealth,
    uuid: str,
    *,
    seen: PageSeen | None,
    report: HealthReport | None,
    terms: HealthDebounceTerms,
    now: float,
) -> DeviceHealth:
    """Return what is known of a card after one more look.

    Args:
        before: what was known.
        uuid: the card's.
        seen: the last page of its node's exporter.
        report: what our agent says now.
        terms: the rules.
        now: monotonic seconds.
    """
    reported = _reported(report)
    device = _read(before, uuid, seen, is_vouched_for=reported is _CLEAN, terms=terms)
    spoken: list[tuple[float, Fault | None]] = []
    if (
        device.was_listed
        and device.read_at is not None
        and now - device.read_at <= terms.freshness_s
    ):
        spoken.append((device.read_at, device.exporter_fault))
    if reported is not None:
        spoken.append((now, reported.fault))
    if not spoken:
        return device
    at = max(when for when, _ in spoken)
    fault = next((one for _, one in spoken if one is not None), None)
    return replace(
        device,
        is_known=True,
        fault=fault or device.fault,
        track=device.track.after(at, terms.steadiness, is_good=fault is None),
    )


# --- our agent -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reported:
    fault: Fault | None


_CLEAN: Final = _Reported(None)


def _reported(report: HealthReport | None) -> _Reported | None:
    match report.status if report is not None else "":
        case "Healthy":
            return _CLEAN
        case "Lost":
            return _Reported(
                Fault(FaultKind.LOST, "the node's agent does not find the card any more")
            )
        case "Unhealthy" if report is not None:
            words = truncate(report.reason) or "no reason given"
            text = f"reported by the node's agent: {words}"
            return _Reported(Fault(_kind_of(report.reason), text))
    return None


def _kind_of(reason: str) -> FaultKind:
    word = reason.lower()
    for kind in (FaultKind.XID_ERROR, FaultKind.ECC_ERROR, FaultKind.LOST, FaultKind.THERMAL):
        if word.startswith(kind.value):
            return kind
    return FaultKind.REPORTED_UNHEALTHY


# --- the exporter --------------------------------------------------------------------------------


def _read(
    before: DeviceHealth,
    uuid: str,
    seen: PageSeen | None,
    *,
    is_vouched_for: bool,
    terms: HealthDebounceTerms,
) -> DeviceHealth:
    """Take in a page that was not seen before; an empty one is that of an exporter that starts."""
    if seen is None or not seen.page.devices:
        return before
    if before.read_at is not None and seen.at <= before.read_at:
        return before
    figures = seen.page.devices.get(uuid)
    if figures is None:
        lost = Fault(FaultKind.LOST, "the node's DCGM exporter does not list the card any more")
        fault = lost if before.was_listed and not is_vouched_for else None
        return replace(before, read_at=seen.at, exporter_fault=fault, hot_samples=0)
    is_hot = _grew(before.figures, figures, "thermal_violation")
    hot_samples = before.hot_samples + 1 if is_hot else 0
    is_too_hot = hot_samples >= terms.hot_samples
    return replace(
        before,
        read_at=seen.at,
        figures=_kept(before.figures, figures),
        hot_samples=hot_samples,
        exporter_fault=(
            _xid_fault(figures, terms)
            or _ecc_fault(before.figures, figures)
            or (_TOO_HOT if is_too_hot else None)
        ),
        was_listed=True,
    )


_TOO_HOT: Final = Fault(FaultKind.THERMAL, "heat makes the card slower: look at its cooling")


def _xid_fault(figures: "DeviceReading", terms: HealthDebounceTerms) -> Fault | None:
    fatal = figures.xids - terms.ignored_xids
    if not fatal:
        return None
    text = f"Xid {min(fatal)}: the exporter shows it until the card is reset and the driver loaded"
    return Fault(FaultKind.XID_ERROR, text)


def _ecc_fault(before: "DeviceReading | None", figures: "DeviceReading") -> Fault | None:
    if _grew(before, figures, "volatile_errors") or _grew(before, figures, "aggregate_errors"):
        return Fault(FaultKind.ECC_ERROR, "a new double-bit ECC error")
    return None


_Counter = Literal["volatile_errors", "aggregate_errors", "thermal_violation"]


def _grew(before: "DeviceReading | None", figures: "DeviceReading", counter: _Counter) -> bool:
    """Say whether a counter grew; one that was not there before, or fell, begins anew."""
    old: float | None = getattr(before, counter, None)
    new: float | None = getattr(figures, counter)
    return old is not None and new is not None and new > old


def _kept(before: "DeviceReading | None", figures: "DeviceReading") -> "DeviceReading":
    """Return the figures, with counters that are missing from this page as they were last."""
    if before is None:
        return figures
    missing = {
        counter: getattr(before, counter)
        for counter in get_args(_Counter)
        if getattr(figures, counter) is None
    }
    return replace(figures, **missing) if missing else figures
