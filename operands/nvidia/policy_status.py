"""Status of a ClusterPolicy and of an NVIDIADriver: each state with its reason, and the two conditions of upstream. Pure."""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from api.kinds.nvidia.operator_status import StateReadiness, StateStatus
from api.status_conditions import format_time, new_condition
from api.text import MAX_MESSAGE_LENGTH, listed, truncate

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from api.meta import Condition
    from operands.nvidia.daemon_set_readiness import DaemonSetReadiness


class OperatorCondition(Enum):
    """Condition types, which are always written together."""

    READY = "Ready"
    ERROR = "Error"


class GoodReason(Enum):
    """Reason of condition Ready while it is True."""

    RECONCILED = "Reconciled"
    NFD_LABELS_MISSING = "NFDLabelsMissing"
    """No node has a label of Node Feature Discovery."""
    NO_GPU_NODES = "NoGPUNodes"
    """No node has a GPU, so that no pod runs."""


class BadReason(Enum):
    """Reason of condition Error while it is True."""

    RECONCILE_FAILED = "ReconcileFailed"
    OPERAND_NOT_READY = "OperandNotReady"
    DRIVER_NOT_READY = "DriverNotReady"
    """A node's driver is being upgraded."""
    PREREQUISITE_NOT_MET = "PrerequisiteNotMet"
    """What the object needs is not there."""
    OS_UNSUPPORTED = "OperatingSystemUnsupported"
    """Nodes with a GPU run a system to which no software is brought."""
    CONFLICTING_NODE_SELECTOR = "ConflictingNodeSelector"
    """Two NVIDIADrivers select one node."""


class _Counterpart(Enum):
    """Reason of the condition that only repeats the other."""

    ERROR = "Error"
    READY = "Ready"


class StateReason(Enum):
    """Reason of a state's readiness, beside those of `operands.nvidia.policy_operands.StateFault`."""

    READY = "Ready"
    DISABLED = "Disabled"
    PODS_NOT_READY = "PodsNotReady"
    """Nodes miss a pod, or theirs is not ready."""
    OBJECT_OWNED_BY_ANOTHER = "ObjectOwnedByAnother"
    """An object of its name is another client's, and stays as it is."""
    ALREADY_RUNS = "AlreadyRuns"
    """A DaemonSet of another client does the same, so that nothing is started beside it."""
    ADOPTION_WAITS = "AdoptionWaits"
    """A DaemonSet that NVIDIA's GPU Operator made is not taken over yet."""
    OBJECT_NOT_APPLIED = "ObjectNotApplied"
    """The API server refuses an object."""
    BEING_REMOVED = "BeingRemoved"
    """Objects of it are being deleted."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StateFacts:
    """What was found of one state."""

    name: str
    is_enabled: bool = True
    objects: int = 0
    """Objects that are there, as they should be or not."""
    fault: "tuple[Enum, str] | None" = None
    """Reason and message of what keeps objects from being as they should be."""
    left: tuple[str, ...] = ()
    """Objects that it should not have any more."""
    daemon_sets: "tuple[DaemonSetReadiness, ...]" = ()


def state_status(
    facts: StateFacts, *, current: "Iterable[StateStatus] | None", now: "dt.datetime"
) -> StateStatus:
    """Return the status of a state; its time moves with its readiness only.

    Args:
        facts: of the state.
        current: the states that the object shows.
        now: the time of a change.
    """
    readiness, reason, message = _readiness(facts)
    before = next((item for item in current or () if item.name == facts.name), None)
    is_same = before is not None and before.state is readiness and before.since
    return StateStatus(
        name=facts.name,
        state=readiness,
        reason=reason.value,
        message=truncate(message, MAX_MESSAGE_LENGTH),
        since=before.since if before is not None and is_same else format_time(now),
        objects=facts.objects,
        nodes_ready=sum(set_.nodes_ready for set_ in facts.daemon_sets),
        nodes_total=sum(set_.nodes_total for set_ in facts.daemon_sets),
    )


def _readiness(facts: StateFacts) -> tuple[StateReadiness, Enum, str]:
    if facts.fault is not None:
        return (StateReadiness.NOT_READY, *facts.fault)
    if facts.left:
        names = listed(facts.left)
        return StateReadiness.NOT_READY, StateReason.BEING_REMOVED, f"still there: {names}"
    if not facts.is_enabled:
        return StateReadiness.DISABLED, StateReason.DISABLED, ""
    unready = [set_ for set_ in facts.daemon_sets if not set_.is_ready]
    if unready:
        text = " | ".join(item.text for item in unready)
        return StateReadiness.NOT_READY, StateReason.PODS_NOT_READY, text
    return StateReadiness.READY, StateReason.READY, ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OverallReadiness:
    """Whether an object is ready, for its two conditions."""

    reason: GoodReason | BadReason
    message: str = ""

    @property
    def is_good(self) -> bool:
        return isinstance(self.reason, GoodReason)


NFD_MISSING: Final = (
    "no node has labels of Node Feature Discovery, so that no GPU is found: install it, or label nodes with a GPU"
    " nvidia.com/gpu.present=true"
)
NO_GPU_NODES: Final = "no node has a GPU: no pods run until one does"


def overall_readiness(
    kind: str,
    states: "Sequence[StateStatus]",
    *,
    has_nfd_labels: bool,
    has_gpu_nodes: bool,
    unlabelled: "Collection[str]" = (),
    upgrading: "Sequence[str]" = (),
) -> OverallReadiness:
    """Return the overall on all states.

    Args:
        kind: of the object; messages name it.
        states: of the object.
        has_nfd_labels: whether a node has a label of Node Feature Discovery.
        has_gpu_nodes: whether a node has a GPU.
        unlabelled: nodes that have not got the labels yet by which DaemonSets select them.
        upgrading: nodes whose driver, an NVIDIADriver's, is being upgraded.
    """
    unready = [item for item in states if item.state is StateReadiness.NOT_READY]
    if unready:
        names, first = " ".join(item.name for item in unready), unready[0]
        detail = f". {first.name}: {first.message}" if first.message else ""
        text = f"{kind} is not ready; states not ready: [{names}]{detail}"
        return OverallReadiness(reason=BadReason.OPERAND_NOT_READY, message=text)
    if unlabelled:
        text = f"{kind} is not ready; nodes that have no labels of it yet: {listed(sorted(unlabelled))}"
        return OverallReadiness(reason=BadReason.OPERAND_NOT_READY, message=text)
    if upgrading:
        text = f"the driver is being upgraded on nodes {listed(upgrading)}"
        return OverallReadiness(reason=BadReason.DRIVER_NOT_READY, message=text)
    if not has_nfd_labels:
        return OverallReadiness(reason=GoodReason.NFD_LABELS_MISSING, message=NFD_MISSING)
    if not has_gpu_nodes:
        return OverallReadiness(reason=GoodReason.NO_GPU_NODES, message=NO_GPU_NODES)
    return OverallReadiness(reason=GoodReason.RECONCILED, message="all states are ready")


def with_unsupported(
    overall: OverallReadiness, kind: str, unsupported: "Mapping[str, str]"
) -> OverallReadiness:
    """Return the overall readiness where nothing is brought to some nodes, by name, with the cause of each."""
    if not unsupported or not overall.is_good:
        return overall
    why = next(iter(unsupported.values()))
    text = f"{kind} is not ready; nodes without its software: {listed(sorted(unsupported))}: {why}"
    return OverallReadiness(reason=BadReason.OS_UNSUPPORTED, message=text)


def operator_conditions(
    overall: OverallReadiness,
    *,
    current: "Iterable[Condition] | None",
    generation: int,
    now: "dt.datetime",
) -> "list[Condition]":
    """Return Ready and Error, which say the same."""
    current = list(current or ())
    reasons: dict[OperatorCondition, Enum] = {
        OperatorCondition.READY: overall.reason if overall.is_good else _Counterpart.ERROR,
        OperatorCondition.ERROR: _Counterpart.READY if overall.is_good else overall.reason,
    }
    return [
        new_condition(
            type_,
            reason,
            # The condition that is True has the words; the other one would only repeat them.
            overall.message if (type_ is OperatorCondition.READY) is overall.is_good else "",
            status=(type_ is OperatorCondition.READY) is overall.is_good,
            current=current,
            generation=generation,
            now=now,
        )
        for type_, reason in reasons.items()
    ]
