"""The record of what the control plane set on a node for a ClusterPolicy: keys of labels and annotations, with their values.

It is an annotation of the node. A key belongs to the control plane as long as it has the recorded value, or one by which
an operand is paused: a client that writes another value takes the key over, and it is not removed again. Only keys that
operands have are read from the record, so an edited record does not make the control plane remove others.

By the record `adopt`, which `operands adopt` sets, labels that the GPU Operator set become ours, without any of them going away.
"""

from typing import TYPE_CHECKING, Final

from api.driver_upgrade import DEPLOY_LABEL_PREFIX, DEPLOYED, PAUSED_PREFIX
from api.names import (
    DRIVER_OWNER_LABEL,
    MIG_CONFIG_LABEL,
    NVIDIA_PRESENT_LABEL,
    UPGRADE_ENABLED_ANNOTATION,
)
from operands.nvidia.node_software import SOFTWARE_LABELS
from operands.nvidia.policy_states import POLICY_STATES

if TYPE_CHECKING:
    from collections.abc import Mapping

ADOPT: Final = "adopt"
"""Record that stands for all labels and annotations which have a value that we could have given them."""
ALL_DISABLED: Final = "all-disabled"
"""Layout without MIG instances."""
CLIENT: Final = "client"
"""Operand of users' own pods; the control plane has no state of it."""
OPERANDS: Final = tuple(sorted({CLIENT, *(state.deploy_label for state in POLICY_STATES)} - {""}))
DEPLOY_LABELS: Final = tuple(f"{DEPLOY_LABEL_PREFIX}{name}" for name in OPERANDS)
DERIVED_LABELS: Final = (NVIDIA_PRESENT_LABEL, DRIVER_OWNER_LABEL, *SOFTWARE_LABELS)
"""What they say follows from the node and the drivers: another value over a recorded one is put back."""
LABELS: Final = (*DEPLOY_LABELS, *DERIVED_LABELS, MIG_CONFIG_LABEL)
"""All that may be recorded, but for one annotation."""
KEYS: Final = (*LABELS, UPGRADE_ENABLED_ANNOTATION)
_RECORDED_KEYS: Final = frozenset(KEYS)
_DEPLOY: Final = frozenset(DEPLOY_LABELS)
_OUR_VALUES: Final = {MIG_CONFIG_LABEL: ALL_DISABLED, UPGRADE_ENABLED_ANNOTATION: DEPLOYED}
_SOFTWARE_LABELS: Final = frozenset(SOFTWARE_LABELS)


def parse_record(annotation: str) -> dict[str, str]:
    """Return the recorded value of each key; anything unreadable is no record.

    Labels of operands of a later version are kept: they stay ours.
    """
    found: dict[str, str] = {}
    for part in annotation.split(","):
        key, _, value = part.partition("=")
        if key in _RECORDED_KEYS or key.startswith(DEPLOY_LABEL_PREFIX):
            found[key] = value or DEPLOYED
    return found


def adopted(values: "Mapping[str, str]") -> dict[str, str]:
    """Return the record of a node whose labels for operands become ours; those that keep an operand away do not."""
    found: dict[str, str] = {}
    for key in KEYS:
        value = values.get(key, "")
        if key in _DEPLOY and (value == DEPLOYED or value.startswith(PAUSED_PREFIX)):
            found[key] = DEPLOYED
        elif value and (key in DERIVED_LABELS or value == _OUR_VALUES.get(key)):
            found[key] = value
    return found


def record_text(recorded: "Mapping[str, str]") -> str:
    """Return the annotation's value: equal for equal records; `true` is left out."""
    return ",".join(
        key if value == DEPLOYED else f"{key}={value}" for key, value in sorted(recorded.items())
    )


def is_ours(key: str, value: str, recorded: "Mapping[str, str]") -> bool:
    """Say whether a key of a node with this value may be changed or removed."""
    recorded_value = recorded.get(key)
    if recorded_value is None or not value:
        return False
    if key in _SOFTWARE_LABELS or value == recorded_value:
        return True
    return key in _DEPLOY and value.startswith(PAUSED_PREFIX)


def is_recorded(annotation: str, key: str) -> bool:
    """Say whether a key is in the record, read as rarely as possible."""
    return key in annotation and key in parse_record(annotation)
