"""A node's GPU software at one moment, and the finding for each check.

One observation proves nothing yet: `inventory.readiness.phases` debounces the findings.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from api.kinds.gpunodeinventory import OperandStatus
from api.text import truncate
from inventory.debounce import DEFAULT_DEBOUNCE, DebounceLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_TEXT: Final = 512
"""Length of the text of one finding."""
STEP_SUFFIX: Final = "-validation"
DRIVER_STEP: Final = f"driver{STEP_SUFFIX}"
TOOLKIT_STEP: Final = f"toolkit{STEP_SUFFIX}"
"""Init containers of the validator's pod; one that has succeeded proves its step."""


class Requirement(Enum):
    """Whether a node's readiness requires an operand."""

    REQUIRED = "Required"
    IF_PRESENT = "IfPresent"
    """Required on every node once a pod of it exists anywhere in the cluster."""
    IGNORED = "Ignored"


class Operand(Enum):
    """Observed software of a node, in the order in which it starts."""

    VALIDATOR = "validator"
    GFD = "gfd"
    DCGM = "dcgm"
    DCGM_EXPORTER = "dcgm-exporter"


class OperandReason(Enum):
    """Why an operand of a node is ready or not."""

    READY = "Ready"
    POD_MISSING = "PodMissing"
    POD_NOT_READY = "PodNotReady"
    NOT_REQUIRED = "NotRequired"
    """Its pod is not ready, and the node's readiness does not depend on it."""


class Check(Enum):
    """The debounced checks, in the order in which they can pass."""

    DRIVER = "driver"
    TOOLKIT = "toolkit"
    VALIDATOR = "validator"
    GFD = "gfd"
    MONITORING = "monitoring"


def _default_requirements() -> dict[Operand, Requirement]:
    return dict.fromkeys(Operand, Requirement.IF_PRESENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapParameters:
    """When a node is ready."""

    requirements: Mapping[Operand, Requirement] = field(default_factory=_default_requirements)
    """An operand that is not named is IfPresent."""
    installed: Set[Operand] = frozenset()
    """Operands that the control plane runs: a new node has none of their pods yet, and that proves nothing."""
    debounce: DebounceLimits = DEFAULT_DEBOUNCE
    heartbeat_freshness_s: float = 120.0
    """Monitoring that is silent for longer counts as missing."""

    def requirement(self, operand: Operand) -> Requirement:
        return self.requirements.get(operand, Requirement.IF_PRESENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandFacts:
    """Observed state of an operand."""

    is_anywhere: bool = False
    """A pod of it exists in the cluster."""
    is_on_node: bool = False
    is_ready: bool = False
    message: str = ""
    """Cause why its pod on the node is not ready."""
    passed: frozenset[str] = frozenset()
    """Init containers of its pod that have succeeded, and whose step has not failed since."""


_NOWHERE: Final = OperandFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSoftwareFacts:
    """Observed state of a node at one moment."""

    is_managed: bool = True
    devices: int = 0
    complete: int = 0
    """Devices with a UUID; the others cannot be allocated."""
    faulted: int = 0
    has_driver: bool = False
    """Some fact comes from the driver: a device's UUID, or the driver's version."""
    has_toolkit: bool = False
    """The node reports a toolkit version; without one the toolkit is not required."""
    operands: Mapping[Operand, OperandFacts] = field(default_factory=dict)
    heartbeat_age_s: float | None = None
    """Age of monitoring's last sign of life; None without monitoring."""
    has_workloads: bool = False
    """Pods use devices of the node."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one observation for a check."""

    is_good: bool
    text: str = ""
    """The fault and the cure."""
    is_required: bool = True
    is_proof: bool = False
    """The driver answers, the validator has passed, or there is nothing to check; a pod that has only started is no
    proof."""


_NOT_REQUIRED: Final = Finding(is_good=True, is_required=False, is_proof=True)
_NOT_YET: Final = Finding(is_good=True, is_required=False)
_FINE: Final = Finding(is_good=True)
_PROVEN: Final = Finding(is_good=True, is_proof=True)


def findings(
    facts: NodeSoftwareFacts, parameters: BootstrapParameters
) -> "Iterator[tuple[Check, Finding]]":
    """Yield the finding of every check."""
    yield Check.DRIVER, _driver(facts, parameters)
    yield Check.TOOLKIT, _toolkit(facts, parameters)
    yield Check.VALIDATOR, _operand(Operand.VALIDATOR, facts, parameters)
    yield Check.GFD, _operand(Operand.GFD, facts, parameters)
    yield Check.MONITORING, _monitoring(facts, parameters)


def _driver(facts: NodeSoftwareFacts, parameters: BootstrapParameters) -> Finding:
    validated = _validated(DRIVER_STEP, facts, parameters)
    if validated is not None:
        return validated
    if facts.has_driver:
        return _PROVEN
    return Finding(
        is_good=False,
        text="no device reports a UUID and no source reports a driver version: install the driver",
    )


def _toolkit(facts: NodeSoftwareFacts, parameters: BootstrapParameters) -> Finding:
    validated = _validated(TOOLKIT_STEP, facts, parameters)
    if validated is not None:
        return validated
    return _PROVEN if facts.has_toolkit else _NOT_REQUIRED


def _validated(
    step: str, facts: NodeSoftwareFacts, parameters: BootstrapParameters
) -> Finding | None:
    """Return the finding of the validator's pod for a step; None on a node without one."""
    seen = facts.operands.get(Operand.VALIDATOR, _NOWHERE)
    if parameters.requirement(Operand.VALIDATOR) is Requirement.IGNORED or not seen.is_on_node:
        return None
    if seen.is_ready or step in seen.passed:
        return _PROVEN
    return Finding(is_good=False, text=f"the validator has not completed {step}: {seen.message}")


def _operand(
    operand: Operand, facts: NodeSoftwareFacts, parameters: BootstrapParameters
) -> Finding:
    seen = facts.operands.get(operand, _NOWHERE)
    requirement = parameters.requirement(operand)
    is_required = requirement is Requirement.REQUIRED or (
        requirement is Requirement.IF_PRESENT and seen.is_anywhere
    )
    if not is_required:
        return _NOT_REQUIRED if operand not in parameters.installed else _NOT_YET
    if not seen.is_on_node:
        return Finding(
            is_good=False,
            text=f"no pod of {operand.value} on the node: let its DaemonSet run here,"
            " or set its requirement to Ignored",
        )
    if not seen.is_ready:
        return Finding(is_good=False, text=seen.message)
    # Its pod is ready once every step has passed.
    return _PROVEN if operand is Operand.VALIDATOR else _FINE


def _monitoring(facts: NodeSoftwareFacts, parameters: BootstrapParameters) -> Finding:
    found = [_operand(item, facts, parameters) for item in (Operand.DCGM, Operand.DCGM_EXPORTER)]
    for finding in found:
        if not finding.is_good:
            return finding
    age_s = facts.heartbeat_age_s
    is_heard = parameters.requirement(Operand.DCGM_EXPORTER) is not Requirement.IGNORED
    if is_heard and age_s is not None and age_s > parameters.heartbeat_freshness_s:
        return Finding(
            is_good=False,
            text=f"no metrics from the node for more than {parameters.heartbeat_freshness_s:g} s: check that the"
            " exporter's port is reachable and that the node agent runs",
        )
    if any(finding.is_required for finding in found):
        return _FINE
    return _NOT_REQUIRED if all(finding.is_proof for finding in found) else _NOT_YET


def operands(
    facts: NodeSoftwareFacts, parameters: BootstrapParameters
) -> "Iterator[OperandStatus]":
    """Yield the operands that the node requires or has, as its status shows them."""
    for operand in Operand:
        finding = _operand(operand, facts, parameters)
        seen = facts.operands.get(operand, _NOWHERE)
        if finding.is_required or seen.is_on_node:
            yield OperandStatus(
                name=operand.value,
                ready=seen.is_ready,
                reason=_reason(finding, seen).value,
                message=truncate(finding.text, MAX_TEXT),
            )


def _reason(finding: Finding, seen: OperandFacts) -> OperandReason:
    if seen.is_ready:
        return OperandReason.READY
    if not finding.is_required:
        return OperandReason.NOT_REQUIRED
    return OperandReason.POD_NOT_READY if seen.is_on_node else OperandReason.POD_MISSING
