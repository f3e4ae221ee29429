"""Objectives of service: shares of requests that are answered in time, and alerts on how fast the rest is used up.

An objective allows a share of slow requests in 30 days, its budget. A burn rate of 1 uses it up in just that time.
Two windows each: the long one says that it matters, the short one that it still goes on (the SRE workbook, chapter 5).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from manifests.monitoring.alert import Alert, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    name: str
    """Begins the names of its alerts."""
    histogram: str
    matchers: str = ""
    """Labels of the requests that count."""
    within_s: str
    """Upper bound of a bucket, as Prometheus writes it."""
    budget: float
    """Share of the requests that may be slower."""
    missed: str = ""
    """A counter: requests that ended unanswered, which the histogram does not have."""
    missed_matchers: str = ""
    text: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRate:
    name: str
    severity: Severity
    long: str
    short: str
    rate: float
    lasts: str
    text: str


OBJECTIVES: Final = (
    Objective(
        name="GPUAdmissionObjective",
        histogram="gpu_admission_duration_seconds",
        # Their answers wait for a registry of images.
        matchers='webhook!="mutate-gkmcaches",webhook!="mutate-clustergkmcaches"',
        within_s="0.1",
        budget=0.001,
        text="webhook responses within 0.1 s",
    ),
    Objective(
        name="GPUFilterObjective",
        histogram="gpu_extender_duration_seconds",
        matchers='verb="filter"',
        within_s="0.05",
        budget=0.01,
        text="filter responses of the scheduler extender within 0.05 s",
    ),
    Objective(
        name="GPUBindingObjective",
        histogram="gpupool_reserved_wait_seconds",
        within_s="30.0",
        budget=0.01,
        # A pod that is not bound by then has no wait yet.
        missed="gpu_reservations_ended_total",
        missed_matchers='end="expired"',
        text="pods with reserved units bound within 30 s",
    ),
)
_RATES: Final = (
    BurnRate(
        name="BurnsFast",
        severity=Severity.CRITICAL,
        long="1h",
        short="5m",
        rate=14.4,
        lasts="2m",
        text="in two days",
    ),
    BurnRate(
        name="BurnsSlowly",
        severity=Severity.WARNING,
        long="6h",
        short="30m",
        rate=6,
        lasts="15m",
        text="in five days",
    ),
)
"""14.4 uses up 2 % of 30 days in an hour, 6 uses up 5 % in six hours."""


def _alerts() -> "Iterator[Alert]":
    for objective in OBJECTIVES:
        for rate in _RATES:
            limit = f"{objective.budget * rate.rate:g}"
            long, short = (slow_share(objective, window) for window in (rate.long, rate.short))
            yield Alert(
                f"{objective.name}{rate.name}",
                rate.severity,
                f"{long} > {limit} and {short} > {limit}",
                rate.lasts,
                f"at this rate, the share of 30 days that may miss the objective ({objective.text}) is used up"
                f" {rate.text}",
            )


def slow_share(objective: Objective, window: str, *, of: str = "") -> str:
    """Return the share of the requests of a window that missed the objective.

    Args:
        objective: says which requests count.
        window: of their rate.
        of: a matcher besides those of the objective.
    """
    bucket = (of, objective.matchers, f'le="{objective.within_s}"')
    fast = _rate(f"{objective.histogram}_bucket", bucket, window)
    requests = _rate(f"{objective.histogram}_count", (of, objective.matchers), window)
    if objective.missed:
        missed = _rate(objective.missed, (of, objective.missed_matchers), window)
        requests = f"({requests} + {missed})"
    return f"(1 - {fast} / {requests})"


def _rate(series: str, matchers: tuple[str, ...], window: str) -> str:
    given = ",".join(filter(None, matchers))
    selector = f"{{{given}}}" if given else ""
    return f"sum by (cluster) (rate({series}{selector}[{window}]))"


OBJECTIVE_ALERTS: Final = tuple(_alerts())
