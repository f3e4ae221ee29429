"""Progress of a device towards its layout: when it is planned again, and when that is reported.

An obstacle is reported once for each reason until the device has its layout: as an Event on the GPUDevice, and
in the node's condition. Users that are about to end get a grace period first, since pods take a moment to end
after their pool is free.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from agent.mig.partition_planner import Blocked, BlockReason
from kube.backoff import Backoff

if TYPE_CHECKING:
    from agent.mig.partition_planner import DesiredLayout

EVERY_S: Final = 30.0
WHILE_IN_USE_S: Final = 5.0
"""Retry interval while only its users block a device: processes end without an event."""
GRACE_S: Final = 15.0
"""How long users may block a device before that is reported."""
REFUSED_CAP_S: Final = 60.0
_AT_ONCE: Final = frozenset({BlockReason.IN_USE, BlockReason.USE_UNKNOWN})
"""Planned again at every trigger: the end of a pod is one."""
_REPORTED_BY_HEALTH: Final = frozenset({BlockReason.LOST})
"""Reported by the device's health."""


@final
@dataclass(frozen=True, slots=True)
class PartitionTarget:
    """A device and its desired layout."""

    uuid: str
    desired: "DesiredLayout"


@final
@dataclass(slots=True)
class Progress:
    """Progress of one device towards one target."""

    target: PartitionTarget
    next_at: float = 0.0
    """Time of the next plan without a relevant change (monotonic seconds)."""
    is_partitioning: bool = False
    """Whether steps are being taken, with neither the end nor an obstacle reached."""
    is_changed: bool = False
    """Whether steps were taken whose end is still to be reported."""
    blocked: Blocked | None = None
    is_reported: bool = False
    """Whether the obstacle was reported."""
    _since: float = 0.0
    _refusals: Backoff = field(default_factory=lambda: Backoff(cap_s=REFUSED_CAP_S))

    def waits(self, now: float) -> bool:
        """Whether there is nothing to plan now."""
        is_at_once = self.blocked is not None and self.blocked.reason in _AT_ONCE
        return now < self.next_at and not is_at_once

    def begin(self) -> None:
        self.is_partitioning = True

    def step(self) -> None:
        """A step was taken; an earlier obstacle stays reported until the device has its layout."""
        self.is_changed = True

    def finish(self, now: float) -> bool:
        """The device has its layout; return whether that is to be reported."""
        self.blocked = None
        self.is_reported = False
        self._refusals.succeed()
        self.next_at = now + EVERY_S
        self.is_partitioning = False
        was_changed, self.is_changed = self.is_changed, False
        return was_changed

    def block(self, blocked: Blocked, now: float) -> bool:
        """Record an obstacle; return whether it is to be reported."""
        before = None if self.blocked is None else self.blocked.reason
        is_same = blocked.reason is before
        is_transient = blocked.reason.is_transient
        if not is_same:
            self.is_reported = False
            if before is None or not (before.is_transient and is_transient):
                self._since = now
        self.blocked = blocked
        self.is_partitioning = False
        self.next_at = now + self._pause_s(blocked.reason)
        if self.is_reported or blocked.reason in _REPORTED_BY_HEALTH:
            return False
        self.is_reported = not is_transient or now - self._since >= GRACE_S
        return self.is_reported

    def _pause_s(self, reason: BlockReason) -> float:
        if reason is BlockReason.REFUSED:
            return self._refusals.fail()
        return WHILE_IN_USE_S if reason.is_transient else EVERY_S
