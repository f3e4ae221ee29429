"""How many pods of a size still fit a pool, tried on a copy of its allocation state."""

from typing import TYPE_CHECKING, Final

from api.names import ReservationId
from pool.allocation_state import PlacementRequest
from pool.model import ContainerDemand, ContainerRole, Demand

if TYPE_CHECKING:
    from api.names import NodeName
    from pool.allocation_state import AllocationState
    from pool.model import Instant, PoolFacts
    from pool.placement.planner import Placed

SIZES: Final = (1, 2, 4, 8)


def fitting_pods(state: "AllocationState", pool: "PoolFacts", now: "Instant") -> dict[int, int]:
    """Return, by size, how many pods the pool could take now, one size at a time.

    The state is the caller's own copy: what is tried on it is taken back.
    """
    nodes = state.index.state(pool.name).nodes()
    found = dict.fromkeys(SIZES, 0)
    for name, node in sorted(nodes.items()):
        if not node.is_reservable:
            continue
        for size in SIZES:
            if node.room is None:
                found[size] += node.available // size
            elif node.available >= size:
                found[size] += _placed(state, pool, name, size=size, now=now)
    return found


def _placed(
    state: "AllocationState", pool: "PoolFacts", node: "NodeName", *, size: int, now: "Instant"
) -> int:
    """Place pods on the node until none fits; return their number."""
    demand = Demand(pool.resource, (ContainerDemand("main", ContainerRole.MAIN, size),), size)
    placed: list[ReservationId] = []
    while (plan := _plan(state, pool, node, demand=demand)) is not None:
        id_ = ReservationId(f"tried-{len(placed)}")
        request = PlacementRequest(id=id_, pool=pool, demand=demand, namespace="")
        state.reserve(request, plan, now)
        placed.append(id_)
    for id_ in placed:
        state.withdraw(id_)
    return len(placed)


def _plan(
    state: "AllocationState", pool: "PoolFacts", node: "NodeName", *, demand: Demand
) -> "Placed | None":
    if state.reader.refusal_on(node, pool, demand) is not None:
        return None
    return state.reader.plan_on(node, pool, demand)
