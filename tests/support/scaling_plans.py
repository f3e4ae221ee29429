"""Builders of parameters, requests on their way and supplies, and a plan that is carried out."""

import dataclasses
import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from api.kinds.autoscaling import ScalingBackend
from api.kinds.gpupool import Strategy
from api.names import NodeName
from autoscaling.node_planner import plan
from autoscaling.scaling_model import (
    ClaimFacts,
    NodeRequest,
    ObservedRequest,
    RequestedNode,
    RequestPhase,
    ScalingParameters,
    ScalingPlan,
    ShapeParameters,
    SignalFacts,
    Supply,
)
from pool.allocation_state import AllocationState
from pool.index.device_index import DeviceIndex
from pool.model import PodFacts, PodPhase, PoolFacts
from tests.support.builders import EPOCH, a_device, a_node, a_pod_facts, a_pool, at

NOW = EPOCH + dt.timedelta(hours=1)


def a_shape(name: str = "eight", devices: int = 8, **changes: Any) -> ShapeParameters:
    fields: dict[str, Any] = {
        "name": name,
        "node_pool": "whole",
        "devices": devices,
        "units_per_device": 1,
    }
    return ShapeParameters(**{**fields, **changes})


def some_parameters(*shapes: ShapeParameters, **changes: Any) -> ScalingParameters:
    pool: PoolFacts = changes.pop("pool", a_pool(strategy=Strategy.BIN_PACK))
    fields: dict[str, Any] = {
        "pool": pool,
        "generation": 1,
        "backend": ScalingBackend.KARPENTER_SIGNAL,
        "shapes": shapes or (a_shape(),),
        "max_in_flight": 100,
        "max_nodes_per_hour": 600,
    }
    return ScalingParameters(**{**fields, **changes})


def an_index(pool: PoolFacts | None = None) -> DeviceIndex:
    index = DeviceIndex()
    index.replace_pool(pool or a_pool(strategy=Strategy.BIN_PACK))
    return index


def add_node(
    state: AllocationState, name: str, *, devices: int, used: int = 0, **changes: Any
) -> None:
    """Add a node of the pool `whole`, of which one pod has so many devices."""
    state.index.replace_node(a_node(name, **changes))
    for number in range(devices):
        state.index.replace_device(a_device(name, number))
    if used:
        pod = a_bound_pod(f"on-{name}", name, range(used))
        state.observe_pod(pod, at(0))


def a_bound_pod(name: str, node: str, numbers: Iterable[int]) -> PodFacts:
    units = tuple(f"GPU-{node}-{number}" for number in numbers)
    return a_pod_facts(
        name,
        units=len(units),
        phase=PodPhase.BOUND,
        node=NodeName(node),
        devices={"c0": units},
    )


def a_waiting_pod(name: str = "p", units: int = 1, **changes: Any) -> PodFacts:
    fields = {"awaits_capacity": True, "created": "2026-01-01T00:00:00Z"}
    return a_pod_facts(name, units=units, **{**fields, **changes})


def planned(
    parameters: ScalingParameters,
    waiting: Sequence[PodFacts],
    index: DeviceIndex | None = None,
    **supply: Any,
) -> ScalingPlan:
    found = index or an_index(parameters.pool)
    return plan(parameters, waiting, found, supply=Supply(**supply), now=NOW)


def signalled(
    request: NodeRequest, *, created: dt.datetime = NOW, **changes: Any
) -> ObservedRequest:
    """A request whose signal exists, and nothing else yet."""
    signal = SignalFacts(
        name=f"scale-{request.id}",
        uid=f"uid-{request.id}",
        request=request.id,
        pool=request.pool,
        shape=request.shape.name,
        devices=request.shape.devices,
        created=created,
        node_selector=request.node_selector,
        affinity=request.affinity,
    )
    fields: dict[str, Any] = {
        "id": request.id,
        "pool": request.pool,
        "shape": request.shape,
        "phase": RequestPhase.SIGNALLED,
        "since": created,
        "signals": (signal,),
    }
    return ObservedRequest(**{**fields, **changes})


def launched(
    request: NodeRequest, *, created: dt.datetime = NOW, **of_claim: Any
) -> ObservedRequest:
    """A request whose NodeClaim exists."""
    claim = ClaimFacts(
        name=f"claim-{request.id}",
        uid=f"uid-claim-{request.id}",
        node_pool=request.shape.node_pool,
        request=request.id,
        created=created,
        **of_claim,
    )
    return signalled(request, created=created, phase=RequestPhase.LAUNCHED, claim=claim)


def ready(
    request: NodeRequest, name: str, units: int, *, created: dt.datetime = NOW
) -> ObservedRequest:
    """A request whose node tells of devices."""
    node = RequestedNode(
        name=NodeName(name),
        request=request.id,
        created=created,
        is_ready=True,
        is_leaving=False,
        has_startup_taint=True,
        indexed_units=units,
        allocatable_units=units,
    )
    return dataclasses.replace(
        launched(request, created=created), phase=RequestPhase.AGENT_READY, node=node
    )
