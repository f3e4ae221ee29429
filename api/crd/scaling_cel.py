"""Rules of the API server on `spec.autoscaling`; `api.crd.cel` says where they belong."""

from typing import Final

from api.crd.cel_rule import CelRule
from api.names import GROUP

MIN_IDLE_AFTER_S: Final = 30
"""Karpenter removes an empty node 15 s after this time, and a pod that was just created needs seconds to be bound."""
MAX_IDLE_AFTER_S: Final = 24 * 3600

_SCALES: Final = "has(self.autoscaling) && self.autoscaling.backend != 'none'"

POOL_RULES: Final = (
    CelRule(
        expression="!has(self.autoscaling) || self.allocation.mode == 'MIG'"
        " || !has(self.autoscaling.shapes) || self.autoscaling.shapes.all(s, !has(s.unitsPerDevice))",
        message="unitsPerDevice of a shape has a meaning in mode MIG only:"
        " remove it, or set allocation.mode to MIG",
        field="autoscaling.shapes",
        reason="FieldValueForbidden",
    ),
    CelRule(
        expression=f"!({_SCALES}) || self.reservation.whenExhausted != 'Reject'",
        message="whenExhausted Reject contradicts autoscaling, which adds nodes for pods that wait:"
        " set it to Pend, or remove autoscaling",
        field="reservation.whenExhausted",
    ),
    CelRule(
        expression=f"!({_SCALES}) || !self.assignment.requireAnnotation",
        message="requireAnnotation: true (the default) keeps the devices of new nodes out of a pool with autoscaling:"
        " set it to false, and select them by autoApproveSelector, deviceSelector or nodeSelector",
        field="assignment.requireAnnotation",
    ),
)
"""Rules of a pool's spec."""

AUTOSCALING_RULES: Final = (
    CelRule(
        expression="self.backend == 'none' || has(self.shapes) && self.shapes.size() > 0",
        message="shapes is required: name at least one kind of node, or set backend to none",
        field="shapes",
        reason="FieldValueRequired",
    ),
    CelRule(
        # By has(): of an optional list the API server does not know the longest length, and refuses the rule's cost.
        expression="!has(self.shapes)"
        " || self.shapes.all(one, self.shapes.exists_one(other, one.name == other.name))",
        message="two shapes have one name: choose another name",
        field="shapes",
    ),
    CelRule(
        expression="!has(self.maxUnits) || self.minUnits <= self.maxUnits",
        message="minUnits is more than maxUnits: raise maxUnits, or lower minUnits",
        field="minUnits",
    ),
    CelRule(
        expression="!has(self.maxUnits) || self.warmUnits <= self.maxUnits",
        message="warmUnits is more than maxUnits: raise maxUnits, or lower warmUnits",
        field="warmUnits",
    ),
    CelRule(
        # Six digits at most: a duration that overflows fails the rule without its message.
        expression="self.idleAfter.matches('^([0-9]{1,6}(h|m|s))+$')"
        f" && duration(self.idleAfter) >= duration('{MIN_IDLE_AFTER_S}s')"
        f" && duration(self.idleAfter) <= duration('{MAX_IDLE_AFTER_S}s')",
        message="idleAfter must be a duration from 30s to 24h, such as 5m or 1h",
        field="idleAfter",
    ),
    CelRule(
        expression="!has(self.budget) || !has(self.shapes)"
        " || self.shapes.all(one, has(one.pricePerHour))",
        message="a budget cannot be kept without the price of each shape: set pricePerHour of every shape",
        field="budget",
    ),
    CelRule(
        expression="!has(self.signalResource)"
        f" || self.signalResource.contains('/') && !self.signalResource.startsWith('{GROUP}/')",
        message="signalResource is no resource of another device plugin, such as nvidia.com/gpu:"
        " name the one that the autoscaler knows, or remove it",
        field="signalResource",
    ),
)

SHAPE_REQUIREMENT_RULES: Final = (
    CelRule(
        expression="!(self.operator in ['Gt', 'Gte', 'Lt', 'Lte']) || self.?values.orValue([]).size() == 1"
        " && self.values[0].matches('^[0-9]{1,9}$')",
        message="operators Gt, Gte, Lt and Lte need one value, a whole number such as 4",
        field="values",
    ),
    CelRule(
        expression="self.operator != 'In' || !has(self.minValues)"
        " || self.minValues <= self.?values.orValue([]).size()",
        message="minValues is more than there are values: name more values, or lower it",
        field="minValues",
    ),
)

SHAPE_RULES: Final = (
    CelRule(
        expression=f"!has(self.requirements) || self.requirements.all(r, !r.key.contains('{GROUP}/'))",
        message="requirements name a label of this control plane, which nodes do not have before they join:"
        " remove it",
        field="requirements",
    ),
)
