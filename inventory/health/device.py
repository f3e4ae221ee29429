"""Health of a device, from the DCGM exporter of its node and the node agent.

A fault takes the device out at once, but for heat, which must last. The device comes back after several clean
samples in a row. Where the sources differ, the fault counts. Without any source nothing changes: silence
neither makes a device faulty nor heals it. The exporter shows the last Xid alone: an ignored one after a fatal one
replaces it, and is no evidence that the device recovered.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, get_args

from api.text import truncate
from inventory.debounce import DebounceCounter, DebouncedState, DebounceLimits

if TYPE_CHECKING:
    from inventory.health.dcgm import DeviceReading, ExporterPage

IGNORED_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Faults of an application, which leave the device healthy (NVIDIA's device plugin ignores the same)."""


class FaultKind(Enum):
    """Kind of a fault; of several faults the first kind is reported."""

    XID_ERROR = "xid"
    ECC_ERROR = "ecc"
    LOST = "lost"
    THERMAL = "thermal"
    REPORTED_UNHEALTHY = "reported"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a device; the text has no figure that moves while the fault lasts."""

    kind: FaultKind
    text: str


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The node agent's report on a device."""

    status: str
    """`Healthy`, `Unhealthy` or `Lost` (`api.foreign.nodefeature.AgentDevice`); any other value is no report."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ExporterSample:
    """The page of a node's exporter, and the time of its scrape (monotonic seconds)."""

    at: float
    page: "ExporterPage"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthDebounceLimits:
    """When a device becomes faulty, and when it is healthy again."""

    ignored_xids: frozenset[int] = IGNORED_XIDS
    clean_samples: int = 3
    """Clean samples in a row, to be healthy again."""
    hot_samples: int = 3
    """Hot samples in a row with thermal throttling, to be faulty."""
    period_s: float = 10.0
    """Observations closer together than this are one sample."""
    freshness_s: float = 120.0
    """An older page is ignored."""

    @property
    def debounce(self) -> DebounceLimits:
        """Terms of the device's state: one bad sample is enough."""
        return DebounceLimits(
            good_samples=self.clean_samples, bad_samples=1, period_s=self.period_s
        )


_UP: Final = DebounceCounter(DebouncedState.UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """State of a device between two observations."""

    counter: DebounceCounter = _UP
    fault: Fault | None = None
    """The current fault, or the last one."""
    is_known: bool = False
    """Whether any source has reported the device."""
    read_at: float | None = None
    """Time of the page that the next five fields come from."""
    figures: "DeviceReading | None" = None
    exporter_fault: Fault | None = None
    xid_fault: Fault | None = None
    """Fault of the last fatal Xid, until the exporter shows none at all."""
    hot_samples: int = 0
    was_listed: bool = False
    """Whether the exporter has listed it: a device that disappears from its page is lost."""

    @property
    def is_faulted(self) -> bool:
        """Whether new placements exclude the device."""
        return self.counter.state is DebouncedState.DOWN

    @property
    def present_fault(self) -> Fault | None:
        """The fault of a device that is faulted now, else None."""
        return self.fault if self.is_faulted else None

    def next_sample_in(self, now: float, limits: HealthDebounceLimits) -> float | None:
        """Return the seconds until the next sample may count; None while no change is pending."""
        return self.counter.next_sample_in(now, limits.debounce)


UNKNOWN: Final = DeviceHealth()


def assess_health(
    before: DeviceHealth,
    uuid: str,
    *,
    seen: ExporterSample | None,
    report: HealthReport | None,
    limits: HealthDebounceLimits,
    now: float,
) -> DeviceHealth:
    """Return the state of a device after one more observation.

    Args:
        before: the state so far.
        uuid: of the device.
        seen: the last page of its node's exporter.
        report: the node agent's current report.
        limits: the rules.
        now: monotonic seconds.
    """
    reported = _reported(report)
    device = _read(before, uuid, seen, is_reported_healthy=reported is _CLEAN, limits=limits)
    observed: list[tuple[float, Fault | None]] = []
    if (
        device.was_listed
        and device.read_at is not None
        and now - device.read_at <= limits.freshness_s
    ):
        observed.append((device.read_at, device.exporter_fault))
    if reported is not None:
        observed.append((now, reported.fault))
    if not observed:
        return device
    at = max(when for when, _ in observed)
    fault = next((item for _, item in observed if item is not None), None)
    return replace(
        device,
        is_known=True,
        fault=fault or device.fault,
        counter=device.counter.after(at, limits.debounce, is_good=fault is None),
    )


@dataclass(frozen=True, slots=True)
class _Reported:
    fault: Fault | None


_CLEAN: Final = _Reported(None)


def _reported(report: HealthReport | None) -> _Reported | None:
    match report.status if report is not None else "":
        case "Healthy":
            return _CLEAN
        case "Lost":
            return _Reported(Fault(FaultKind.LOST, "the node agent no longer finds the device"))
        case "Unhealthy" if report is not None:
            text = f"reported by the node agent: {truncate(report.reason) or 'no reason given'}"
            return _Reported(Fault(_kind_of(report.reason), text))
    return None


def _kind_of(reason: str) -> FaultKind:
    prefix = reason.lower()
    for kind in (FaultKind.XID_ERROR, FaultKind.ECC_ERROR, FaultKind.LOST, FaultKind.THERMAL):
        if prefix.startswith(kind.value):
            return kind
    return FaultKind.REPORTED_UNHEALTHY


def _read(
    before: DeviceHealth,
    uuid: str,
    seen: ExporterSample | None,
    *,
    is_reported_healthy: bool,
    limits: HealthDebounceLimits,
) -> DeviceHealth:
    """Take in a page that is new; an empty page is that of an exporter that starts."""
    if seen is None or not seen.page.devices:
        return before
    if before.read_at is not None and seen.at <= before.read_at:
        return before
    figures = seen.page.devices.get(uuid)
    if figures is None:
        lost = Fault(FaultKind.LOST, "the node's DCGM exporter no longer lists the device")
        fault = lost if before.was_listed and not is_reported_healthy else before.xid_fault
        return replace(before, read_at=seen.at, exporter_fault=fault, hot_samples=0)
    is_hot = _grew(before.figures, figures, "thermal_violation")
    hot_samples = before.hot_samples + 1 if is_hot else 0
    is_too_hot = hot_samples >= limits.hot_samples
    xid_fault = _xid_fault(figures, before.xid_fault, limits)
    return replace(
        before,
        read_at=seen.at,
        figures=_with_missing_counters(before.figures, figures),
        hot_samples=hot_samples,
        xid_fault=xid_fault,
        exporter_fault=(
            xid_fault or _ecc_fault(before.figures, figures) or (_TOO_HOT if is_too_hot else None)
        ),
        was_listed=True,
    )


_TOO_HOT: Final = Fault(FaultKind.THERMAL, "thermal throttling: check the cooling of the device")


def _xid_fault(
    figures: "DeviceReading", before: Fault | None, limits: HealthDebounceLimits
) -> Fault | None:
    """Return the fault of the last fatal Xid; one that is ignored says nothing of those before it."""
    fatal = figures.xids - limits.ignored_xids
    if not fatal:
        return before if figures.xids else None
    text = f"Xid {min(fatal)}: reset the device and reload the driver; the exporter reports it until then"
    return Fault(FaultKind.XID_ERROR, text)


def _ecc_fault(before: "DeviceReading | None", figures: "DeviceReading") -> Fault | None:
    if _grew(before, figures, "volatile_errors") or _grew(before, figures, "aggregate_errors"):
        return Fault(FaultKind.ECC_ERROR, "a new double-bit ECC error")
    return None


_Counter = Literal["volatile_errors", "aggregate_errors", "thermal_violation"]


def _grew(before: "DeviceReading | None", figures: "DeviceReading", counter: _Counter) -> bool:
    """Return whether a counter grew; a counter that is new, or fell, starts again."""
    old: float | None = getattr(before, counter, None)
    new: float | None = getattr(figures, counter)
    return old is not None and new is not None and new > old


def _with_missing_counters(
    before: "DeviceReading | None", figures: "DeviceReading"
) -> "DeviceReading":
    """Return the figures; counters that this page lacks keep their last value."""
    if before is None:
        return figures
    missing = {
        counter: getattr(before, counter)
        for counter in get_args(_Counter)
        if getattr(figures, counter) is None
    }
    return replace(figures, **missing) if missing else figures
