"""Whether the allocation state says what the naive model says, and what must be so besides."""

import inspect
from typing import Any

from api.names import NodeName, PodUid, PoolName
from pool.allocation_reader import AlreadyBound
from pool.allocation_state import AllocationState
from pool.index.node_view import PoolNode
from pool.model import Capacity, ContainerRole, Demand, PoolFacts
from pool.placement.device_choice import is_split
from pool.placement.planner import Placed, PlacementRefused
from tests.support.builders import a_demand
from tests.support.naive_allocation_state import UNCOMMITTED, UNCONFIRMED, NaiveAllocationState
from tests.support.naive_facts import demand_of, units_of

INIT, MAIN = ContainerRole.INIT, ContainerRole.MAIN
DEMANDS = (
    *(a_demand(size) for size in range(1, 6)),
    a_demand(1, 1),
    a_demand(2, 1),
    a_demand(2, 1, roles=(INIT, MAIN)),
    a_demand(1, 4, roles=(INIT, MAIN)),
)
LATE = ("doubtful", "bound")
NODE_FIGURES = inspect.get_annotations(PoolNode).keys() - {
    "unit_counts",
    "remaining",
    "incompatibility",
}
CAPACITY_FIGURES = inspect.get_annotations(Capacity)


def agree_on_figures(
    allocation_state: AllocationState, model: NaiveAllocationState, pool: str
) -> None:
    """Nodes, capacity, and the refusals and scores of every size."""
    state = allocation_state.index.state(PoolName(pool))
    got = {
        str(name): {key: getattr(node, key) for key in NODE_FIGURES}
        for name, node in state.nodes().items()
    }
    want = model.nodes_of(pool)
    assert got == want
    facts = allocation_state.index.pool(PoolName(pool))
    if facts is not None:
        for node in want:
            unreported = allocation_state.reader.unreported(facts, NodeName(node))
            assert set(map(str, unreported)) == model.unreported(pool, node)
    capacity = state.capacity()
    sums = {key: getattr(capacity, key) for key in CAPACITY_FIGURES}
    assert sums == model.capacity(pool, want)
    capacities = [model.available_on(node) for node in want.values()]
    assert state.largest_free() == max(capacities, default=0)
    assert state.largest_node() == max((node["total"] for node in want.values()), default=0)
    preferring = {
        name: model.free_counts(pool, name) for name in want if model.prefers_aligned(pool, name)
    }
    for demand in DEMANDS:
        view = allocation_state.index.view(PoolName(pool), demand)
        containers = [
            (container.name, container.role, container.units) for container in demand.containers
        ]
        reasons = {
            name: model.reason((pool, name), node, containers) for name, node in want.items()
        }
        refusals = {
            name: item.reason.value if item else None for name, item in view.refusals.items()
        }
        assert refusals == reasons
        split = split_nodes(allocation_state, pool, demand)
        assert split <= preferring.keys()
        for name, free in preferring.items():
            model.check_split((pool, name), free, containers, is_split=name in split)
        assert view.scores == {
            name: model.score((pool, name), node, containers, is_split=name in split)
            for name, node in want.items()
            if reasons[name] is None
        }


def split_nodes(allocation_state: AllocationState, pool: str, demand: Demand) -> set[str]:
    """The nodes where a pod would get devices that are not aligned, as the product says; `check_split` bounds it."""
    state = allocation_state.index.state(PoolName(pool))
    request = state.request_of(demand)
    return {
        str(name)
        for name, node in state.nodes().items()
        if node.unit_counts is not None
        and is_split(node.unit_counts.devices, node.unit_counts.free, request)
    }


def agree_on_reservations(allocation_state: AllocationState, model: NaiveAllocationState) -> None:
    got = {
        str(item.id): (item.uid, item.pool, item.node, list(item.units), item.phase.value)
        for item in allocation_state.ledger.all()
    }
    assert got == {
        id_: (item["uid"], item["pool"], item["node"], item["units"], item["phase"])
        for id_, item in model.reservations.items()
    }
    for item in allocation_state.ledger.all():
        assert allocation_state.ledger.get(item.id) is item
        assert item.uid is None or allocation_state.ledger.of_pod(item.uid) is item
        assert allocation_state.index.claims.assumed.units(item.id) == item.units
        is_unconfirmed = item.has_units and item.phase.value in UNCONFIRMED
        assert (item.id in allocation_state.index.claims.unconfirmed) is is_unconfirmed
    deadline, want = allocation_state.ledger.next_deadline(), model.next_deadline()
    assert want is None or (deadline is not None and deadline <= want)
    late = {id_ for id_, item in model.reservations.items() if item["phase"] in LATE}
    assert {item.id for item in allocation_state.reader.ledger.unresolved()} == late


def agree_on_pods(
    allocation_state: AllocationState, model: NaiveAllocationState, resources: list[str]
) -> None:
    assert {str(pod.uid) for pod in allocation_state.reader.pods.all()} == model.pods.keys()
    for resource in resources:
        assert [
            str(pod.uid) for pod in allocation_state.reader.pods.waiting(resource)
        ] == model.waiting(resource)
    twice = {
        str(unit): set(pods) for unit, pods in allocation_state.index.claims.duplicates().items()
    }
    assert twice == model.held_twice()


def figures_add_up(allocation_state: AllocationState, pool: str) -> None:
    """What costs little, after every step: no unit is lost between the nodes and the totals."""
    state = allocation_state.index.state(PoolName(pool))
    sums = state.capacity()
    assert sums.total == sums.reserved + sums.used + sums.available + sums.unhealthy
    total = held = 0
    for node in state.nodes().values():
        loose = node.unconfirmed + node.free
        assert node.total == node.used + node.reserved + loose + node.unhealthy
        assert min(node.used, node.reserved, node.free, node.unhealthy, node.partial) >= 0
        assert node.unconfirmed >= 0
        total += node.total
        held += node.reserved
    assert (total, held) == (sums.total, sums.reserved)


def no_unit_has_two_of_our_owners(
    stored: dict[str, Any], model: NaiveAllocationState, besides: set[str]
) -> None:
    """Pods that we bound, and commitments; claims that strangers wrote are theirs, and what a node gave
    to another pod than was promised it is free to promise again."""
    given: dict[str, str] = {}
    for uid, states in stored.items():
        if states[-1]["phase"] == "bound" and states[-1]["is_ours"]:
            for unit in set(units_of(states[-1]["devices"])) - besides:
                assert given.setdefault(unit, uid) == uid
    for reservation in model.reservations.values():
        for unit in (
            set(reservation["units"]) - besides if reservation["phase"] not in UNCOMMITTED else ()
        ):
            assert given.setdefault(unit, reservation["uid"]) == reservation["uid"]


def nothing_is_left(allocation_state: AllocationState, now: float) -> None:
    """What the allocation state keeps once every pod is gone and every reservation has ended."""
    assert len(allocation_state.ledger) == 0
    assert allocation_state.ledger.due(now) == []
    assert allocation_state.ledger.next_deadline() is None
    for pool in allocation_state.index.pools():
        capacity = allocation_state.index.state(pool.name).capacity()
        assert (capacity.used, capacity.reserved) == (0, 0)
    assert not allocation_state.ledger.has_unconfirmed()
    assert allocation_state.index.claims.unconfirmed == set()
    for claims in (allocation_state.index.claims.observed, allocation_state.index.claims.assumed):
        assert (claims._units_by_owner, claims._claims_by_part) == ({}, {})
    assert (len(allocation_state._pods), len(allocation_state._pods.pending)) == (0, 0)
    assert not allocation_state._pods.pending._demands
    unaccounted = allocation_state.index.unaccounted
    assert (unaccounted._units_by_place, unaccounted._units_by_pod) == ({}, {})
    assert allocation_state.index.claims.duplicates() == {}
    requests = allocation_state.index.requests
    assert (requests._by_pod, requests._totals) == ({}, {})
    assert (
        len(allocation_state.pod_claims.reports),
        len(allocation_state.pod_claims.mismatches),
        len(allocation_state.pod_claims.deleted),
    ) == (0, 0, 0)


def bind_plan_as_the_model_says(
    allocation_state: AllocationState,
    model: NaiveAllocationState,
    pool: PoolFacts,
    pod: dict[str, Any],
    node: str,
) -> Placed | None:
    """Plan a bind and compare the answer with the model's; return a plan that may be committed."""
    uid, demand, name = PodUid(pod["uid"]), demand_of(pod), NodeName(node)
    plan = allocation_state.reader.plan_bind(name, pool, demand, uid=uid)
    seen, own = model.pods.get(uid), model.reservation_of(uid)
    if seen is not None and seen["phase"] != "pending" and seen["node"] is not None:
        assert plan == AlreadyBound(seen["node"], None)
        return None
    if own is not None and own["phase"] not in UNCOMMITTED:
        assert isinstance(plan, AlreadyBound)
        assert plan.node == own["node"]
        return None
    if seen is not None and seen["phase"] == "ended":
        return None
    mine = {own["id"]} if own is not None and own["node"] == node else set()
    figures = model.figures(pool.name, node, mine)
    reason: str | None = "NodeNotInPool"
    if figures:
        reason = model.reason((pool.name, node), figures, pod["containers"], mine)
    refusal = allocation_state.reader.refusal_on(name, pool, demand, uid=uid)
    assert (refusal.reason.value if refusal else None) == reason
    if refusal is not None:
        assert plan == PlacementRefused(name, refusal)
        return None
    assert isinstance(plan, Placed)
    assert (plan.pool, plan.node) == (pool.name, node)
    given_as_the_model_allows(model, plan, pod, own, is_stored=True)
    given = {name: list(units) for name, units in plan.devices.items()}
    at = (str(pool.name), node)
    if own is not None and model.is_intact(own, *at) and model.allows(at, own["devices"]):
        assert given == own["devices"]
    else:
        assert model.allows(at, given)
    return plan


def given_as_the_model_allows(
    model: NaiveAllocationState,
    plan: Placed,
    pod: dict[str, Any],
    own: dict[str, Any] | None = None,
    *,
    is_stored: bool = False,
) -> None:
    """What a pod that exists is given may be of reservations that nobody has seen, where nothing else will do."""
    free: set[str] = set()
    reachable: set[str] = set()
    mine = {own["id"]} if own else set()
    for device in model.devices_on(plan.pool, plan.node):
        ids = model.units_of(device)
        free |= {ids[slot] for slot in model.free_slots(device, mine)}
        reachable |= {ids[slot] for slot in model.reachable_slots(device, mine)}
    at = (str(plan.pool), str(plan.node))
    counts_free = [len(model.free_slots(device, mine)) for device in model.devices_on(*at)]
    if is_stored and not model.fits(*at, counts_free, pod["containers"]):
        free = reachable
    given = {name: list(units) for name, units in plan.devices.items()}
    assert set(units_of(given)) <= free
    assert len(units_of(given)) == pod["size"]
    counts = {name: len(set(units)) for name, units in given.items()}
    assert counts == {name: units for name, _, units in pod["containers"]}
