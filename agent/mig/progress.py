"""How far a card is on its way to what is wanted of it: when it is planned again, and what is told of it.

What holds a card up is told once for each reason until the card is as wanted: on the device as an event, and
in the node's condition.
Users that are about to end get a moment first, since pods take one to go after their pool is free.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from agent.mig.planner import Blocked, BlockReason
from kube.backoff import Backoff

if TYPE_CHECKING:
    from agent.mig.planner import WantedLayout

EVERY_S: Final = 30.0
WHILE_IN_USE_S: Final = 5.0
"""Between two looks at a card that only its users hold up: processes end without telling anybody."""
PATIENCE_S: Final = 15.0
"""How long users may hold a card up before anybody is told."""
REFUSED_CAP_S: Final = 60.0
_AT_ONCE: Final = frozenset({BlockReason.IN_USE, BlockReason.USE_UNKNOWN})
"""Planned again with every change that is told: pods end, and that is told."""
_TOLD_ELSEWHERE: Final = frozenset({BlockReason.LOST})
"""By the card's health."""


@final
@dataclass(frozen=True, slots=True)
class Wish:
    """A card, and how it is to be."""

    uuid: str
    wanted: "WantedLayout"


@final
@dataclass(slots=True)
class Progress:
    """Of one card towards one wish."""

    wish: Wish
    next_at: float = 0.0
    """When it is planned next (monotonic seconds), if nothing that matters changes before."""
    is_cutting: bool = False
    """Steps are taken, and neither the end nor an obstacle is reached."""
    is_changed: bool = False
    """Steps were taken, and that the card is as wanted is still to be told."""
    blocked: Blocked | None = None
    is_told: bool = False
    """Somebody was told of what holds it up."""
    _since: float = 0.0
    _refusals: Backoff = field(default_factory=lambda: Backoff(cap_s=REFUSED_CAP_S))

    def waits(self, now: float) -> bool:
        """Say whether there is nothing to plan now."""
        is_at_once = self.blocked is not None and self.blocked.reason in _AT_ONCE
        return now < self.next_at and not is_at_once

    def begin(self) -> None:
        """Note that a step is about to be taken."""
        self.is_cutting = True

    def step(self) -> None:
        """Note that it was; what held the card up before stays told until the card is as wanted."""
        self.is_changed = True

    def finish(self, now: float) -> bool:
        """Note that the card is as wanted; return whether that is to be told."""
        self.blocked = None
        self.is_told = False
        self._refusals.succeed()
        self.next_at = now + EVERY_S
        self.is_cutting = False
        was_changed, self.is_changed = self.is_changed, False
        return was_changed

    def block(self, blocked: Blocked, now: float) -> bool:
        """Note what is in the way; return whether that is to be told."""
        before = None if self.blocked is None else self.blocked.reason
        is_same = blocked.reason is before
        is_of_use = blocked.reason.is_of_use
        if not is_same:
            self.is_told = False
            if before is None or not (before.is_of_use and is_of_use):
                self._since = now
        self.blocked = blocked
        self.is_cutting = False
        self.next_at = now + self._pause_s(blocked.reason)
        if self.is_told or blocked.reason in _TOLD_ELSEWHERE:
            return False
        self.is_told = not is_of_use or now - self._since >= PATIENCE_S
        return self.is_told

    def _pause_s(self, reason: BlockReason) -> float:
        if reason is BlockReason.REFUSED:
            return self._refusals.fail()
        return WHILE_IN_USE_S if reason.is_of_use else EVERY_S
