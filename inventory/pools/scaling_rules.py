"""Rules of `spec.autoscaling`: of its shapes, units and money, and of what the rest of the spec has to be for it."""

import re
from typing import TYPE_CHECKING, Final

from api.crd.scaling_cel import MAX_IDLE_AFTER_S, MIN_IDLE_AFTER_S
from api.field_errors import FieldError
from api.kinds.autoscaling import ScalingBackend
from api.kinds.gpupool import AllocationMode, WhenExhausted
from api.meta import COMPARISONS, SelectorOperator
from api.names import GROUP
from api.quantity import parse_duration_s
from api.text import listed, truncate
from inventory.pools.selector_rules import key_fault, named, requirement_faults

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from api.kinds.autoscaling import Autoscaling, NodeShape, ShapeRequirement
    from api.kinds.gpupool import GPUPoolSpec

_PATH: Final = "spec.autoscaling"
_WHOLE_NUMBER: Final = re.compile("[0-9]{1,9}")


def scaling_faults(spec: "GPUPoolSpec") -> "Iterator[FieldError]":
    """Yield the errors of a spec whose shape is right; none of a pool without autoscaling."""
    scaling = spec.autoscaling
    if scaling is None:
        return
    shapes = scaling.shapes or ()
    yield from _shape_faults(shapes, mode=spec.allocation.mode)
    yield from _unit_faults(scaling)
    yield from _budget_faults(scaling, shapes)
    if not MIN_IDLE_AFTER_S <= parse_duration_s(scaling.idle_after) <= MAX_IDLE_AFTER_S:
        text = f"{scaling.idle_after} is not between {MIN_IDLE_AFTER_S}s and 24h"
        yield FieldError(f"{_PATH}.idleAfter", text)
    yield from _resource_faults(scaling.signal_resource)
    if scaling.backend is ScalingBackend.NONE:
        return
    if not shapes:
        text = "is required: name at least one kind of node, or set backend to none"
        yield FieldError(f"{_PATH}.shapes", text)
    if spec.allocation.mig:
        text = "several profiles contradict spec.autoscaling: make a pool for each, or remove autoscaling"
        yield FieldError("spec.allocation.mig", text)
    if spec.reservation.when_exhausted is WhenExhausted.REJECT:
        text = (
            "Reject contradicts spec.autoscaling, which adds nodes for pods that wait: set it to Pend, or remove"
            " autoscaling"
        )
        yield FieldError("spec.reservation.whenExhausted", text)
    if spec.assignment.require_annotation:
        text = (
            "true (the default) keeps the devices of new nodes out of a pool with spec.autoscaling: set it to false,"
            " and select them by autoApproveSelector, deviceSelector or nodeSelector"
        )
        yield FieldError("spec.assignment.requireAnnotation", text)


def scaling_warnings(spec: "GPUPoolSpec") -> "Iterator[str]":
    """Yield what a valid spec asks for without effect."""
    scaling = spec.autoscaling
    if scaling is None or scaling.backend is not ScalingBackend.NONE:
        return
    for field, units in (("minUnits", scaling.min_units), ("warmUnits", scaling.warm_units)):
        if units:
            yield f"{_PATH}.{field}: {units} has no effect: with backend none no node is added"


def _shape_faults(shapes: "Sequence[NodeShape]", *, mode: AllocationMode) -> "Iterator[FieldError]":
    names: set[str] = set()
    for number, shape in enumerate(shapes):
        where = f"{_PATH}.shapes[{number}]"
        if shape.name in names:
            text = f'"{shape.name}" is the name of an earlier shape: choose another one'
            yield FieldError(f"{where}.name", text)
        names.add(shape.name)
        if shape.units_per_device is not None and mode is not AllocationMode.MIG:
            text = f"has a meaning in mode MIG only, the mode is {mode.value}: remove it"
            yield FieldError(f"{where}.unitsPerDevice", text)
        for index, requirement in enumerate(shape.requirements or ()):
            place = f"{where}.requirements[{index}]"
            yield from _requirement_faults(requirement, place)
            if f"{GROUP}/" in requirement.key:
                text = (
                    f"{truncate(requirement.key)} is a label of this control plane, which nodes do not have before they"
                    " join: remove it"
                )
                yield FieldError(f"{place}.key", text)


def _requirement_faults(requirement: "ShapeRequirement", path: str) -> "Iterator[FieldError]":
    values = requirement.values or []
    if requirement.operator in COMPARISONS:
        if len(values) != 1 or not _WHOLE_NUMBER.fullmatch(values[0]):
            text = (
                f"operator {requirement.operator.value} needs one value, a whole number such as 4"
            )
            yield FieldError(f"{path}.values", text)
        yield from named(key_fault(requirement.key), f"{path}.key")
        return
    yield from requirement_faults(requirement, path)
    least = requirement.min_values or 0
    if requirement.operator is SelectorOperator.IN and least > len(values):
        text = f"{least} is more than the {len(values)} values: name more values, or lower it"
        yield FieldError(f"{path}.minValues", text)


def _unit_faults(scaling: "Autoscaling") -> "Iterator[FieldError]":
    most = scaling.max_units
    if most is None:
        return
    for field, units in (("minUnits", scaling.min_units), ("warmUnits", scaling.warm_units)):
        if units > most:
            text = f"{units} is more than maxUnits, {most}: raise maxUnits, or lower it"
            yield FieldError(f"{_PATH}.{field}", text)


def _budget_faults(scaling: "Autoscaling", shapes: "Sequence[NodeShape]") -> "Iterator[FieldError]":
    budget = scaling.budget
    if budget is None:
        return
    if budget == type(budget)():
        yield FieldError(f"{_PATH}.budget", "is empty: set perHour or perDay, or remove it")
    unpriced = [shape.name for shape in shapes if shape.price_per_hour is None]
    if unpriced:
        text = f"cannot be kept without the price of each shape: set pricePerHour of {listed(unpriced)}"
        yield FieldError(f"{_PATH}.budget", text)


def _resource_faults(resource: str | None) -> "Iterator[FieldError]":
    if resource is None:
        return
    path = f"{_PATH}.signalResource"
    yield from named(key_fault(resource), path)
    if "/" not in resource or resource.startswith(f"{GROUP}/"):
        text = (
            f'"{truncate(resource)}" is no resource of another device plugin, such as nvidia.com/gpu: name the one that'
            " the autoscaler knows, or remove it"
        )
        yield FieldError(path, text)
