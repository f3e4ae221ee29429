"""Builders of what requests for nodes leave in the API, and the looks at it in a row."""

import dataclasses
import datetime as dt
from collections.abc import Iterable
from typing import Any

from api.kinds.autoscaling import ScaleRequestStatus, ScalingBackend
from api.names import NodeName, PoolName
from api.status_conditions import format_time
from autoscaling.request_ids import request_id
from autoscaling.request_lifecycle import observed_requests
from autoscaling.scaling_model import (
    ClaimFacts,
    ConditionFacts,
    ObservedRequest,
    RequestedNode,
    RequestPhase,
    ScalingParameters,
    ShapeParameters,
    SignalFacts,
)
from tests.support.builders import a_pool

START = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
POOL = a_pool()
ID = request_id(POOL, "pod-1", "large")
OTHER_ID = request_id(POOL, "pod-2", "large")
SHAPES = (
    ShapeParameters(
        name="large", node_pool="whole", devices=8, units_per_device=1, price_micro=8_000_000
    ),
    ShapeParameters(
        name="small", node_pool="whole", devices=1, units_per_device=1, price_micro=1_500_000
    ),
)


def after(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def the_parameters(**changes: Any) -> ScalingParameters:
    fields: dict[str, Any] = {
        "pool": POOL,
        "generation": 1,
        "backend": ScalingBackend.KARPENTER_SIGNAL,
        "shapes": SHAPES,
    }
    return ScalingParameters(**{**fields, **changes})


def a_signal(at_s: float = 0, **changes: Any) -> SignalFacts:
    fields: dict[str, Any] = {
        "name": f"scale-{ID}",
        "uid": f"signal-{at_s}",
        "request": ID,
        "pool": PoolName("whole"),
        "shape": "large",
        "devices": 8,
        "created": after(at_s),
    }
    return SignalFacts(**{**fields, **changes})


def true_since(at_s: float) -> ConditionFacts:
    return ConditionFacts("True", "", "", after(at_s))


def a_claim(at_s: float = 1, **changes: Any) -> ClaimFacts:
    fields: dict[str, Any] = {
        "name": f"whole-{at_s}",
        "uid": f"claim-{at_s}",
        "node_pool": "whole",
        "request": ID,
        "created": after(at_s),
    }
    return ClaimFacts(**{**fields, **changes})


def a_requested_node(at_s: float = 60, *, units: int = 0, **changes: Any) -> RequestedNode:
    fields: dict[str, Any] = {
        "name": NodeName("n1"),
        "request": ID,
        "created": after(at_s),
        "is_ready": True,
        "is_leaving": False,
        "has_startup_taint": True,
        "indexed_units": units,
        "allocatable_units": units,
    }
    return RequestedNode(**{**fields, **changes})


def current(request: ObservedRequest) -> ScaleRequestStatus:
    """Return a request as the status shows it."""
    message = request.message
    return ScaleRequestStatus(
        id=request.id,
        shape=request.shape.name if request.shape is not None else "",
        phase=request.phase.value,
        node_claim=request.claim.name if request.claim is not None else "",
        node=request.node.name if request.node is not None else "",
        since=format_time(request.since),
        message=f"{request.failure.value}: {message}" if request.failure else message,
    )


@dataclasses.dataclass
class RequestHistory:
    """Looks at one pool in a row; each knows the status of the one before."""

    parameters: ScalingParameters = dataclasses.field(default_factory=the_parameters)
    recorded: tuple[ScaleRequestStatus, ...] = ()

    def observe(
        self,
        at_s: float,
        *,
        signals: Iterable[SignalFacts] = (),
        claims: Iterable[ClaimFacts] = (),
        nodes: Iterable[RequestedNode] = (),
        deleted: Iterable[ClaimFacts] = (),
    ) -> tuple[ObservedRequest, ...]:
        found = observed_requests(
            self.parameters,
            signals=signals,
            claims=claims,
            nodes={node.request: node for node in nodes},
            now=after(at_s),
            recorded=self.recorded,
            deleted=deleted,
        )
        self.recorded = tuple(map(current, found))
        return found

    def one(self, at_s: float, **objects: Any) -> ObservedRequest:
        (found,) = self.observe(at_s, **objects)
        return found

    def phase(self, at_s: float, **objects: Any) -> RequestPhase:
        return self.one(at_s, **objects).phase
