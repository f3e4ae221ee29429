"""filter on random allocation state: a partition of the request, the same every time, and true."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from api.names import NodeName, PodUid
from pool.placement.planner import Placed
from scheduler.extender import filter_nodes, prioritize
from tests.support.builders import a_demand
from tests.support.scheduling import ExtenderSetup, a_wire_pod, extender_args

NODES = ("n0", "n1", "n2", "n3")
devices = st.integers(0, 4)
units = st.integers(1, 4)


@st.composite
def setups(draw: st.DrawFn) -> ExtenderSetup:
    """A pool over some nodes, with faulted devices, reservations, bound pods and strangers."""
    setup = ExtenderSetup().pool(n0=draw(devices), n1=draw(devices), n2=draw(devices))
    for device in [entry.facts for entry in setup.allocation_state.index.devices.all()]:
        if draw(st.integers(0, 3)) == 0:
            setup.allocation_state.index.replace_device(replace(device, is_faulted=True))
    for number, node in enumerate(draw(st.lists(st.sampled_from(NODES[:3]), max_size=5))):
        size = draw(units)
        free = setup.free(node)
        what = draw(st.sampled_from(["reserve", "bind", "stranger"]))
        if what == "stranger":
            setup.bound(f"p{number}", node)
        elif free < size:
            continue
        elif what == "reserve":
            setup.reserve_and_observe(f"p{number}", size, node)
        else:
            setup.bound(f"p{number}", node, *plan(setup, node, size).devices["c0"])
    return setup


def plan(setup: ExtenderSetup, node: str, size: int) -> Placed:
    pool = setup.allocation_state.index.pool_of("gpu.deckhouse.io/whole")
    assert pool is not None
    placed = setup.allocation_state.reader.plan_bind(
        NodeName(node), pool, a_demand(size), uid=PodUid("nobody")
    )
    assert isinstance(placed, Placed)
    return placed


def held_node(setup: ExtenderSetup, name: str) -> NodeName | None:
    """Return the node on which the pod holds units: where it passes, it passes there alone."""
    reserved = setup.allocation_state.ledger.of_pod(PodUid(f"uid-{name}"))
    return reserved.node if reserved is not None else None


requests = st.tuples(
    st.sampled_from(["p0", "p1", "new"]), units, st.lists(st.sampled_from(NODES), unique=True)
)


@given(setups(), requests)
def test_every_name_is_in_exactly_one_part_of_the_reply(setup, request_):
    name, size, names = request_
    body = extender_args(a_wire_pod(name, whole=size), *names)
    reply = json.loads(filter_nodes(body, setup.context).body)
    parts = [*reply["NodeNames"], *reply["FailedNodes"], *reply["FailedAndUnresolvableNodes"]]
    if reply["NodeNames"] != [held_node(setup, name)]:
        assert sorted(parts) == sorted(names)
    assert all([*reply["FailedNodes"].values(), *reply["FailedAndUnresolvableNodes"].values()])


@given(setups(), requests)
def test_the_same_question_has_the_same_answer(setup, request_):
    name, size, names = request_
    body = extender_args(a_wire_pod(name, whole=size), *names)
    assert filter_nodes(body, setup.context) == filter_nodes(body, setup.context)
    assert prioritize(body, setup.context) == prioritize(body, setup.context)


@given(setups(), requests)
def test_a_node_passes_exactly_when_bind_finds_devices_there(setup, request_):
    name, size, names = request_
    body = extender_args(a_wire_pod(name, whole=size), *names)
    passing = json.loads(filter_nodes(body, setup.context).body)["NodeNames"]
    pool = setup.allocation_state.index.pool_of("gpu.deckhouse.io/whole")
    bound = setup.allocation_state.reader.bound_to(PodUid(f"uid-{name}"))
    reserved = held_node(setup, name)
    for node in names if reserved is None or passing != [reserved] else [reserved]:
        if bound is not None:
            assert (node in passing) == (node == bound.node)
            continue
        planned = setup.allocation_state.reader.plan_bind(
            NodeName(node), pool, a_demand(size), uid=PodUid(f"uid-{name}")
        )
        assert (node in passing) == isinstance(planned, Placed)


@given(setups(), requests)
def test_scores_are_ints_from_0_to_10_for_every_name_in_order(setup, request_):
    """Lesson 27: a float, more than 10 or less than 0."""
    name, size, names = request_
    body = extender_args(a_wire_pod(name, whole=size), *names)
    scores = json.loads(prioritize(body, setup.context).body)
    assert [item["Host"] for item in scores] == names
    assert all(type(item["Score"]) is int and 0 <= item["Score"] <= 10 for item in scores)
