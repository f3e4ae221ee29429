"""bind: one write, named devices, and the same answer to the same question."""

import asyncio
import json

import pytest

from api.annotations import decode_devices
from api.names import DEVICES_ANNOTATION, LEADER_ANNOTATION, POOL_LABEL, PodUid
from pool.model import PodPhase
from scheduler.extender import bind, filter_nodes
from scheduler.ports import BindRefused
from tests.support.builders import a_device, a_pod_facts, a_pool
from tests.support.scheduling import Scene, a_wire_pod, binding_args, extender_args, seen_on


async def ask(scene: Scene, name: str = "p", node: str = "n1", **changes: str) -> tuple[str, str]:
    answer = await bind(binding_args(name, node, **changes), scene.context)
    return json.loads(answer.body)["Error"], str(answer.outcome)


async def test_a_pod_is_bound_to_named_devices_with_one_write():
    """trap 18: one API write per bind, so that it stays far below httpTimeout."""
    scene = Scene().pool(n1=4)
    scene.pending("p", 2)
    assert await ask(scene) == ("", "bound")
    (binding,) = scene.binder.bindings
    assert (binding.namespace, binding.name, binding.uid) == ("default", "p", "uid-p")
    assert binding.node == "n1"
    assert decode_devices(binding.annotations[DEVICES_ANNOTATION]) == {
        "c0": ("GPU-n1-0", "GPU-n1-1")
    }
    assert scene.binder.looks == []


async def test_a_binding_says_under_which_term_it_was_decided():
    scene = Scene(leader="first/1").pool(n1=4)
    scene.pending("p", 1)
    await ask(scene)
    scene.leader = "first/3"
    scene.pending("q", 1)
    await ask(scene, "q")
    terms = [binding.annotations[LEADER_ANNOTATION] for binding in scene.binder.bindings]
    assert terms == ["first/1", "first/3"]
    assert all(binding.is_fenced for binding in scene.binder.bindings)


async def test_a_binding_gives_the_pod_the_label_by_which_the_next_leader_lists():
    scene = Scene().pool(n1=4)
    scene.pending("p", 1)
    await ask(scene)
    (binding,) = scene.binder.bindings
    assert binding.labels == {POOL_LABEL: "whole"}


async def test_a_binding_says_nothing_of_a_term_where_nobody_is_elected():
    scene = Scene().pool(n1=4)
    scene.pending("p", 1)
    await ask(scene)
    (binding,) = scene.binder.bindings
    assert set(binding.annotations) == {DEVICES_ANNOTATION}
    assert not binding.is_fenced


async def test_the_units_stay_taken_until_the_watch_shows_the_binding():
    scene = Scene().pool(n1=2)
    scene.pending("p", 2)
    await ask(scene)
    assert (scene.free("n1"), scene.phase()) == (0, "bound")
    scene.bound("p", "n1", "GPU-n1-0", "GPU-n1-1")
    assert (scene.free("n1"), scene.phase()) == (0, None)


async def test_the_devices_of_the_hold_are_the_ones_bound():
    scene = Scene().pool(n1=4)
    scene.hold("other", 1, "n1")
    held = scene.hold("p", 2, "n1")
    scene.allocation_state.release(PodUid("uid-other"))
    scene.pending("p", 2)
    await ask(scene)
    assert scene.binder.bound["uid-p"].devices == held.devices


async def test_a_hold_elsewhere_is_given_up_for_the_node_that_was_chosen():
    scene = Scene().pool(n1=1, n2=1)
    scene.hold("p", 1, "n1")
    scene.pending("p", 1)
    assert await ask(scene, node="n2") == ("", "bound")
    assert (scene.free("n1"), scene.free("n2")) == (1, 0)


async def test_a_node_that_filled_up_meanwhile_is_refused_without_a_write():
    scene = Scene().pool(n1=2)
    scene.pending("p", 2)
    scene.bound("a", "n1", "GPU-n1-0")
    assert await ask(scene) == ("GPU pool whole: 2 requested, 1 free (1 used of 2)", "refused")
    assert scene.binder.bindings == []
    assert scene.phase() is None


async def test_of_two_pods_bound_at_once_to_the_last_unit_one_wins():
    """trap 11: nothing may come between the read that justifies a commit and the commit."""
    scene = Scene().pool(n1=1)
    scene.pending("a", 1)
    scene.pending("b", 1)
    scene.binder.hold = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(ask(scene, name)) for name in ("a", "b")]
        await scene.binder.sent.wait()
        scene.binder.hold.set()
    assert sorted(call.result()[1] for call in calls) == ["bound", "refused"]
    assert len(scene.binder.bindings) == 1


async def test_a_bind_that_is_repeated_while_under_way_is_not_sent_twice():
    scene = Scene().pool(n1=2)
    scene.pending("p", 1)
    scene.binder.hold = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(ask(scene))
        await scene.binder.sent.wait()
        assert await ask(scene) == (
            "pod default/p: its binding to node n1 is under way",
            "under_way",
        )
        scene.binder.hold.set()
    assert first.result() == ("", "bound")
    assert len(scene.binder.bindings) == 1


@pytest.mark.parametrize("is_observed", [False, True])
async def test_a_repeated_bind_of_a_bound_pod_succeeds_without_a_write(is_observed):
    """trap 8: the first bind succeeded, and kube-scheduler had timed out."""
    scene = Scene().pool(n1=1)
    scene.pending("p", 1)
    await ask(scene)
    if is_observed:
        scene.bound("p", "n1", "GPU-n1-0")
    assert await ask(scene) == ("", "already_bound")
    assert len(scene.binder.bindings) == 1


@pytest.mark.parametrize("is_observed", [False, True])
async def test_a_bound_pod_is_not_bound_elsewhere(is_observed):
    scene = Scene().pool(n1=1, n2=1)
    scene.pending("p", 1)
    await ask(scene)
    if is_observed:
        scene.bound("p", "n1", "GPU-n1-0")
    error, outcome = await ask(scene, node="n2")
    assert error == "pod default/p cannot be bound to node n2: it is bound to node n1"
    assert outcome == "bound_elsewhere"
    assert scene.free("n2") == 1


async def test_a_pod_of_no_pool_that_filter_saw_is_bound_plainly():
    """trap 17: with a bindVerb and no managedResources nobody else binds it."""
    scene = Scene()
    filter_nodes(extender_args(a_wire_pod("plain"), "n1"), scene.context)
    assert await ask(scene, "plain") == ("", "bound")
    (binding,) = scene.binder.bindings
    assert (binding.node, binding.uid, binding.annotations) == ("n1", "uid-plain", {})
    assert len(scene.allocation_state.ledger) == 0


async def test_a_plain_pod_bound_before_is_a_success_on_the_same_node_only():
    scene = Scene()
    filter_nodes(extender_args(a_wire_pod("plain"), "n1"), scene.context)
    scene.binder.bound["uid-plain"] = seen_on("n1")
    assert await ask(scene, "plain") == ("", "already_bound")
    error, outcome = await ask(scene, "plain", node="n2")
    assert error == 'pod plain is already assigned to node "n1"'
    assert outcome == "refused"


async def test_a_plain_pod_that_is_refused_or_lost_is_an_error():
    scene = Scene()
    filter_nodes(extender_args(a_wire_pod("plain"), "n1"), scene.context)
    scene.binder.fail_next = [BindRefused("forbidden", is_conflict=False)]
    assert await ask(scene, "plain") == ("forbidden", "refused")
    assert scene.binder.looks == []
    scene.binder.lose_next = True
    error, outcome = await ask(scene, "plain")
    assert error.startswith("it is not known whether the API server bound pod default/plain")
    assert outcome == "in_doubt"
    assert await ask(scene, "plain") == ("", "already_bound")


async def test_a_pod_that_nobody_has_seen_is_never_taken_for_one_of_no_pool():
    scene = Scene().pool(n1=1)
    error, outcome = await ask(scene)
    assert error == (
        "pod default/p (uid uid-p) was shown neither by the watch nor to filter yet; "
        "the next attempt will know it"
    )
    assert (outcome, scene.binder.bindings) == ("unknown_pod", [])
    filter_nodes(extender_args(a_wire_pod("p", whole=1), "n1"), scene.context)
    assert await ask(scene) == ("", "bound")
    assert scene.phase() == "bound"


async def test_a_pod_ahead_of_the_watch_is_bound_from_its_hold():
    scene = Scene().pool(n1=2)
    held = scene.hold("p", 2, "n1")
    assert await ask(scene) == ("", "bound")
    assert scene.binder.bound["uid-p"].devices == held.devices


async def test_the_watch_outranks_what_filter_saw():
    scene = Scene().pool(n1=2)
    filter_nodes(extender_args(a_wire_pod("p"), "n1"), scene.context)
    scene.pending("p", 2)
    await ask(scene)
    assert scene.binder.bound["uid-p"].devices == {"c0": ("GPU-n1-0", "GPU-n1-1")}


async def test_nothing_is_bound_before_the_caches_are_synced():
    scene = Scene().pool(n1=1)
    scene.pending("p", 1)
    scene.is_ready = False
    error, outcome = await ask(scene)
    assert error == "gpu-control-plane is not ready: its caches are not synced"
    assert (outcome, scene.binder.bindings) == ("not_ready", [])


async def test_a_uid_of_another_pod_is_refused():
    scene = Scene().pool(n1=1)
    scene.pending("p", 1)
    error, outcome = await ask(scene, "q", PodUID="uid-p")
    assert error == "uid uid-p is of pod default/p, not of default/q"
    assert (outcome, scene.binder.bindings) == ("malformed", [])


async def test_a_pool_that_is_gone_binds_nobody():
    scene = Scene().pool(n1=1)
    scene.pending("p", 1)
    scene.allocation_state.index.discard_pool(a_pool().name)
    assert await ask(scene) == ("no GPUPool serves gpu.deckhouse.io/whole", "impossible")


async def test_a_pod_that_ended_before_it_ran_is_not_bound():
    scene = Scene().pool(n1=1)
    scene.allocation_state.observe_pod(a_pod_facts("p", 1, phase=PodPhase.ENDED), scene.time.now())
    assert await ask(scene) == ("pod default/p has ended", "refused")
    assert scene.binder.bindings == []


async def test_a_hold_whose_device_moved_to_another_pool_is_refused_in_words():
    scene = Scene().pool(n1=1).pool(a_pool("other"))
    scene.hold("p", 1, "n1")
    scene.allocation_state.index.replace_device(a_device("n1", 0, pool="other"))
    assert await ask(scene) == ("GPU pool whole: node has no device of the pool", "refused")


async def test_the_log_line_names_the_devices():
    scene = Scene().pool(n1=1)
    scene.pending("p", 1)
    answer = await bind(binding_args(), scene.context)
    assert answer.facts == {
        "pod": "default/p",
        "uid": "uid-p",
        "node": "n1",
        "pool": "whole",
        "devices": {"c0": ("GPU-n1-0",)},
        "reservation": "r0",
    }
