"""Types that all kinds share: metadata, conditions, selectors.

Models are msgspec structs (docs/design/0001-models.md): frozen, keyword-only, Kubernetes' camelCase
on the wire, unknown fields ignored, defaults left out when encoded.
"""

import functools
import re
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Model(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False
):
    """Base of every model of this package.

    Models are decoded, frozen trees without cycles, so the garbage collector need not track them.
    Caches hold 40,000 devices, of ten models each.
    """


class SparseModel(Model, frozen=True):
    """An object inside a kind that stays absent where its author leaves it out.

    Its schema has no default, as far as the kind's own project publishes none. The model has one: an absent
    object decodes to one without fields, so that readers meet no None.
    """


class OwnerReference(Model, frozen=True):
    """The owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Model, frozen=True):
    """The part of `metadata` that is read."""

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
        return self.annotations.get(key) if self.annotations else None

    def label(self, key: str) -> str | None:
        return self.labels.get(key) if self.labels else None


class PartialObjectMetadata(Model, frozen=True):
    """`metav1.PartialObjectMetadata`: of an answer whose other fields are not needed."""

    metadata: ObjectMeta = ObjectMeta()


class Condition(Model, frozen=True, omit_defaults=False):
    """`metav1.Condition`."""

    type: str
    """Type of the condition, in CamelCase."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    reason: str = ""
    """Cause of the last transition, in CamelCase; for programs."""
    message: str = ""
    """Details of the last transition, for people."""
    last_transition_time: str = ""
    """Time of the last change of `status`."""
    observed_generation: int = 0
    """`metadata.generation` of the object that the condition describes."""


class SelectorOperator(Enum):
    """Comparison of a key's value."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    """Node affinity only, not in a label selector; as is `Lt`."""
    LT = "Lt"
    GTE = "Gte"
    """Karpenter's requirements only; as is `Lte`."""
    LTE = "Lte"
    UNKNOWN = ""
    """Operator of a later version of Kubernetes. It matches nothing; our own kinds refuse it."""

    @classmethod
    def _missing_(cls, _value: object) -> "SelectorOperator":
        return cls.UNKNOWN


COMPARISONS: Final = frozenset(
    {SelectorOperator.GT, SelectorOperator.LT, SelectorOperator.GTE, SelectorOperator.LTE}
)
"""Operators that compare the label's number with the only value."""


class SelectorRequirement(Model, frozen=True):
    """One expression of a label selector or of a node selector term."""

    key: str
    """Key of the label."""
    operator: SelectorOperator
    values: list[str] | None = None
    """Values of In and NotIn; empty with Exists and DoesNotExist."""

    def matches(self, labels: "Mapping[str, str]") -> bool:
        """Return whether the labels satisfy it, by Kubernetes' rules (an absent key is NotIn)."""
        return self.test()(labels.get(self.key))

    def test(self) -> "Callable[[str | None], bool]":
        """Return a predicate on the value of the key, or on its absence.

        For many values: everything that depends on the expression alone is computed here.
        """
        values = self.values or ()
        match self.operator:
            case SelectorOperator.IN:
                return frozenset(values).__contains__
            case SelectorOperator.NOT_IN:
                return _not_in(frozenset(values))
            case SelectorOperator.EXISTS:
                return _is_there
            case SelectorOperator.DOES_NOT_EXIST:
                return _is_absent
            case SelectorOperator.UNKNOWN:
                return _matches_nothing
            case _:
                return _comparison(values, self.operator)


def _is_there(value: str | None) -> bool:
    return value is not None


def _is_absent(value: str | None) -> bool:
    return value is None


def _matches_nothing(_value: str | None) -> bool:
    return False


def _not_in(values: frozenset[str]) -> "Callable[[str | None], bool]":
    return lambda value: value not in values


def _comparison(
    values: "Sequence[str]", operator: SelectorOperator
) -> "Callable[[str | None], bool]":
    """Compare as Kubernetes does: a value that is no int64 is neither greater nor less."""
    bound = _int64(values[0]) if len(values) == 1 else None
    if bound is None:
        return _matches_nothing
    if operator in {SelectorOperator.GT, SelectorOperator.GTE}:
        least = bound + (operator is SelectorOperator.GT)
        return lambda value: (number := _number(value)) is not None and number >= least
    most = bound - (operator is SelectorOperator.LT)
    return lambda value: (number := _number(value)) is not None and number <= most


_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MOST_DIGITS: Final = 19


def _int64(text: str | None) -> int | None:
    """Return the number as Go's ParseInt reads it, or None if it is none or out of range."""
    if text is None or _INTEGER.fullmatch(text) is None:
        return None
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > _MOST_DIGITS:
        return None
    number = int(digits or "0") * (-1 if text[0] == "-" else 1)
    return number if -(2**63) <= number < 2**63 else None


_number = functools.lru_cache(maxsize=4096)(_int64)
"""Pattern of a label's value, which is short, and the same on many nodes and for many expressions."""


def refuse_unknown_operators(requirements: "Sequence[SelectorRequirement] | None") -> None:
    """Refuse what a selector of ours would have to guess: an object with it is unread, not one that selects nothing.

    Raises:
        ValueError: an operator is of no version that is known.
    """
    for requirement in requirements or ():
        if requirement.operator is SelectorOperator.UNKNOWN:
            raise ValueError(f"unknown operator of the expression on {requirement.key}")


class LabelSelector(Model, frozen=True):
    """`metav1.LabelSelector`; an empty one selects everything."""

    match_labels: dict[str, str] | None = None
    """Labels that must have these values."""
    match_expressions: list[SelectorRequirement] | None = None
    """Expressions that must all be true."""

    def __post_init__(self) -> None:
        refuse_unknown_operators(self.match_expressions)

    def matches(self, labels: "Mapping[str, str]") -> bool:
        required = self.match_labels or {}
        return all(labels.get(key) == value for key, value in required.items()) and all(
            requirement.matches(labels) for requirement in self.match_expressions or ()
        )


def compared(version: str, other: str) -> int | None:
    """Return less than 0, 0 or more than 0: the first resourceVersion is older, the same or newer.

    Versions of one resource can be compared as numbers, by the API's contract since Kubernetes 1.35
    (KEP-5504). None if they differ and one is not a number.
    """
    if version.isdecimal() and other.isdecimal():
        return int(version) - int(other)
    return 0 if version == other else None
