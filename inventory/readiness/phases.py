"""Whether a node's GPU software is ready, so that its devices may go into pools.

Five things are checked: driver, toolkit, validator, feature discovery, monitoring. Each has a standing of
its own that one look does not change (`inventory.debounce`), so that no condition flaps with a pod.
Facts that do not flap by themselves (opted out, no devices, all faulted) count at once.

What is wrong first, in the order of `ReadinessObstacle`, is the reason why a node is not ready for pooling.
The conditions that say so are `reconciler.readiness.conditions`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from api.kinds.gpunodeinventory import BootstrapPhase
from api.text import truncate
from inventory.debounce import UNSEEN, DebouncedState, Track
from inventory.readiness.software import MAX_TEXT, Check, findings, operands

if TYPE_CHECKING:
    from api.kinds.gpunodeinventory import OperandStatus
    from inventory.readiness.software import BootstrapTerms, Finding, NodeSoftwareFacts

_AFTER_S: Final = 0.1
"""A look at a limit is one after it."""


class ReadinessObstacle(Enum):
    """Why a node is not ready for pooling: the first that applies, in this order."""

    MANAGED_DISABLED = "opted out"
    NO_DEVICES = "no devices"
    INVENTORY_INCOMPLETE = "inventory incomplete"
    """No device is known well enough to be given out."""
    DEVICES_FAULTED = "devices faulted"
    """Every device is faulted."""
    DRIVER_MISSING = "driver missing"
    TOOLKIT_MISSING = "toolkit missing"
    VALIDATION_FAILED = "validation failed"
    GFD_NOT_READY = "gfd not ready"
    MONITORING_MISSING = "monitoring missing"
    VALIDATING = "validating"
    """Nothing failed, and something was not seen good often enough yet."""


_OBSTACLES: Final = {
    Check.DRIVER: ReadinessObstacle.DRIVER_MISSING,
    Check.TOOLKIT: ReadinessObstacle.TOOLKIT_MISSING,
    Check.VALIDATOR: ReadinessObstacle.VALIDATION_FAILED,
    Check.GFD: ReadinessObstacle.GFD_NOT_READY,
    Check.MONITORING: ReadinessObstacle.MONITORING_MISSING,
}
_PHASES: Final = {
    Check.DRIVER: BootstrapPhase.VALIDATING,
    Check.TOOLKIT: BootstrapPhase.VALIDATING,
    Check.VALIDATOR: BootstrapPhase.VALIDATING,
    Check.GFD: BootstrapPhase.GFD,
    Check.MONITORING: BootstrapPhase.MONITORING,
}


@dataclass(frozen=True, slots=True)
class CheckState:
    """A check's standing, and what was wrong when it was last seen bad."""

    track: Track = UNSEEN
    text: str = ""
    is_required: bool = True
    """As it was when it was last seen good."""


def _unknown_states() -> dict[Check, CheckState]:
    return {check: CheckState() for check in Check}


@dataclass(frozen=True, slots=True)
class BootstrapState:
    """What is remembered of a node between two looks."""

    states: Mapping[Check, CheckState] = field(default_factory=_unknown_states)
    """Of every check."""
    was_ready: bool = False
    """All checks were up at some time."""

    def standing(self, check: Check) -> DebouncedState:
        """Return what a check counts as."""
        return self.states[check].track.standing

    @property
    def down(self) -> list[Check]:
        """Return the checks that are down, in their order."""
        return [check for check in Check if self.standing(check) is DebouncedState.DOWN]

    @property
    def undecided(self) -> list[Check]:
        """Return the checks that were not seen often enough, in their order."""
        return [check for check in Check if self.standing(check) is DebouncedState.UNDECIDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessVerdict:
    """What is to be said of a node."""

    bootstrap: BootstrapState
    phase: BootstrapPhase
    operands: "tuple[OperandStatus, ...]"
    obstacle: ReadinessObstacle | None
    """None where the node is ready for pooling."""
    message: str
    is_managed: bool
    is_degraded: bool
    """Software that was ready is not any more."""
    harms_workloads: bool
    """Pods run on devices while software is not ready."""
    look_again_s: float | None
    """After how long time alone may change the verdict."""


def judge(
    before: BootstrapState, sight: "NodeSoftwareFacts", terms: "BootstrapTerms", *, now: float
) -> ReadinessVerdict:
    """Return the verdict on a node after one more look at `now` (monotonic seconds).

    A node that opts out is not judged, and begins anew once it is back.
    """
    if sight.is_managed:
        states = {
            check: _after(before.states[check], finding, terms, now=now)
            for check, finding in findings(sight, terms)
        }
        is_up = all(state.track.standing is DebouncedState.UP for state in states.values())
        bootstrap = BootstrapState(states, before.was_ready or is_up)
    else:
        bootstrap = BootstrapState()
    obstacle, message = _first_obstacle(bootstrap, sight)
    return ReadinessVerdict(
        bootstrap=bootstrap,
        phase=_phase(bootstrap, sight),
        operands=tuple(operands(sight, terms)),
        obstacle=obstacle,
        message=message,
        is_managed=sight.is_managed,
        is_degraded=bootstrap.was_ready and bool(bootstrap.down),
        harms_workloads=sight.has_workloads and bool(bootstrap.down),
        look_again_s=_look_again_s(bootstrap, sight, terms, now=now),
    )


def _after(
    before: CheckState, finding: "Finding", terms: "BootstrapTerms", *, now: float
) -> CheckState:
    track = before.track.after(now, terms.steadiness, is_good=finding.is_good)
    if finding.is_good:
        return CheckState(track, before.text, finding.is_required)
    return CheckState(track, truncate(finding.text, MAX_TEXT), before.is_required)


def _first_obstacle(
    bootstrap: BootstrapState, sight: "NodeSoftwareFacts"
) -> tuple[ReadinessObstacle | None, str]:
    if not sight.is_managed:
        return ReadinessObstacle.MANAGED_DISABLED, "the node opts out by its label"
    if not sight.devices:
        return (
            ReadinessObstacle.NO_DEVICES,
            "no device is known on the node (see InventoryIncomplete)",
        )
    if not sight.complete:
        return (
            ReadinessObstacle.INVENTORY_INCOMPLETE,
            "no device has a UUID: a driver, and somebody who tells what it says, must run there",
        )
    if sight.faulted == sight.devices:
        return (
            ReadinessObstacle.DEVICES_FAULTED,
            "every device is faulted: look at their condition Healthy",
        )
    for check in bootstrap.down:
        return _OBSTACLES[check], bootstrap.states[check].text
    if bootstrap.undecided:
        names = ", ".join(check.value for check in bootstrap.undecided)
        return ReadinessObstacle.VALIDATING, f"not seen good often enough yet: {names}"
    return None, "driver, toolkit and operands are ready"


def _phase(bootstrap: BootstrapState, sight: "NodeSoftwareFacts") -> BootstrapPhase:
    if not sight.is_managed:
        return BootstrapPhase.DISABLED
    for check in Check:
        if bootstrap.standing(check) is DebouncedState.UP:
            continue
        phase = _PHASES[check]
        validates = phase is BootstrapPhase.VALIDATING
        has_failed = any(_PHASES[one] is phase for one in bootstrap.down)
        return BootstrapPhase.VALIDATING_FAILED if validates and has_failed else phase
    return BootstrapPhase.READY


def _look_again_s(
    bootstrap: BootstrapState, sight: "NodeSoftwareFacts", terms: "BootstrapTerms", *, now: float
) -> float | None:
    waits = [
        wait_s
        for state in bootstrap.states.values()
        if (wait_s := state.track.next_sample_in(now, terms.steadiness)) is not None
    ]
    if bootstrap.down:
        # Pods come and go meanwhile, and whether some are harmed is told by nobody.
        waits.append(terms.steadiness.period_s)
    age_s = sight.heartbeat_age_s
    if sight.is_managed and age_s is not None and age_s <= terms.heartbeat_freshness_s:
        waits.append(terms.heartbeat_freshness_s - age_s + _AFTER_S)
    return min(waits, default=None)
