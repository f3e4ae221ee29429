"""What all kinds share: metadata, conditions, selectors.

Models are msgspec structs (docs/design/0001-models.md): frozen, keyword-only, Kubernetes' camelCase
on the wire, unknown fields ignored, defaults left out when encoded.
"""

from enum import Enum
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Model(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False
):
    """Base of every model of this package.

    Models are trees that were decoded, frozen: no cycle can be among them, so the collector need not
    look at them. Caches hold 40,000 devices, of ten models each.
    """


class OwnerReference(Model, frozen=True):
    """Who owns an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Model, frozen=True):
    """The part of `metadata` that we read."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None

    def annotation(self, key: str) -> str | None:
        """Return the annotation's value, or None."""
        return self.annotations.get(key) if self.annotations else None

    def label(self, key: str) -> str | None:
        """Return the label's value, or None."""
        return self.labels.get(key) if self.labels else None


class Condition(Model, frozen=True, omit_defaults=False):
    """`metav1.Condition`."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class SelectorOperator(Enum):
    """How a key's value is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    """Node affinity only, not in a label selector; as is `Lt`."""
    LT = "Lt"


class SelectorRequirement(Model, frozen=True):
    """One expression of a label selector or of a node selector term."""

    key: str
    operator: SelectorOperator
    values: list[str] | None = None

    def matches(self, labels: "Mapping[str, str]") -> bool:
        """Say whether the labels satisfy this, by Kubernetes' rules (an absent key is NotIn)."""
        value = labels.get(self.key)
        values = self.values or ()
        match self.operator:
            case SelectorOperator.IN:
                return value is not None and value in values
            case SelectorOperator.NOT_IN:
                return value is None or value not in values
            case SelectorOperator.EXISTS:
                return value is not None
            case SelectorOperator.DOES_NOT_EXIST:
                return value is None
            case SelectorOperator.GT | SelectorOperator.LT:
                return _compares(value, values, self.operator)


def _compares(value: str | None, values: "Sequence[str]", operator: SelectorOperator) -> bool:
    try:
        left, right = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator is SelectorOperator.GT else left < right


class LabelSelector(Model, frozen=True):
    """`metav1.LabelSelector`; an empty one selects everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None

    def matches(self, labels: "Mapping[str, str]") -> bool:
        """Say whether the labels are selected."""
        wanted = self.match_labels or {}
        return all(labels.get(key) == value for key, value in wanted.items()) and all(
            requirement.matches(labels) for requirement in self.match_expressions or ()
        )
