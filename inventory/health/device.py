"""Health of a device, from the DCGM exporter of its node and the node agent.

A fault takes the device out at once, but for heat, which must last. The device comes back after several clean
samples in a row. Where the sources differ, the fault counts, but for Xids and ECC errors of the exporter where the agent
reports the device's recovery action, which is known after them. Without any source nothing changes: silence
neither makes a device faulty nor heals it. The exporter's last Xid stays until the driver is loaded again, and another one
replaces it: a harmless one after a fatal one is no evidence that the device recovered.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, get_args

from api.kinds.gpudevice import MAX_XID, LastXid
from api.status_conditions import format_time
from api.text import truncate
from inventory.debounce import DebounceCounter, DebouncedState, DebounceLimits
from inventory.health.recovery import (
    CURES,
    DOUBLE_BIT_XID,
    RecoveryAction,
    XidActions,
    action_of_xid,
)

if TYPE_CHECKING:
    import datetime as dt

    from inventory.health.dcgm import DeviceReading, ExporterPage


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a device; the text has no figure that moves while the fault lasts."""

    action: RecoveryAction
    """What the device needs; never NONE."""
    text: str


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The node agent's report on a device."""

    status: str
    """`Healthy`, `Unhealthy` or `Lost` (`api.foreign.nodefeature.AgentDevice`); any other value is no report."""
    reason: str = ""
    action: str = ""
    """What the device needs, a value of RecoveryAction; empty for a healthy device whose driver does not say it."""
    reset: str = ""
    """Outcome of the last reset that its repair asked for (`inventory.health.repair.reset_text`)."""
    last_xid: LastXid | None = None
    """None where the agent has none since it started, or is of a version that does not report it."""


@dataclass(frozen=True, slots=True)
class ExporterSample:
    """The page of a node's exporter, and the time of its scrape (monotonic seconds)."""

    at: float
    page: "ExporterPage"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthDebounceLimits:
    """When a device becomes faulty, and when it is healthy again."""

    xid_actions: XidActions = field(default_factory=dict)
    """Actions after Xids, in place of the catalog's."""
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
    device = _read(before, uuid, seen, report=report, limits=limits)
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


def last_xid(
    current: LastXid | None,
    *,
    report: HealthReport | None,
    figures: "DeviceReading | None",
    now: "dt.datetime",
) -> LastXid | None:
    """Return the last Xid of a device: the node agent's, or else another one of its exporter, or else the current one.

    Args:
        current: the one of its status.
        report: the node agent's current report.
        figures: of a page that was not judged before, so that no old page contradicts a later report.
        now: time of an Xid that the exporter shows for the first time.
    """
    if report is not None and report.last_xid is not None:
        return report.last_xid
    code = 0 if figures is None else figures.last_xid
    if not 0 < code <= MAX_XID or (current is not None and code == current.code):
        return current
    return LastXid(code=code, time=format_time(now))


@dataclass(frozen=True, slots=True)
class _Reported:
    fault: Fault | None


_CLEAN: Final = _Reported(None)


def _reported(report: HealthReport | None) -> _Reported | None:
    if report is None or report.status not in {"Healthy", "Unhealthy", "Lost"}:
        return None
    if report.status == "Healthy":
        return _CLEAN
    action = RecoveryAction.of(report.action)
    if action is RecoveryAction.NONE:  # of a fault it is no answer
        action = RecoveryAction.UNKNOWN
    reason = truncate(report.reason) or "no reason given"
    return _Reported(_fault(action, f"reported by the node agent: {reason}"))


def _fault(action: RecoveryAction, text: str) -> Fault:
    return Fault(action, f"{text}: {CURES[action]}")


def _read(
    before: DeviceHealth,
    uuid: str,
    seen: ExporterSample | None,
    *,
    report: HealthReport | None,
    limits: HealthDebounceLimits,
) -> DeviceHealth:
    """Take in a page that is new; an empty page is that of an exporter that starts."""
    if seen is None or not seen.page.devices:
        return before
    if before.read_at is not None and seen.at <= before.read_at:
        return before
    figures = seen.page.devices.get(uuid)
    if figures is None:
        is_missed = before.was_listed and _reported(report) is not _CLEAN
        fault = _UNLISTED if is_missed else before.xid_fault
        return replace(before, read_at=seen.at, exporter_fault=fault, hot_samples=0)
    is_hot = _has_increased(before.figures, figures, "thermal_violation")
    hot_samples = before.hot_samples + 1 if is_hot else 0
    is_too_hot = hot_samples >= limits.hot_samples
    is_action_reported = report is not None and report.action != ""
    xid_fault = None if is_action_reported else _xid_fault(figures, before.xid_fault, limits)
    ecc_fault = None if is_action_reported else _ecc_fault(before.figures, figures)
    return replace(
        before,
        read_at=seen.at,
        figures=_with_missing_counters(before.figures, figures),
        hot_samples=hot_samples,
        xid_fault=xid_fault,
        exporter_fault=xid_fault or ecc_fault or (_TOO_HOT if is_too_hot else None),
        was_listed=True,
    )


_TOO_HOT: Final = _fault(RecoveryAction.CHECK_COOLING, "thermal throttling")
_UNLISTED: Final = _fault(
    RecoveryAction.NODE_REBOOT, "the node's DCGM exporter no longer lists the device"
)


def _xid_fault(
    figures: "DeviceReading", before: Fault | None, limits: HealthDebounceLimits
) -> Fault | None:
    """Return the fault of the lowest fatal Xid; one that is harmless says nothing of those before it."""
    for code in sorted(figures.xids):
        xid_action = action_of_xid(code, actions=limits.xid_actions)
        if xid_action.action is not RecoveryAction.NONE:
            text = (
                f"Xid {code} of the DCGM exporter, which shows it until the driver is loaded again"
            )
            return _fault(xid_action.action, f"{text}; action {xid_action.source.value}")
    return before if figures.xids else None


def _ecc_fault(before: "DeviceReading | None", figures: "DeviceReading") -> Fault | None:
    if _has_increased(before, figures, "volatile_errors") or _has_increased(
        before, figures, "aggregate_errors"
    ):
        action = action_of_xid(DOUBLE_BIT_XID).action
        return _fault(action, "a new double-bit ECC error")
    return None


_Counter = Literal["volatile_errors", "aggregate_errors", "thermal_violation"]


def _has_increased(
    before: "DeviceReading | None", figures: "DeviceReading", counter: _Counter
) -> bool:
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
