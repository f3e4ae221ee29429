"""A node's GPU software as it is seen at one moment, and what that shows of each thing that is checked.

One look proves nothing yet: `inventory.readiness.phases` judges by several.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from api.kinds.gpunodeinventory import OperandStatus
from api.text import truncate
from inventory.debounce import STEADY, DebounceTerms

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_TEXT: Final = 512
"""Of what is wrong with one thing."""
DRIVER_STEP: Final = "driver-validation"
TOOLKIT_STEP: Final = "toolkit-validation"
"""Init containers of the validator's pod; one that has ended well proves its part."""


class Requirement(Enum):
    """Whether a node needs an operand to be ready."""

    REQUIRED = "Required"
    IF_PRESENT = "IfPresent"
    """On every node once a pod of it exists anywhere in the cluster."""
    IGNORED = "Ignored"


class Operand(Enum):
    """Software on a node that we look at, in the order in which it comes up."""

    VALIDATOR = "validator"
    GFD = "gfd"
    DCGM = "dcgm"
    DCGM_EXPORTER = "dcgm-exporter"


class Check(Enum):
    """What has a standing, in the order in which it comes up."""

    DRIVER = "driver"
    TOOLKIT = "toolkit"
    VALIDATOR = "validator"
    GFD = "gfd"
    MONITORING = "monitoring"


def _default_requirements() -> dict[Operand, Requirement]:
    return dict.fromkeys(Operand, Requirement.IF_PRESENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapTerms:
    """What makes a node ready."""

    requirements: Mapping[Operand, Requirement] = field(default_factory=_default_requirements)
    """An operand that is not named is IfPresent."""
    steadiness: DebounceTerms = STEADY
    heartbeat_freshness_s: float = 120.0
    """Monitoring that was silent for longer is missing."""

    def requirement(self, operand: Operand) -> Requirement:
        """Return whether a node needs the operand."""
        return self.requirements.get(operand, Requirement.IF_PRESENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandFacts:
    """What is seen of an operand."""

    is_anywhere: bool = False
    """A pod of it exists in the cluster."""
    is_on_node: bool = False
    is_ready: bool = False
    message: str = ""
    """Why its pod on the node is not ready."""
    passed: frozenset[str] = frozenset()
    """Init containers of its pod that have ended well."""


_NOWHERE: Final = OperandFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSoftwareFacts:
    """What is seen of a node at one moment."""

    is_managed: bool = True
    devices: int = 0
    complete: int = 0
    """Devices of which the UUID is known: of the others nothing can be given out."""
    faulted: int = 0
    has_driver: bool = False
    """Something was read through the driver: a device's UUID, or its version."""
    has_toolkit: bool = False
    """The node reports a version of the toolkit; where none is reported nobody asked."""
    operands: Mapping[Operand, OperandFacts] = field(default_factory=dict)
    heartbeat_age_s: float | None = None
    """Since monitoring was heard last; None where nobody listens."""
    has_workloads: bool = False
    """Pods use devices of the node."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look shows of a check."""

    is_good: bool
    text: str = ""
    """What is wrong, and what to do about it."""
    is_required: bool = True


_NOT_REQUIRED: Final = Finding(is_good=True, is_required=False)
_FINE: Final = Finding(is_good=True)


def findings(sight: NodeSoftwareFacts, terms: BootstrapTerms) -> "Iterator[tuple[Check, Finding]]":
    """Yield what a look shows of every check."""
    yield Check.DRIVER, _driver(sight, terms)
    yield Check.TOOLKIT, _toolkit(sight, terms)
    yield Check.VALIDATOR, _operand(Operand.VALIDATOR, sight, terms)
    yield Check.GFD, _operand(Operand.GFD, sight, terms)
    yield Check.MONITORING, _monitoring(sight, terms)


def _driver(sight: NodeSoftwareFacts, terms: BootstrapTerms) -> Finding:
    validated = _validated(DRIVER_STEP, sight, terms)
    if validated is not None:
        return validated
    if sight.has_driver:
        return _FINE
    return Finding(
        is_good=False,
        text="no device has reported its UUID and no source a driver version: install the driver",
    )


def _toolkit(sight: NodeSoftwareFacts, terms: BootstrapTerms) -> Finding:
    validated = _validated(TOOLKIT_STEP, sight, terms)
    if validated is not None:
        return validated
    return _FINE if sight.has_toolkit else _NOT_REQUIRED


def _validated(step: str, sight: NodeSoftwareFacts, terms: BootstrapTerms) -> Finding | None:
    """Return what the validator's pod says of a step; None where it has no say here."""
    seen = sight.operands.get(Operand.VALIDATOR, _NOWHERE)
    if terms.requirement(Operand.VALIDATOR) is Requirement.IGNORED or not seen.is_on_node:
        return None
    if seen.is_ready or step in seen.passed:
        return _FINE
    return Finding(is_good=False, text=f"the validator has not passed {step}: {seen.message}")


def _operand(operand: Operand, sight: NodeSoftwareFacts, terms: BootstrapTerms) -> Finding:
    seen = sight.operands.get(operand, _NOWHERE)
    requirement = terms.requirement(operand)
    is_required = requirement is Requirement.REQUIRED or (
        requirement is Requirement.IF_PRESENT and seen.is_anywhere
    )
    if not is_required:
        return _NOT_REQUIRED
    if not seen.is_on_node:
        return Finding(
            is_good=False,
            text=f"no pod of {operand.value} on the node: let its DaemonSet run here,"
            " or set its requirement to Ignored",
        )
    return _FINE if seen.is_ready else Finding(is_good=False, text=seen.message)


def _monitoring(sight: NodeSoftwareFacts, terms: BootstrapTerms) -> Finding:
    found = [_operand(one, sight, terms) for one in (Operand.DCGM, Operand.DCGM_EXPORTER)]
    for finding in found:
        if not finding.is_good:
            return finding
    age_s = sight.heartbeat_age_s
    is_heard = terms.requirement(Operand.DCGM_EXPORTER) is not Requirement.IGNORED
    if is_heard and age_s is not None and age_s > terms.heartbeat_freshness_s:
        return Finding(
            is_good=False,
            text=f"monitoring was not heard for more than {terms.heartbeat_freshness_s:g} s:"
            " may we reach the exporter's port, does the node's agent run?",
        )
    return _FINE if any(finding.is_required for finding in found) else _NOT_REQUIRED


def operands(sight: NodeSoftwareFacts, terms: BootstrapTerms) -> "Iterator[OperandStatus]":
    """Yield the operands that the node needs, or has, as its status shows them."""
    for operand in Operand:
        finding = _operand(operand, sight, terms)
        seen = sight.operands.get(operand, _NOWHERE)
        if finding.is_required or seen.is_on_node:
            yield OperandStatus(
                name=operand.value, ready=seen.is_ready, message=truncate(finding.text, MAX_TEXT)
            )
