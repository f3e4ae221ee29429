"""`spec.autoscaling` of a pool as parameters of planning; stored objects that newer rules refuse are read, too."""

import datetime as dt
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from api.kinds.autoscaling import AMOUNT_PATTERN, DEFAULT_IDLE_AFTER, Autoscaling, Budget, NodeShape
from api.meta import SelectorOperator
from api.quantity import parse_duration_s
from autoscaling.scaling_model import DEVICES_WITHIN, MICRO, ScalingParameters, ShapeParameters
from pool.compute_resources import CPU, MEMORY, allocatable
from pool.layout import most_units_of_a_device
from pool.model import PoolFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.kinds.gpupool import GPUPool

_AMOUNT: Final = re.compile(AMOUNT_PATTERN)


def scaling_parameters(pool: "GPUPool", facts: PoolFacts) -> ScalingParameters | None:
    """Return the parameters of a pool; None where it has none.

    What cannot be read is left out, and `terms_faults` says so.
    """
    spec = pool.spec.autoscaling
    if spec is None:
        return None
    budget = spec.budget or Budget()
    return ScalingParameters(
        pool=facts,
        generation=pool.metadata.generation or 0,
        backend=spec.backend,
        shapes=tuple(_shape(shape, facts) for shape in spec.shapes or ()),
        taints=pool.taints,
        node_selector=pool.spec.node_selector,
        min_units=spec.min_units,
        warm_units=spec.warm_units,
        max_units=spec.max_units,
        max_in_flight=spec.max_in_flight,
        max_nodes_per_hour=spec.max_nodes_per_hour,
        per_hour_micro=_micro(budget.per_hour),
        per_day_micro=_micro(budget.per_day),
        idle_after_s=_seconds(spec.idle_after) or parse_duration_s(DEFAULT_IDLE_AFTER),
        devices_within=DEVICES_WITHIN + dt.timedelta(minutes=spec.driver_minutes),
        signal_resource=spec.signal_resource or "",
        product=_only_product(pool),
    )


def terms_faults(pool: "GPUPool") -> tuple[str, ...]:
    """Return what of a stored pool's `spec.autoscaling` is not used as it stands, each with its cure."""
    spec = pool.spec.autoscaling
    return () if spec is None else tuple(_faults(spec))


def _faults(spec: Autoscaling) -> "Iterator[str]":
    shapes = spec.shapes or ()
    if not shapes:
        yield "spec.autoscaling.shapes is empty, so no node is asked for: name a shape"
    names = [shape.name for shape in shapes]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f'spec.autoscaling.shapes has "{name}" more than once: only the first is used for nodes on their way'
    budget = spec.budget or Budget()
    amounts = {
        "spec.autoscaling.budget.perHour": budget.per_hour,
        "spec.autoscaling.budget.perDay": budget.per_day,
    } | {f"pricePerHour of shape {shape.name}": shape.price_per_hour for shape in shapes}
    for field, amount in amounts.items():
        if amount is not None and _micro(amount) is None:
            yield f'{field} is "{str(amount)[:32]}", which is no amount and is not considered: write a number such as 12.50'
    for shape in shapes:
        for field, quantity in (("cpu", shape.cpu), ("memory", shape.memory)):
            if quantity is not None and None in allocatable({CPU: quantity, MEMORY: quantity}):
                yield f'{field} of shape {shape.name} is "{str(quantity)[:32]}", which is no quantity and is not considered'
    if _seconds(spec.idle_after) is None:
        yield f'spec.autoscaling.idleAfter is "{spec.idle_after[:32]}", which is no duration: {DEFAULT_IDLE_AFTER} is used'
    if spec.max_units is not None and spec.min_units > spec.max_units:
        yield (
            f"spec.autoscaling.minUnits {spec.min_units} is above maxUnits {spec.max_units}, which is kept: "
            "raise maxUnits or lower minUnits"
        )


def _shape(shape: NodeShape, facts: PoolFacts) -> ShapeParameters:
    per_device = most_units_of_a_device(facts)
    if facts.mig_profile and shape.units_per_device is not None:
        per_device = shape.units_per_device
    cpu_milli, _ = allocatable({CPU: shape.cpu} if shape.cpu is not None else None)
    _, memory_mib = allocatable({MEMORY: shape.memory} if shape.memory is not None else None)
    requirements = tuple(shape.requirements or ())
    return ShapeParameters(
        name=shape.name,
        node_pool=shape.node_pool or facts.name,
        devices=shape.devices,
        units_per_device=per_device,
        requirements=requirements,
        labels={
            requirement.key: requirement.values[0]
            for requirement in requirements
            if requirement.operator is SelectorOperator.IN
            and requirement.values
            and len(requirement.values) == 1
        },
        compute_capability=shape.compute_capability or "",
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        price_micro=_micro(shape.price_per_hour),
    )


def _only_product(pool: "GPUPool") -> str:
    include = pool.spec.device_selector.include
    products = (include.products if include is not None else None) or ()
    return products[0] if len(products) == 1 else ""


def _micro(amount: int | str | None) -> int | None:
    """Return an amount in millionths; None for none, and for what is no amount."""
    if amount is None or not _AMOUNT.match(str(amount)):
        return None
    return int(Decimal(amount) * MICRO)


def _seconds(duration: str) -> int | None:
    try:
        return parse_duration_s(duration)
    except ValueError:
        return None
