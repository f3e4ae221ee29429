"""In a pool that reserves units and no node, kube-scheduler chooses the node, and the pod gets its units there."""

import json
from typing import Any

from api.annotations import ReservationNote
from api.kinds.gpupool import Reserve
from api.names import NodeName, PodUid, ReservationId, UnitId
from pool.placement.planner import Placed
from pool.reservations.reservation import PlacementRequest
from pool.what_if.trial import Trial, TrialPod
from scheduler.extender import bind, filter_nodes, prioritize
from scheduler.ports import BindRefused
from tests.support.allocation_state import ANYWHERE
from tests.support.builders import EPOCH, a_demand, a_pod_facts, a_pool
from tests.support.scheduling import ExtenderSetup, a_wire_pod, binding_args, extender_args

NODES = ("n1", "n2", "n3")
POD = a_wire_pod("p", whole=1)


def a_setup(**changes: Any) -> ExtenderSetup:
    """Three nodes with one device each: n1 is reserved for the pod, n2 is free, n3 is taken."""
    setup = ExtenderSetup().pool(a_pool(reserve=Reserve.UNITS, **changes), n1=1, n2=1, n3=1)
    setup.bound("other", "n3", "GPU-n3-0")
    setup.reserve_and_observe("p", 1, "n1")
    return setup


def passing(setup: ExtenderSetup) -> list[str]:
    reply = json.loads(filter_nodes(extender_args(POD, *NODES), setup.context).body)
    names: list[str] = reply["NodeNames"]
    return names


async def bound_to(setup: ExtenderSetup, node: str) -> str:
    answer = await bind(binding_args("p", node), setup.context)
    return str(answer.outcome)


def test_all_nodes_with_the_units_pass_and_score_alike():
    setup = a_setup()
    assert passing(setup) == ["n1", "n2"]
    answer = prioritize(extender_args(POD, *NODES), setup.context)
    assert {item["Score"] for item in json.loads(answer.body)} == {0}
    assert answer.outcome == "fits"


def test_a_node_on_which_the_reservation_alone_has_units_is_enough():
    setup = a_setup()
    setup.bound("more", "n2", "GPU-n2-0")
    assert passing(setup) == ["n1"]
    assert prioritize(extender_args(POD, "n1"), setup.context).outcome == "fits"
    assert prioritize(extender_args(POD, "n2"), setup.context).outcome == "none_fits"


async def test_the_pod_gets_units_of_its_node_and_the_reserved_ones_are_free_again():
    setup = a_setup()
    assert await bound_to(setup, "n2") == "bound"
    assert (setup.free("n1"), setup.free("n2")) == (1, 0)
    (binding,) = setup.binder.bindings
    assert binding.node == "n2"


async def test_a_refused_binding_gives_back_the_units_of_both_nodes():
    setup = a_setup()
    setup.binder.fail_next = [BindRefused("no", is_conflict=False)]
    assert await bound_to(setup, "n2") == "refused"
    assert (setup.free("n1"), setup.free("n2")) == (1, 1)
    assert passing(setup) == ["n1", "n2"]


def test_an_edit_of_the_pool_counts_for_reservations_that_exist():
    setup = a_setup()
    setup.allocation_state.index.replace_pool(a_pool())
    assert passing(setup) == ["n1"]
    setup.allocation_state.index.replace_pool(a_pool(reserve=Reserve.UNITS))
    assert passing(setup) == ["n1", "n2"]


async def test_the_next_leader_restores_the_units_and_leaves_the_node_too():
    setup = ExtenderSetup().pool(a_pool(reserve=Reserve.UNITS), n1=1, n2=1, n3=1)
    setup.bound("other", "n3", "GPU-n3-0")
    note = ReservationNote(
        id="r",
        pool="whole",
        node="n1",
        devices={"c0": (UnitId("GPU-n1-0"),)},
        expires_at=EPOCH.replace(year=EPOCH.year + 1),
    )
    setup.pending("p", 1, reservation=note)
    assert setup.free("n1") == 0
    assert passing(setup) == ["n1", "n2"]
    assert await bound_to(setup, "n2") == "bound"
    assert setup.free("n1") == 1


async def test_a_pod_of_a_pool_that_scales_leaves_the_node_that_came_for_it():
    setup = ExtenderSetup().pool(a_pool(reserve=Reserve.UNITS, largest_shape=1), n1=1, n2=1, n3=1)
    setup.bound("other", "n3", "GPU-n3-0")
    waiting = setup.pending("p", 1, awaits_capacity=True)
    pool = setup.allocation_state.index.pool_of(waiting.demand.resource)
    assert pool is not None
    request = PlacementRequest(
        id=ReservationId("r"), pool=pool, demand=a_demand(1), namespace="default", name="p"
    )
    placed = Placed(pool.name, NodeName("n1"), {"c0": (UnitId("GPU-n1-0"),)})
    assert setup.allocation_state.hold(
        request, placed, uid=PodUid("uid-p"), now=setup.time.now()
    ), "units are held for the gated pod"
    setup.pending("p", 1)
    assert passing(setup) == ["n1", "n2"]
    assert await bound_to(setup, "n2") == "bound"
    assert setup.free("n1") == 1


def test_what_if_says_how_many_nodes_take_the_pod():
    setup = a_setup()
    pool = setup.allocation_state.index.pool_of("gpu.deckhouse.io/whole")
    assert pool is not None
    pod = TrialPod(facts=a_pod_facts("p", 1), pool=pool, constraints=ANYWHERE)
    chosen = Trial(setup.context.reader, setup.context.index, pod).choose()
    assert chosen is not None
    assert (chosen.placed.node, chosen.fitting_nodes, chosen.equal_nodes) == ("n1", 2, 2)
