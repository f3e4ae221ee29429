"""Readiness of a node's GPU software, the condition for its devices to enter pools.

Five things are checked: driver, toolkit, validator, feature discovery, monitoring. Each check is debounced
(`inventory.debounce`), so that no condition flaps with a pod. Facts that do not flap by themselves (opted
out, no devices, all faulted) count at once, as does the first proof of a check: the driver answers, the
validator has passed, or an operand is not required.

The first obstacle, in the order of `ReadinessObstacle`, is the reason of a node that is not ready for
pooling. `reconciler.readiness.conditions` renders the conditions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from api.kinds.gpunodeinventory import BootstrapPhase
from api.text import truncate
from inventory.debounce import NO_SAMPLES, DebounceCounter, DebouncedState
from inventory.readiness.software import MAX_TEXT, Check, findings, operands

if TYPE_CHECKING:
    from api.kinds.gpunodeinventory import OperandStatus
    from inventory.readiness.software import BootstrapParameters, Finding, NodeSoftwareFacts

_AFTER_S: Final = 0.1
"""An observation scheduled for a limit comes after it."""


class ReadinessObstacle(Enum):
    """The reason of a node that is not ready for pooling: the first that applies, in this order."""

    MANAGED_DISABLED = "opted out"
    NO_DEVICES = "no devices"
    INVENTORY_INCOMPLETE = "inventory incomplete"
    """No device has a UUID, so none can be allocated."""
    DEVICES_FAULTED = "devices faulted"
    """Every device is faulted."""
    DRIVER_MISSING = "driver missing"
    TOOLKIT_MISSING = "toolkit missing"
    VALIDATION_FAILED = "validation failed"
    GFD_NOT_READY = "gfd not ready"
    MONITORING_MISSING = "monitoring missing"
    VALIDATING = "validating"
    """Nothing failed, and some check has too few good samples."""


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
    """The debounced state of a check, and the text of its last failure."""

    counter: DebounceCounter = NO_SAMPLES
    text: str = ""
    is_required: bool = True
    """Whether it is required, as of the last good sample."""


def _unknown_states() -> dict[Check, CheckState]:
    return {check: CheckState() for check in Check}


@dataclass(frozen=True, slots=True)
class BootstrapState:
    """State of a node between two observations."""

    states: Mapping[Check, CheckState] = field(default_factory=_unknown_states)
    """One for every check."""
    was_ready: bool = False
    """Whether all checks were up at some time."""

    def state_of(self, check: Check) -> DebouncedState:
        return self.states[check].counter.state

    @property
    def down(self) -> list[Check]:
        """The checks that are down, in the order of `Check`."""
        return [check for check in Check if self.state_of(check) is DebouncedState.DOWN]

    @property
    def undecided(self) -> list[Check]:
        """The checks with too few samples, in the order of `Check`."""
        return [check for check in Check if self.state_of(check) is DebouncedState.UNDECIDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReadiness:
    """Readiness of a node, for its status, conditions and metrics."""

    bootstrap: BootstrapState
    phase: BootstrapPhase
    operands: "tuple[OperandStatus, ...]"
    obstacle: ReadinessObstacle | None
    """None for a node that is ready for pooling."""
    message: str
    is_managed: bool
    is_degraded: bool
    """Software that was ready is no longer ready."""
    harms_workloads: bool
    """Pods use devices while software is not ready."""
    recheck_after_s: float | None
    """Seconds after which time alone may change the readiness."""


def assess_readiness(
    before: BootstrapState,
    facts: "NodeSoftwareFacts",
    parameters: "BootstrapParameters",
    *,
    now: float,
) -> NodeReadiness:
    """Return the readiness of a node after one more observation at `now` (monotonic seconds).

    A node that opts out is not assessed; its checks start again once it is back.
    """
    if facts.is_managed:
        states = {
            check: _next_state(before.states[check], finding, parameters, now=now)
            for check, finding in findings(facts, parameters)
        }
        is_up = all(state.counter.state is DebouncedState.UP for state in states.values())
        bootstrap = BootstrapState(states, before.was_ready or is_up)
    else:
        bootstrap = BootstrapState()
    obstacle, message = _first_obstacle(bootstrap, facts)
    return NodeReadiness(
        bootstrap=bootstrap,
        phase=_phase(bootstrap, facts),
        operands=tuple(operands(facts, parameters)),
        obstacle=obstacle,
        message=message,
        is_managed=facts.is_managed,
        is_degraded=bootstrap.was_ready and bool(bootstrap.down),
        harms_workloads=facts.has_workloads and bool(bootstrap.down),
        recheck_after_s=_recheck_after_s(bootstrap, facts, parameters, now=now),
    )


def _next_state(
    before: CheckState, finding: "Finding", parameters: "BootstrapParameters", *, now: float
) -> CheckState:
    is_undecided = before.counter.state is DebouncedState.UNDECIDED
    if is_undecided and finding.is_proof:
        # Nothing that was bad or good before can flap, and pods wait for the node.
        counter = DebounceCounter(DebouncedState.UP)
    else:
        counter = before.counter.after(now, parameters.debounce, is_good=finding.is_good)
    if finding.is_good:
        return CheckState(counter, before.text, finding.is_required)
    return CheckState(counter, truncate(finding.text, MAX_TEXT), before.is_required)


def _first_obstacle(
    bootstrap: BootstrapState, facts: "NodeSoftwareFacts"
) -> tuple[ReadinessObstacle | None, str]:
    if not facts.is_managed:
        return (
            ReadinessObstacle.MANAGED_DISABLED,
            "the node opts out of GPU management by its label",
        )
    if not facts.devices:
        return (
            ReadinessObstacle.NO_DEVICES,
            "the node has no known device (see InventoryIncomplete)",
        )
    if not facts.complete:
        return (
            ReadinessObstacle.INVENTORY_INCOMPLETE,
            "no device has a UUID: the driver and the node agent must run on the node",
        )
    if facts.faulted == facts.devices:
        return (
            ReadinessObstacle.DEVICES_FAULTED,
            "every device is faulted: see the condition Healthy of its GPUDevices",
        )
    for check in bootstrap.down:
        return _OBSTACLES[check], bootstrap.states[check].text
    if bootstrap.undecided:
        names = ", ".join(check.value for check in bootstrap.undecided)
        return ReadinessObstacle.VALIDATING, f"too few good samples yet: {names}"
    return None, "driver, toolkit and operands are ready"


def _phase(bootstrap: BootstrapState, facts: "NodeSoftwareFacts") -> BootstrapPhase:
    if not facts.is_managed:
        return BootstrapPhase.DISABLED
    for check in Check:
        if bootstrap.state_of(check) is DebouncedState.UP:
            continue
        phase = _PHASES[check]
        validates = phase is BootstrapPhase.VALIDATING
        has_failed = any(_PHASES[item] is phase for item in bootstrap.down)
        return BootstrapPhase.VALIDATING_FAILED if validates and has_failed else phase
    return BootstrapPhase.READY


def _recheck_after_s(
    bootstrap: BootstrapState,
    facts: "NodeSoftwareFacts",
    parameters: "BootstrapParameters",
    *,
    now: float,
) -> float | None:
    waits = [
        wait_s
        for state in bootstrap.states.values()
        if (wait_s := state.counter.next_sample_in(now, parameters.debounce)) is not None
    ]
    if bootstrap.down:
        # Pods start and end meanwhile, and no event says whether software that is down harms them.
        waits.append(parameters.debounce.period_s)
    age_s = facts.heartbeat_age_s
    if facts.is_managed and age_s is not None and age_s <= parameters.heartbeat_freshness_s:
        waits.append(parameters.heartbeat_freshness_s - age_s + _AFTER_S)
    return min(waits, default=None)
