"""LabelRequirements on labels as Karpenter combines them: for each key the values that it may have."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, final

from api.foreign.karpenter import CAPACITY_TYPE_LABEL
from simulator.karpenter.instance_types import (
    ARCH_LABEL,
    INSTANCE_TYPE_LABEL,
    OS_LABEL,
    ZONE_LABEL,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

WELL_KNOWN = frozenset({INSTANCE_TYPE_LABEL, ZONE_LABEL, ARCH_LABEL, OS_LABEL, CAPACITY_TYPE_LABEL})
"""Labels that instance types have; a NodePool need not name them."""


@final
@dataclass(frozen=True, slots=True)
class LabelValues:
    """Values that a label may have: those in the set, or with `is_complement` all others."""

    values: frozenset[str] = frozenset()
    is_complement: bool = True
    above: int | None = None
    below: int | None = None
    may_be_absent: bool = False

    @classmethod
    def of(cls, operator: str, values: "Iterable[str]") -> Self:
        """Return what an operator of a node selector, or Karpenter's Gte and Lte, allows."""
        listed = tuple(values)
        match operator:
            case "In":
                return cls(frozenset(listed), is_complement=False)
            case "NotIn":
                return cls(frozenset(listed), may_be_absent=True)
            case "Exists":
                return cls()
            case "DoesNotExist":
                return cls(is_complement=False, may_be_absent=True)
            case "Gt" | "Gte":
                return cls(above=int(listed[0]) - (operator == "Gte"))
            case "Lt" | "Lte":
                return cls(below=int(listed[0]) + (operator == "Lte"))
            case _:
                raise ValueError(f'"{operator}" is not an operator')

    def allows(self, value: str) -> bool:
        if (value in self.values) is self.is_complement:
            return False
        if self.above is None and self.below is None:
            return True
        if not value.lstrip("-").isdigit():
            return False
        number = int(value)
        return (self.above is None or number > self.above) and (
            self.below is None or number < self.below
        )

    def and_(self, other: "LabelValues") -> "LabelValues":
        """Return the values that both allow."""
        above = [item for item in (self.above, other.above) if item is not None]
        below = [item for item in (self.below, other.below) if item is not None]
        both = functools.partial(
            LabelValues,
            above=max(above, default=None),
            below=min(below, default=None),
            may_be_absent=self.may_be_absent and other.may_be_absent,
        )
        if self.is_complement and other.is_complement:
            return both(self.values | other.values)
        listed, rest = (other, self) if self.is_complement else (self, other)
        kept = frozenset(value for value in listed.values if rest.allows(value))
        return both(kept, is_complement=False)

    @property
    def is_empty(self) -> bool:
        return not self.is_complement and not self.values and not self.may_be_absent


@final
@dataclass(frozen=True, slots=True)
class LabelRequirements:
    """LabelRequirements on labels, by key."""

    by_key: "Mapping[str, LabelValues]"

    @classmethod
    def of(cls, expressions: "Iterable[Mapping[str, Any]]") -> Self:
        """Return those of a list of expressions, which must all hold."""
        found: dict[str, LabelValues] = {}
        for expression in expressions:
            wanted = LabelValues.of(expression["operator"], expression.get("values") or ())
            key = expression["key"]
            found[key] = found[key].and_(wanted) if key in found else wanted
        return cls(found)

    @classmethod
    def of_labels(cls, labels: "Mapping[str, str]") -> Self:
        return cls({key: LabelValues.of("In", (value,)) for key, value in labels.items()})

    def and_(self, other: "LabelRequirements") -> "LabelRequirements":
        combined = dict(self.by_key)
        for key, wanted in other.by_key.items():
            combined[key] = combined[key].and_(wanted) if key in combined else wanted
        return LabelRequirements(combined)

    def allow(self, labels: "Mapping[str, str]") -> bool:
        """Return whether labels satisfy them; an absent label only those that may be absent."""
        return all(
            wanted.allows(labels[key]) if key in labels else wanted.may_be_absent
            for key, wanted in self.by_key.items()
        )

    def conflict_with(self, pod: "LabelRequirements") -> str:
        """Return why a pod's requirements cannot be combined with these of a NodePool; empty if they can."""
        for key, wanted in sorted(pod.by_key.items()):
            own = self.by_key.get(key)
            if own is None and key not in WELL_KNOWN and not wanted.may_be_absent:
                return f'incompatible requirements, label "{key}" does not have known values'
            if own is not None and own.and_(wanted).is_empty:
                return f"incompatible requirements, key {key} has no value that both allow"
        return ""

    def custom_labels(self, any_value: str) -> "Iterator[tuple[str, str]]":
        """Yield labels of a new NodeClaim: a value of each key that no instance type has; any one where many are allowed."""
        for key, wanted in self.by_key.items():
            if key in WELL_KNOWN or wanted.is_empty:
                continue
            if not wanted.is_complement and wanted.values:
                yield key, min(wanted.values)
            elif wanted.is_complement and not wanted.may_be_absent:
                yield key, any_value

    def expressions(self) -> list[dict[str, Any]]:
        """Return them as expressions of a NodeClaim."""
        found: list[dict[str, Any]] = []
        for key, wanted in sorted(self.by_key.items()):
            if not wanted.is_complement:
                operator = "In" if wanted.values else "DoesNotExist"
            else:
                operator = "NotIn" if wanted.values else "Exists"
            one: dict[str, Any] = {"key": key, "operator": operator}
            if wanted.values:
                one["values"] = sorted(wanted.values)
            found.append(one)
        return found
