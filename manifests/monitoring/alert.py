"""What an alert and a recording rule are made of."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Urgency of an alert."""

    CRITICAL = "critical"
    """Pods cannot be created or bound, or a device may be allocated twice: act now."""
    WARNING = "warning"
    """A fault or an approaching one: act in working hours."""


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    severity: Severity
    expression: str
    lasts: str
    """`for` of the rule: the expression holds this long before the alert fires."""
    summary: str


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """An expression that Prometheus keeps as a series of its own."""

    name: str
    expression: str
