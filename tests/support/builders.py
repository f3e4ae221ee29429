"""Builders with realistic defaults."""

import datetime as dt
from typing import Any

from api.clock import Instant
from api.kinds.gpupool import AllocationMode, Strategy, WhenExhausted
from api.names import DeviceName, NodeName, PodUid, PoolName
from pool.demand import distinct_units
from pool.model import (
    ContainerDemand,
    ContainerRole,
    Demand,
    DeviceFacts,
    NodeFacts,
    PodFacts,
    PodPhase,
    PoolFacts,
)

EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(seconds: float) -> Instant:
    """Both clocks, so many seconds after the start of the test."""
    return Instant(seconds, EPOCH + dt.timedelta(seconds=seconds))


def a_pool(name: str = "whole", **changes: Any) -> PoolFacts:
    fields: dict[str, Any] = {
        "name": PoolName(name),
        "uid": f"uid-{name}",
        "resource": f"gpu.deckhouse.io/{name}",
        "mode": AllocationMode.EXCLUSIVE,
        "strategy": Strategy.LEAST_FRAGMENTATION,
        "ttl_s": 120,
        "when_exhausted": WhenExhausted.PEND,
    }
    return PoolFacts(**{**fields, **changes})


def a_slice_pool(name: str = "slices", slices: int = 4, **changes: Any) -> PoolFacts:
    return a_pool(
        name,
        mode=AllocationMode.TIME_SLICE,
        slices_per_device=slices,
        **{"strategy": Strategy.BIN_PACK, **changes},
    )


def a_node(name: str = "n1", **changes: Any) -> NodeFacts:
    return NodeFacts(**{"name": NodeName(name), "labels": {}, **changes})


def a_device(
    node: str = "n1", index: int = 0, pool: str | None = "whole", **changes: Any
) -> DeviceFacts:
    fields: dict[str, Any] = {
        "name": DeviceName(f"{node}-{index}"),
        "node": NodeName(node),
        "uuid": f"GPU-{node}-{index}",
        "pool": PoolName(pool) if pool else None,
    }
    return DeviceFacts(**{**fields, **changes})


def a_demand(*units: int, pool: str = "whole", roles: tuple[ContainerRole, ...] = ()) -> Demand:
    """One main container per number, unless roles say otherwise."""
    roles = roles or (ContainerRole.MAIN,) * len(units)
    containers = tuple(
        ContainerDemand(f"c{i}", role, n)
        for i, (n, role) in enumerate(zip(units, roles, strict=True))
    )
    return Demand(f"gpu.deckhouse.io/{pool}", containers, distinct_units(containers))


def a_pod_facts(name: str = "p", units: int = 1, pool: str = "whole", **changes: Any) -> PodFacts:
    fields: dict[str, Any] = {
        "uid": PodUid(f"uid-{name}"),
        "namespace": "default",
        "name": name,
        "demand": a_demand(units, pool=pool),
        "phase": PodPhase.PENDING,
    }
    return PodFacts(**{**fields, **changes})
