"""bind: one write, named devices, and the same answer to the same question."""

import asyncio
import datetime as dt
import json

import pytest

from api import names
from api.annotations import decode_devices
from api.status_conditions import format_time
from pool.model import DeviceLink, PodPhase
from pool.placement.fragmentation.placement_costs import PlacementCosts
from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload
from scheduler.extender import bind, filter_nodes
from scheduler.ports import BindRefused
from tests.support.allocation_state import a_reserved_pod
from tests.support.builders import EPOCH, a_demand, a_device, a_pod_facts, a_pool
from tests.support.scheduling import ExtenderSetup, a_wire_pod, binding_args, extender_args, seen_on


async def ask(
    setup: ExtenderSetup, name: str = "p", node: str = "n1", **changes: str
) -> tuple[str, str]:
    answer = await bind(binding_args(name, node, **changes), setup.context)
    return json.loads(answer.body)["Error"], str(answer.outcome)


async def test_a_pod_is_bound_to_named_devices_with_one_write():
    """Lesson 39: one API write per bind, so that it stays far below httpTimeout."""
    setup = ExtenderSetup().pool(n1=4)
    setup.pending("p", 2)
    assert await ask(setup) == ("", "bound")
    (binding,) = setup.binder.bindings
    assert (binding.namespace, binding.name, binding.uid) == ("default", "p", "uid-p")
    assert binding.node == "n1"
    assert decode_devices(binding.annotations[names.DEVICES_ANNOTATION]) == {
        "c0": ("GPU-n1-0", "GPU-n1-1")
    }
    assert setup.binder.reads == []


async def test_a_binding_tells_how_long_its_pod_has_waited():
    setup = ExtenderSetup().pool(n1=4)
    setup.pending("p", 2, created=format_time(EPOCH + dt.timedelta(seconds=40)))
    setup.time.seconds = 100
    answer = await bind(binding_args("p", "n1"), setup.context)
    assert answer.bound is not None
    assert (answer.bound.pool, answer.bound.waited_s) == ("whole", 60)
    assert answer.facts["waited_s"] == 60
    again = await bind(binding_args("p", "n1"), setup.context)
    assert again.bound is None, "it was bound before"
    setup.pending("q", 1)
    answer = await bind(binding_args("q", "n1"), setup.context)
    assert answer.bound is not None
    assert answer.bound.waited_s is None, "its age is not known"


async def test_a_binding_tells_how_long_ago_units_were_reserved_for_its_pod():
    setup = ExtenderSetup().pool(n1=4)
    reserved = a_reserved_pod(setup.allocation_state, "p")  # at 0 s
    setup.time.seconds = 7
    answer = await bind(binding_args("p", "n1"), setup.context)
    assert answer.bound is not None
    assert answer.bound.reserved_for_s == 7
    # The next leader has restored another pod's reservation from its annotation.
    successor = ExtenderSetup().pool(n1=4)
    successor.time.seconds = 40
    successor.allocation_state.observe_pod(reserved, successor.time.now())
    successor.time.seconds = 45
    answer = await bind(binding_args("p", "n1"), successor.context)
    assert answer.bound is not None
    assert answer.bound.reserved_for_s == 45


@pytest.mark.parametrize("is_expired", [True, False], ids=["any more", "at all"])
async def test_a_pod_that_had_no_units_reserved_does_not_count(is_expired: bool):
    setup = ExtenderSetup().pool(n1=4)
    if is_expired:
        a_reserved_pod(setup.allocation_state, "p")
        setup.time.seconds = 600
        assert len(setup.allocation_state.expire(setup.time.now())) == 1
    else:
        setup.pending("p", 1)
    answer = await bind(binding_args("p", "n1"), setup.context)
    assert answer.bound is not None
    assert answer.bound.reserved_for_s is None


@pytest.mark.parametrize(
    ("units", "linked", "numa", "expected"),
    [
        pytest.param(1, (), {}, "single", id="one device"),
        pytest.param(2, (), {}, "unknown", id="nothing is known"),
        pytest.param(2, (), {0: 0, 1: 0, 2: 1, 3: 1}, "one_numa_node", id="one NUMA node"),
        pytest.param(3, (), {0: 0, 1: 0, 2: 1, 3: 1}, "split", id="two NUMA nodes"),
        pytest.param(2, (0, 1), {0: 0, 1: 0}, "one_island", id="a bridge"),
        pytest.param(3, (0, 1), {}, "split", id="a bridge and another device"),
    ],
)
async def test_a_binding_tells_how_its_devices_are_connected(units, linked, numa, expected):
    setup = ExtenderSetup().pool(n1=4)
    for number in range(4):
        links = tuple(
            DeviceLink(names.DeviceName(f"n1-{peer}"), "NVLink", 4)
            for peer in linked
            if peer != number
        )
        device = a_device(
            "n1", number, numa_node=numa.get(number), links=links if number in linked else ()
        )
        setup.allocation_state.index.replace_device(device)
    setup.pending("p", units)
    answer = await bind(binding_args("p", "n1"), setup.context)
    assert answer.bound is not None
    assert answer.bound.quality.value == answer.facts["quality"] == expected


async def test_a_binding_says_under_which_term_it_was_decided():
    setup = ExtenderSetup(leader="first/1").pool(n1=4)
    setup.pending("p", 1)
    await ask(setup)
    setup.leader = "first/3"
    setup.pending("q", 1)
    await ask(setup, "q")
    terms = [binding.annotations[names.LEADER_ANNOTATION] for binding in setup.binder.bindings]
    assert terms == ["first/1", "first/3"]
    assert all(binding.is_fenced for binding in setup.binder.bindings)


async def test_a_binding_gives_the_pod_the_label_by_which_the_next_leader_lists():
    setup = ExtenderSetup().pool(n1=4)
    setup.pending("p", 1)
    await ask(setup)
    (binding,) = setup.binder.bindings
    assert binding.labels == {names.POOL_LABEL: "whole"}


async def test_a_binding_says_nothing_of_a_term_where_nobody_is_elected():
    setup = ExtenderSetup().pool(n1=4)
    setup.pending("p", 1)
    await ask(setup)
    (binding,) = setup.binder.bindings
    assert set(binding.annotations) == {names.DEVICES_ANNOTATION}
    assert not binding.is_fenced


async def test_the_units_stay_taken_until_the_watch_shows_the_binding():
    setup = ExtenderSetup().pool(n1=2)
    setup.pending("p", 2)
    await ask(setup)
    assert (setup.free("n1"), setup.phase()) == (0, "bound")
    setup.bound("p", "n1", "GPU-n1-0", "GPU-n1-1")
    assert (setup.free("n1"), setup.phase()) == (0, None)


async def test_the_devices_of_the_reservation_are_the_ones_bound():
    setup = ExtenderSetup().pool(n1=4)
    setup.reserve("other", 1, "n1")
    reserved = setup.reserve("p", 2, "n1")
    setup.allocation_state.release(names.PodUid("uid-other"))
    setup.pending("p", 2)
    await ask(setup)
    assert setup.binder.bound["uid-p"].devices == reserved.devices


async def test_a_reservation_elsewhere_is_given_up_for_the_node_that_was_chosen():
    setup = ExtenderSetup().pool(n1=1, n2=1)
    setup.reserve("p", 1, "n1")
    setup.pending("p", 1)
    assert await ask(setup, node="n2") == ("", "bound")
    assert (setup.free("n1"), setup.free("n2")) == (1, 0)


async def test_a_node_that_filled_up_meanwhile_is_refused_without_a_write():
    setup = ExtenderSetup().pool(n1=2)
    setup.pending("p", 2)
    setup.bound("a", "n1", "GPU-n1-0")
    assert await ask(setup) == ("GPU pool whole: 2 requested, 1 free (1 used of 2)", "refused")
    assert setup.binder.bindings == []
    assert setup.phase() is None


async def test_of_two_pods_bound_at_once_to_the_last_unit_one_wins():
    """Lesson 32: nothing may come between the read that justifies a commit and the commit."""
    setup = ExtenderSetup().pool(n1=1)
    setup.pending("a", 1)
    setup.pending("b", 1)
    setup.binder.pause = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(ask(setup, name)) for name in ("a", "b")]
        await setup.binder.sent.wait()
        setup.binder.pause.set()
    assert sorted(call.result()[1] for call in calls) == ["bound", "refused"]
    assert len(setup.binder.bindings) == 1


async def test_a_bind_that_is_repeated_while_under_way_is_not_sent_twice():
    setup = ExtenderSetup().pool(n1=2)
    setup.pending("p", 1)
    setup.binder.pause = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(ask(setup))
        await setup.binder.sent.wait()
        assert await ask(setup) == (
            "pod default/p: its binding to node n1 is under way",
            "under_way",
        )
        setup.binder.pause.set()
    assert first.result() == ("", "bound")
    assert len(setup.binder.bindings) == 1


@pytest.mark.parametrize("is_observed", [False, True])
async def test_a_repeated_bind_of_a_bound_pod_succeeds_without_a_write(is_observed):
    """Lesson 29: the first bind succeeded, and kube-scheduler had timed out."""
    setup = ExtenderSetup().pool(n1=1)
    setup.pending("p", 1)
    await ask(setup)
    if is_observed:
        setup.bound("p", "n1", "GPU-n1-0")
    assert await ask(setup) == ("", "already_bound")
    assert len(setup.binder.bindings) == 1


@pytest.mark.parametrize("is_observed", [False, True])
async def test_repeated_bind_of_a_pod_that_is_pending_again_is_no_success(is_observed):
    """etcd was restored from a backup of before the first bind."""
    setup = ExtenderSetup().pool(n1=1)
    setup.pending("p", 1)
    await ask(setup)
    if is_observed:
        setup.bound("p", "n1", "GPU-n1-0")
    setup.binder.bound.clear()
    error, outcome = await ask(setup)
    assert outcome == "refused"
    assert error == "pod default/p was bound to node n1, but the API server does not show it bound"
    if not is_observed:
        assert await ask(setup) == ("", "bound")
        assert len(setup.binder.bindings) == 2


@pytest.mark.parametrize("is_observed", [False, True])
async def test_a_bound_pod_is_not_bound_elsewhere(is_observed):
    setup = ExtenderSetup().pool(n1=1, n2=1)
    setup.pending("p", 1)
    await ask(setup)
    if is_observed:
        setup.bound("p", "n1", "GPU-n1-0")
    error, outcome = await ask(setup, node="n2")
    assert error == "pod default/p cannot be bound to node n2: it is bound to node n1"
    assert outcome == "bound_elsewhere"
    assert setup.free("n2") == 1


async def test_a_pod_of_no_pool_that_filter_saw_is_bound_plainly():
    """Lesson 38: with a bindVerb and no managedResources nobody else binds it."""
    setup = ExtenderSetup()
    filter_nodes(extender_args(a_wire_pod("plain"), "n1"), setup.context)
    assert await ask(setup, "plain") == ("", "bound")
    (binding,) = setup.binder.bindings
    assert (binding.node, binding.uid, binding.annotations) == ("n1", "uid-plain", {})
    assert len(setup.allocation_state.ledger) == 0


async def test_a_plain_pod_bound_before_is_a_success_on_the_same_node_only():
    setup = ExtenderSetup()
    filter_nodes(extender_args(a_wire_pod("plain"), "n1"), setup.context)
    setup.binder.bound["uid-plain"] = seen_on("n1")
    assert await ask(setup, "plain") == ("", "already_bound")
    error, outcome = await ask(setup, "plain", node="n2")
    assert error == 'pod plain is already assigned to node "n1"'
    assert outcome == "refused"


async def test_a_plain_pod_that_is_refused_or_lost_is_an_error():
    setup = ExtenderSetup()
    filter_nodes(extender_args(a_wire_pod("plain"), "n1"), setup.context)
    setup.binder.fail_next = [BindRefused("forbidden", is_conflict=False)]
    assert await ask(setup, "plain") == ("forbidden", "refused")
    assert setup.binder.reads == []
    setup.binder.lose_next = True
    error, outcome = await ask(setup, "plain")
    assert error.startswith("it is not known whether the API server bound pod default/plain")
    assert outcome == "in_doubt"
    assert await ask(setup, "plain") == ("", "already_bound")


async def test_a_pod_that_nobody_has_seen_is_never_taken_for_one_of_no_pool():
    setup = ExtenderSetup().pool(n1=1)
    error, outcome = await ask(setup)
    assert error == (
        "pod default/p (uid uid-p) was shown neither by the watch nor to filter yet; "
        "the next attempt will know it"
    )
    assert (outcome, setup.binder.bindings) == ("unknown_pod", [])
    filter_nodes(extender_args(a_wire_pod("p", whole=1), "n1"), setup.context)
    assert await ask(setup) == ("", "bound")
    assert setup.phase() == "bound"


async def test_a_pod_ahead_of_the_watch_is_bound_from_its_reservation():
    setup = ExtenderSetup().pool(n1=2)
    reserved = setup.reserve("p", 2, "n1")
    assert await ask(setup) == ("", "bound")
    assert setup.binder.bound["uid-p"].devices == reserved.devices


async def test_the_watch_outranks_what_filter_saw():
    setup = ExtenderSetup().pool(n1=2)
    filter_nodes(extender_args(a_wire_pod("p"), "n1"), setup.context)
    setup.pending("p", 2)
    await ask(setup)
    assert setup.binder.bound["uid-p"].devices == {"c0": ("GPU-n1-0", "GPU-n1-1")}


async def test_nothing_is_bound_before_the_caches_are_synced():
    setup = ExtenderSetup().pool(n1=1)
    setup.pending("p", 1)
    setup.is_ready = False
    error, outcome = await ask(setup)
    assert error == "gpu-control-plane is not ready: its caches are not synced"
    assert (outcome, setup.binder.bindings) == ("not_ready", [])


async def test_a_uid_of_another_pod_is_refused():
    setup = ExtenderSetup().pool(n1=1)
    setup.pending("p", 1)
    error, outcome = await ask(setup, "q", PodUID="uid-p")
    assert error == "uid uid-p is of pod default/p, not of default/q"
    assert (outcome, setup.binder.bindings) == ("malformed", [])


async def test_a_pool_that_is_gone_binds_nobody():
    setup = ExtenderSetup().pool(n1=1)
    setup.pending("p", 1)
    setup.allocation_state.index.discard_pool(a_pool().name)
    assert await ask(setup) == ("no GPUPool serves gpu.deckhouse.io/whole", "impossible")


async def test_a_pod_that_ended_before_it_ran_is_not_bound():
    setup = ExtenderSetup().pool(n1=1)
    setup.allocation_state.observe_pod(a_pod_facts("p", 1, phase=PodPhase.ENDED), setup.time.now())
    assert await ask(setup) == ("pod default/p has ended", "refused")
    assert setup.binder.bindings == []


async def test_a_reservation_whose_device_moved_to_another_pool_is_refused_in_words():
    setup = ExtenderSetup().pool(n1=1).pool(a_pool("other"))
    setup.reserve("p", 1, "n1")
    setup.allocation_state.index.replace_device(a_device("n1", 0, pool="other"))
    assert await ask(setup) == ("GPU pool whole: node has no device of the pool", "refused")


async def test_the_log_line_names_the_devices():
    setup = ExtenderSetup().pool(n1=1)
    setup.pending("p", 1)
    answer = await bind(binding_args(), setup.context)
    assert answer.facts == {
        "pod": "default/p",
        "uid": "uid-p",
        "node": "n1",
        "pool": "whole",
        "devices": {"c0": ("GPU-n1-0",)},
        "reservation": "r0",
        "quality": "single",
        "strategy": "LeastFragmentation",
    }


async def test_the_log_line_has_the_strategy_and_what_the_pod_took_of_the_nodes_value():
    """The same figure whether units were reserved or not: a pod is no loss to itself."""
    setup = ExtenderSetup().pool(n1=8)
    index = setup.allocation_state.index
    target = TargetWorkload(((TargetShape(0, 1000, 1), 8.0), (TargetShape(0, 1000, 4), 1.0)))
    index.rank(PlacementCosts(a_pool(), target))
    lost = index.state(a_pool().name).value_lost(a_demand(2), names.NodeName("n1"))
    assert lost is not None
    assert lost > 2000, "two devices, and the room for one pod of four"
    setup.reserve("p", 2, "n1")
    reserved = await bind(binding_args("p", "n1"), setup.context)
    setup = ExtenderSetup().pool(n1=8)
    setup.allocation_state.index.rank(PlacementCosts(a_pool(), target))
    setup.pending("q", 2)
    planned = await bind(binding_args("q", "n1"), setup.context)
    for answer in (reserved, planned):
        assert answer.facts["strategy"] == "LeastFragmentation"
        assert answer.facts["value_lost"] == lost
    again = await bind(binding_args("q", "n1"), setup.context)
    assert "value_lost" not in again.facts, "nothing was decided"
