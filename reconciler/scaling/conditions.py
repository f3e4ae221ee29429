"""Conditions of a pool's autoscaling, from what was seen and planned. Pure."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from api.status_conditions import new_condition
from api.text import listed
from autoscaling.request_lifecycle import foreign_claims
from autoscaling.scaling_model import WaitReason
from telemetry.conditions import (
    BackendReady,
    NodePoolValid,
    PoolScalingCondition,
    ScalingUnlimited,
)

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from enum import Enum

    from api.meta import Condition
    from autoscaling.scaling_model import (
        ObservedRequest,
        PodWait,
        ScalingPlan,
        ShapeHistory,
        Supply,
    )

_LIMITS: Final = (
    WaitReason.MAX_NODES_PER_HOUR,
    WaitReason.MAX_UNITS,
    WaitReason.NODE_POOL_LIMIT,
    WaitReason.MAX_IN_FLIGHT,
)
_BUDGETS: Final = (WaitReason.BUDGET_DAY, WaitReason.BUDGET_HOUR)
_SHAPES: Final = (
    WaitReason.BACKING_OFF,
    WaitReason.NO_SHAPE,
    WaitReason.TOO_LARGE,
    WaitReason.CACHE_INCOMPATIBILITY,
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFacts:
    """What conditions describe."""

    supply: "Supply"
    plan: "ScalingPlan"
    observed: "Sequence[ObservedRequest]" = ()
    backend: BackendReady = BackendReady.READY
    """Reason of the condition BackendReady."""
    backend_message: str = ""
    node_pool_warnings: "Mapping[str, str]" = field(default_factory=dict)
    """NodePool -> what is unwise of it."""
    spec_faults: "Sequence[str]" = ()
    """What of spec.autoscaling is not used as it stands."""
    kept_away: str = ""
    """DaemonSets of node software that have no pod on the pool's nodes, with the cure."""


def scaling_conditions(
    facts: ScalingFacts,
    *,
    current: "Iterable[Condition] | None",
    generation: int,
    now: "dt.datetime",
) -> "list[Condition]":
    """Return the conditions, each with its cure; a message whose figures alone differ stays as it is shown.

    Args:
        facts: what was seen and planned.
        current: conditions of the pool's status.autoscaling.
        generation: of the pool.
        now: the time.
    """
    current = list(current or ())

    def make(
        type_: PoolScalingCondition, reason: "Enum", text: str, *, is_true: bool
    ) -> "Condition":
        return new_condition(
            type_,
            reason,
            text,
            status=is_true,
            current=current,
            generation=generation,
            now=now,
            keeps_text=reason in _WITH_FIGURES,
        )

    waits = list(_waits(facts.plan))
    node_pool, node_pool_text = _node_pool(facts)
    limit, limit_text = _first(waits, _LIMITS, "no limit keeps a pod waiting")
    budget, budget_text = _first(waits, _BUDGETS, "the budget allows further nodes")
    shape, shape_text = _first(waits, _SHAPES, _shapes_text(facts.supply.history, generation))
    return [
        make(
            PoolScalingCondition.BACKEND_READY,
            facts.backend,
            facts.backend_message or "nodes can be asked for",
            is_true=facts.backend is BackendReady.READY,
        ),
        make(
            PoolScalingCondition.NODE_POOL_VALID,
            node_pool,
            node_pool_text,
            is_true=node_pool is NodePoolValid.VALID,
        ),
        make(
            PoolScalingCondition.WITHIN_LIMITS,
            limit,
            limit_text,
            is_true=limit is ScalingUnlimited.AS_EXPECTED,
        ),
        make(
            PoolScalingCondition.BUDGET_AVAILABLE,
            budget,
            budget_text,
            is_true=budget is ScalingUnlimited.AS_EXPECTED,
        ),
        make(
            PoolScalingCondition.SHAPES_AVAILABLE,
            shape,
            shape_text,
            is_true=shape is ScalingUnlimited.AS_EXPECTED,
        ),
    ]


_WITH_FIGURES: Final = frozenset({*_LIMITS, *_BUDGETS, *_SHAPES})
"""Reasons whose messages have figures that change from look to look."""


def _waits(plan: "ScalingPlan") -> "Iterator[PodWait]":
    yield from plan.waits.values()
    if plan.warm_wait is not None:
        yield plan.warm_wait


def _first(
    waits: "Iterable[PodWait]", reasons: "tuple[WaitReason, ...]", otherwise: str
) -> "tuple[Enum, str]":
    """Return the first of the reasons that a pod waits for, with its message; of equal ones the first message."""
    found: dict[WaitReason, str] = {}
    for wait in waits:
        if wait.reason in reasons:
            found.setdefault(wait.reason, wait.message)
    for reason in reasons:
        if reason in found:
            return reason, found[reason]
    return ScalingUnlimited.AS_EXPECTED, otherwise


def _node_pool(facts: ScalingFacts) -> tuple[NodePoolValid, str]:
    if facts.supply.node_pool_faults:
        faults = facts.supply.node_pool_faults
        return NodePoolValid.INVALID, "; ".join(faults[name] for name in sorted(faults))
    if facts.spec_faults:
        return NodePoolValid.SPEC, "; ".join(facts.spec_faults)
    foreign = sorted(claim.name for claim in foreign_claims(facts.observed))
    if foreign:
        text = (
            f"NodeClaims with the label of a request that this control plane did not make: {listed(foreign)}; remove"
            " what creates them, or the label"
        )
        return NodePoolValid.FOREIGN, text
    if facts.kept_away:
        return NodePoolValid.SOFTWARE_KEPT_AWAY, facts.kept_away
    names = listed(facts.supply.node_pools)
    warnings = [text for _, text in sorted(facts.node_pool_warnings.items()) if text]
    text = "; ".join((f"NodePools that can serve the pool: {names or 'none is needed'}", *warnings))
    return NodePoolValid.VALID, text


def _shapes_text(history: "Iterable[ShapeHistory]", generation: int) -> str:
    """Return which shapes are left alone, though no pod waits for it."""
    parts = [
        f"shape {item.shape}{f' in zone {item.zone}' if item.zone else ''} "
        + ("is left out" if item.excluded_at == generation else f"failed lately ({item.reason})")
        + (f": {item.message}" if item.message else "")
        for item in history
        if item.excluded_at == generation or item.retry_after is not None
    ]
    return "; ".join(parts) or "every shape can be asked for"
