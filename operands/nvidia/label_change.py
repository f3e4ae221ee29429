"""The change that makes the labels of a node the desired ones: values, notes, and who has which label.

What is desired is decided in `operands.nvidia.deploy_labels`; here the rules of several writers hold. A value of another
writer stays. One of ours follows the desired value; where another writer took one away, or gave a derived one another value, it is
put back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from api.driver_upgrade import DEPLOYED, PAUSED_PREFIX
from api.names import (
    DEPLOY_LABELS_ANNOTATION,
    MIG_CONFIG_LABEL,
    PRESENT_LABEL,
    UPGRADE_ENABLED_ANNOTATION,
)
from api.text import truncate
from api.vendor import NFD_PREFIX, NFD_PRESENT_LABELS
from operands.nvidia.deploy_record import (
    ADOPT,
    DEPLOY_LABELS,
    DERIVED_LABELS,
    KEYS,
    LABELS,
    adopted,
    is_ours,
    parse_record,
    record_text,
)
from operands.nvidia.node_software import UNKNOWN_SYSTEM

if TYPE_CHECKING:
    from api.kinds.gpunodeinventory import NodeSystem
    from api.kinds.nvidia.sandbox_operands import WorkloadType

_TRUE: Final = "true"
_SET_ONCE: Final = frozenset({MIG_CONFIG_LABEL, UPGRADE_ENABLED_ANNOTATION})
"""What others set there is their choice, and nothing to report."""


class LabelReason(Enum):
    """Why a node does not have a label that it would have, or has one that it would not have."""

    WORKLOAD_UNKNOWN = "WorkloadTypeUnknown"
    """The workload type that the node's label names does not exist."""
    WORKLOAD_IGNORED = "WorkloadTypeIgnored"
    """The policy serves no virtual machines, so the node's workload type is container."""
    OPERANDS_OFF = "OperandsSwitchedOff"
    """A label of the node keeps all operands away."""
    OS_UNSUPPORTED = "OperatingSystemUnsupported"
    """No operands are brought to nodes of this system."""
    IN_POOL = "DeviceInPool"
    """A device of the node is in a GPUPool, which has a device plugin and a MIG manager of its own."""
    MIG_UNKNOWN = "MIGCapabilityUnknown"
    """No label says whether the devices of the node can be partitioned."""
    NOT_MIG_CAPABLE = "NotMIGCapable"
    """The devices of the node cannot be partitioned."""
    SWITCHED_OFF = "SwitchedOffOnNode"
    """Another writer gave the label another value."""
    PAUSED = "Paused"
    """The operand is away for a change of the driver or of MIG instances."""
    FOREIGN = "LabelOfAnotherWriter"
    """Another writer set the label, and it stays."""
    OWNER_CONFLICT = "ConflictingNodeSelector"
    """Several NVIDIADrivers would own the node."""
    NO_OWNER = "NoDriverOwner"
    """No NVIDIADriver selects the node."""
    FEATURES_MISSING = "FeatureLabelsMissing"
    """Labels of feature discovery are missing; the node keeps its labels."""


_REPORTED: Final = frozenset(
    {
        LabelReason.WORKLOAD_UNKNOWN,
        LabelReason.OS_UNSUPPORTED,
        LabelReason.FOREIGN,
        LabelReason.OWNER_CONFLICT,
    }
)


class Hold(Enum):
    """A removal that waits, since its cause may pass."""

    POLICY = "policy"
    """No ClusterPolicy is known, and none was seen to be deleted."""
    DEVICE = "device"
    """Feature discovery shows no GPU."""
    OWNER = "owner"
    """The NVIDIADriver of the node selects labels of feature discovery that are missing."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelNote:
    """Why one label is, or is not, on the node."""

    key: str
    reason: LabelReason
    message: str
    """Names the field, and the cure where there is one."""

    @property
    def is_reported(self) -> bool:
        """Whether it is a mistake, which an Event reports."""
        return self.reason in _REPORTED


def has_gpu(labels: Mapping[str, str]) -> bool:
    """Say whether feature discovery or our inventory finds a GPU on a node of these labels."""
    return any(labels.get(key) == _TRUE for key in (PRESENT_LABEL, *NFD_PRESENT_LABELS))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledNode:
    """What decides about the labels of a node."""

    labels: Mapping[str, str]
    recorded: str = ""
    """The annotation `DEPLOY_LABELS_ANNOTATION`."""
    upgrade_enabled: str = ""
    """The annotation `UPGRADE_ENABLED_ANNOTATION`."""
    runtime_version: str = ""
    kernel_version: str = ""
    system: "NodeSystem" = UNKNOWN_SYSTEM
    """As the node agent reports it."""
    is_in_pool: bool = False
    """Whether a device of it is in a GPUPool."""

    def value(self, key: str) -> str:
        """Return the value of a label, or of the one annotation; empty without it."""
        return (
            self.upgrade_enabled if key == UPGRADE_ENABLED_ANNOTATION else self.labels.get(key, "")
        )

    @property
    def record(self) -> dict[str, str]:
        """Return what is ours by the record, with its values."""
        if self.recorded != ADOPT:
            return parse_record(self.recorded)
        return adopted({**self.labels, UPGRADE_ENABLED_ANNOTATION: self.upgrade_enabled})

    @property
    def has_gpu(self) -> bool:
        """Whether feature discovery or our inventory finds a GPU."""
        return has_gpu(self.labels)

    @property
    def has_features(self) -> bool:
        return any(key.startswith(NFD_PREFIX) for key in self.labels)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelChange:
    """The change of one node, and why it is not more."""

    labels: Mapping[str, str | None] = field(default_factory=dict)
    """None removes a label."""
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    notes: tuple[LabelNote, ...] = ()
    restored: tuple[str, ...] = ()
    """Keys of ours that another writer removed or changed, and that are put back."""
    held: frozenset[Hold] = frozenset()
    """Removals that wait."""
    workload: "WorkloadType | None" = None
    """None where the node gets no operands."""

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.labels or self.annotations)


@final
@dataclass(slots=True)
class DesiredLabels:
    """The labels and annotations of a node as they are to be; others that the record has are removed."""

    values: dict[str, str] = field(default_factory=dict)
    is_removal: bool = False
    """Whether the node is to have none, so that there is nothing to say of labels of others."""
    kept: set[str] = field(default_factory=set)
    """Keys that stay as they are."""
    notes: list[LabelNote] = field(default_factory=list)
    held: set[Hold] = field(default_factory=set)
    workload: "WorkloadType | None" = None

    def note(self, key: str, reason: LabelReason, message: str) -> None:
        self.notes.append(LabelNote(key=key, reason=reason, message=message))


def change_of(node: LabelledNode, desired: DesiredLabels) -> LabelChange:
    """Compare a node with its desired labels."""
    recorded = node.record
    changed: dict[str, str | None] = {}
    record: dict[str, str] = {}
    restored: list[str] = []
    notes = list(desired.notes)
    for key in KEYS:
        value, desired_value = node.value(key), desired.values.get(key)
        if key in desired.kept:
            final, owned = value, recorded.get(key) if is_ours(key, value, recorded) else None
        else:
            final, owned = _resolve(key, value, desired_value, recorded=recorded)
            if desired_value is not None and final != value and recorded.get(key, value) != value:
                restored.append(key)
            note = None if desired.is_removal else _note(key, final, desired_value)
            notes += [note] if note is not None else []
        if owned is not None:
            record[key] = owned
        # Of a label of ours that another writer emptied nothing stays either.
        if final != value or (not final and key in recorded and key in node.labels):
            changed[key] = final or None
    later = sorted(recorded.keys() - set(KEYS))
    _carry_over(later, node, record=record, changed=changed, is_removal=desired.is_removal)
    text = record_text(record)
    annotations: dict[str, str | None] = {}
    if text != node.recorded:
        annotations[DEPLOY_LABELS_ANNOTATION] = text or None
    if UPGRADE_ENABLED_ANNOTATION in changed:
        annotations[UPGRADE_ENABLED_ANNOTATION] = changed[UPGRADE_ENABLED_ANNOTATION]
    return LabelChange(
        labels={key: changed[key] for key in (*LABELS, *later) if key in changed},
        annotations=annotations,
        notes=tuple(notes),
        restored=tuple(restored),
        held=frozenset(desired.held),
        workload=desired.workload,
    )


def _carry_over(
    later: Sequence[str],
    node: LabelledNode,
    *,
    record: dict[str, str],
    changed: dict[str, str | None],
    is_removal: bool,
) -> None:
    """Leave labels of operands of a later version as they are, and recorded; they are removed with all others."""
    recorded = node.record
    for key in later:
        if not is_removal:
            record[key] = recorded[key]
        elif is_ours(key, node.labels.get(key, ""), recorded):
            changed[key] = None


def _resolve(
    key: str, value: str, desired_value: str | None, *, recorded: Mapping[str, str]
) -> tuple[str, str | None]:
    """Return the value of a key after the change, and what the record says of it; None: it is not ours."""
    is_own = is_ours(key, value, recorded)
    if desired_value is None:
        return ("", None) if is_own else (value, None)
    if not value:
        return desired_value, desired_value
    if key not in DERIVED_LABELS:
        # An operator's tools pause it, and its users override it.
        return value, (recorded[key] if is_own else None)
    return (desired_value, desired_value) if key in recorded else (value, None)


def _note(key: str, value: str, desired_value: str | None) -> LabelNote | None:
    """Say why a label has another value than the desired one, if it has."""
    if value == (desired_value or "") or key in _SET_ONCE:
        return None
    found = f"label {key}={truncate(value)}"
    if desired_value is None:
        if key not in DEPLOY_LABELS or value != DEPLOYED:
            return None
        message = f"{found} of another writer brings an operand that the node is not to have: remove the label"
        return LabelNote(key=key, reason=LabelReason.FOREIGN, message=message)
    if key in DERIVED_LABELS:
        message = (
            f"{found} of another writer stays, and {truncate(desired_value)} would be right: remove the label, and it is"
            " set so"
        )
        return LabelNote(key=key, reason=LabelReason.FOREIGN, message=message)
    if value.startswith(PAUSED_PREFIX):
        message = f"{found} keeps the operand away until the change on the node is over"
        return LabelNote(key=key, reason=LabelReason.PAUSED, message=message)
    message = f"{found} keeps the operand away; remove the label to have it"
    return LabelNote(key=key, reason=LabelReason.SWITCHED_OFF, message=message)
