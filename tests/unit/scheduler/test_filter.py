"""filter: who passes, who fails and in which words."""

import copy
import json
from typing import Any

import pytest
from msgspec.structs import replace

from api.clock import Instant
from api.names import NodeName, PodUid
from pool.reservations.reservation import ReservationPhase
from scheduler.extender import filter_nodes
from tests.support.builders import EPOCH, a_device, a_node, a_pool, a_slice_pool
from tests.support.scheduling import ExtenderSetup, a_wire_pod, extender_args


def ask(setup: ExtenderSetup, pod: dict[str, Any], *names: str) -> Any:
    return json.loads(filter_nodes(extender_args(pod, *names), setup.context).body)


def outcome(setup: ExtenderSetup, pod: dict[str, Any], *names: str) -> str:
    return filter_nodes(extender_args(pod, *names), setup.context).outcome


def with_init_containers(count: int, units: int) -> dict[str, Any]:
    """A pod that was stored though admission would have refused it."""
    pod = a_wire_pod(whole=1)
    resources = {"limits": {"gpu.deckhouse.io/whole": str(units)}}
    pod["spec"]["initContainers"] = [
        {"name": f"i{number}", "resources": resources} for number in range(count)
    ]
    return pod


def test_pod_of_no_pool_may_have_as_many_containers_as_it_likes():
    pod = with_init_containers(5_000, 1)
    for container in [*pod["spec"]["containers"], *pod["spec"]["initContainers"]]:
        del container["resources"]
    assert outcome(ExtenderSetup().pool(n1=1), pod, "n1") == "not_ours"


def test_all_nodes_that_fit_pass_in_their_order():
    """Lesson 26: one node alone would disable in-tree scoring."""
    setup = ExtenderSetup().pool(n1=2, n2=2, n3=2)
    reply = ask(setup, a_wire_pod(whole=2), "n3", "n1", "n2")
    assert reply["NodeNames"] == ["n3", "n1", "n2"]


def test_a_pod_of_no_pool_passes_everywhere_even_while_we_are_not_ready():
    """Lesson 38: without managedResources every pod of the scheduler comes here."""
    setup = ExtenderSetup().pool(n1=1)
    setup.is_ready = False
    assert ask(setup, a_wire_pod(), "n1", "stranger")["NodeNames"] == ["n1", "stranger"]
    assert outcome(setup, a_wire_pod(), "n1") == "not_ours"


def test_a_pool_pod_is_not_judged_before_the_caches_are_synced():
    setup = ExtenderSetup().pool(n1=1)
    setup.is_ready = False
    reply = ask(setup, a_wire_pod(whole=1), "n1")
    assert reply["Error"] == "gpu-control-plane is not ready: its caches are not synced"
    assert outcome(setup, a_wire_pod(whole=1), "n1") == "not_ready"


def test_a_full_node_fails_with_its_figures_and_may_be_preempted():
    setup = ExtenderSetup().pool(n1=4)
    setup.bound("a", "n1", "GPU-n1-0", "GPU-n1-1")
    setup.reserve_and_observe("b", 1, "n1")
    reply = ask(setup, a_wire_pod(whole=2), "n1")
    assert reply["FailedNodes"] == {
        "n1": "GPU pool whole: 2 requested, 1 free (2 used, 1 reserved of 4)"
    }
    assert reply["NodeNames"] == []
    assert reply["FailedAndUnresolvableNodes"] == {}


def test_what_no_eviction_can_fix_is_unresolvable():
    """Lesson 35: a wrong part of the reply makes preemption try those nodes."""
    setup = ExtenderSetup().pool(small=1, sick=2)
    setup.allocation_state.index.replace_device(a_device("sick", 0, is_faulted=True))
    setup.allocation_state.index.replace_node(a_node("plain"))
    setup.pool(a_pool("other"), elsewhere=8)
    reply = ask(setup, a_wire_pod(whole=2), "small", "sick", "plain", "elsewhere", "stranger")
    assert reply["FailedNodes"] == {}
    assert reply["FailedAndUnresolvableNodes"] == {
        "small": "GPU pool whole: 2 requested, node has 1",
        "sick": "GPU pool whole: 2 requested, node has 2, 1 of them unhealthy",
        "plain": "GPU pool whole: node has no device of the pool",
        "elsewhere": "GPU pool whole: node has no device of the pool",
        "stranger": "GPU pool whole: node is not known to the GPU control plane",
    }


def test_a_node_with_a_pod_on_unknown_devices_fails_and_may_be_preempted():
    setup = ExtenderSetup().pool(n1=4)
    setup.bound("stranger", "n1")
    reply = ask(setup, a_wire_pod(whole=1), "n1")
    assert reply["FailedNodes"] == {"n1": "GPU pool whole: node runs a pod with unknown devices"}


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        pytest.param(
            a_wire_pod(whole=1, slices=1),
            "the pod names several GPU pools (gpu.deckhouse.io/slices, gpu.deckhouse.io/whole); "
            "only one is possible",
            id="two pools",
        ),
        pytest.param(
            a_wire_pod(whole="500m"),
            'container c0: gpu.deckhouse.io/whole is "500m", not a whole number',
            id="half a unit",
        ),
        pytest.param(
            a_wire_pod(whole="9" * 5_000),
            f'container c0: gpu.deckhouse.io/whole is "{"9" * 253}...", not a whole number',
            id="a number without end",
        ),
        pytest.param(
            a_wire_pod("p", **{f"p{number}": 1 for number in range(1_000)}),
            "the pod names several GPU pools (gpu.deckhouse.io/p0, gpu.deckhouse.io/p1, "
            "gpu.deckhouse.io/p10, gpu.deckhouse.io/p100, gpu.deckhouse.io/p101 and 995 more); "
            "only one is possible",
            id="a thousand pools",
        ),
        pytest.param(
            with_init_containers(1_000, 1),
            "spec.containers and spec.initContainers have 1001 containers, at most 1000 are allowed",
            id="more containers than a node runs",
        ),
        pytest.param(
            with_init_containers(300, 8),
            "the containers request 2401 units in total, at most 2048 are allowed: let fewer init"
            " containers request units",
            id="units handed on again and again",
        ),
        pytest.param(
            a_wire_pod(nowhere=1),
            "no GPUPool serves gpu.deckhouse.io/nowhere",
            id="no such pool",
        ),
    ],
)
def test_a_pod_that_nothing_can_serve_fails_everywhere_for_good(pod, text):
    setup = ExtenderSetup().pool(n1=1).pool(a_slice_pool(), n2=1)
    reply = ask(setup, pod, "n1", "n2")
    assert reply["FailedAndUnresolvableNodes"] == {"n1": text, "n2": text}
    assert (reply["NodeNames"], reply["FailedNodes"], reply["Error"]) == ([], {}, "")
    assert outcome(setup, pod, "n1") == "impossible"


def test_a_pod_passes_on_the_node_of_its_reservation_alone():
    setup = ExtenderSetup().pool(n1=2, n2=2, n3=2)
    setup.reserve_and_observe("p", 2, "n1")
    reply = ask(setup, a_wire_pod("p", whole=2), "n2", "n1", "n3")
    assert (reply["NodeNames"], reply["FailedNodes"]) == (["n1"], {})
    assert ask(setup, a_wire_pod("q", whole=2), "n1", "n2", "n3")["NodeNames"] == ["n2", "n3"]


def test_a_pod_passes_on_all_nodes_that_fit_where_that_of_its_reservation_is_not_asked_about():
    """kube-scheduler asks about some hundreds of many nodes."""
    setup = ExtenderSetup().pool(n1=2, n2=2, n3=2)
    setup.reserve("p", 2, "n1")
    assert ask(setup, a_wire_pod("p", whole=2), "n2", "n3")["NodeNames"] == ["n2", "n3"]


def test_a_pod_passes_on_all_nodes_that_fit_where_that_of_its_reservation_does_not():
    setup = ExtenderSetup().pool(n1=2, n2=2, n3=2)
    setup.reserve("p", 2, "n1")
    setup.allocation_state.index.replace_device(a_device("n1", 0, is_faulted=True))
    assert ask(setup, a_wire_pod("p", whole=2), "n1", "n2", "n3")["NodeNames"] == ["n2", "n3"]


def test_a_reservation_that_lost_its_device_does_not_pass_its_node():
    setup = ExtenderSetup().pool(n1=2)
    setup.reserve("p", 2, "n1")
    setup.allocation_state.index.replace_device(a_device("n1", 0, is_faulted=True))
    reply = ask(setup, a_wire_pod("p", whole=2), "n1")
    assert reply["FailedAndUnresolvableNodes"] == {
        "n1": "GPU pool whole: 2 requested, node has 2, 1 of them unhealthy"
    }


def test_a_reserved_device_that_moved_to_another_pool_is_not_counted_for_the_old_one():
    setup = ExtenderSetup().pool(n1=2).pool(a_pool("other"))
    setup.reserve("p", 2, "n1")
    setup.allocation_state.index.replace_device(a_device("n1", 1, pool="other"))
    reply = ask(setup, a_wire_pod("p", whole=2), "n1")
    assert reply["FailedAndUnresolvableNodes"] == {"n1": "GPU pool whole: 2 requested, node has 1"}


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (ReservationPhase.COMMITTED, "its binding to node n1 is under way"),
        (ReservationPhase.DOUBTFUL, "its binding to node n1 is in doubt"),
        (ReservationPhase.BOUND, "it is bound to node n1"),
    ],
)
def test_a_pod_whose_binding_was_sent_may_go_nowhere_else(phase, words):
    setup = ExtenderSetup().pool(n1=1, n2=1)
    reserved = setup.reserve("p", 1, "n1")
    setup.allocation_state.ledger.move(
        replace(setup.allocation_state.ledger.get(reserved.id) or reserved, phase=phase)
    )
    reply = ask(setup, a_wire_pod("p", whole=1), "n1", "n2")
    assert reply["NodeNames"] == ["n1"]
    assert reply["FailedAndUnresolvableNodes"] == {"n2": f"GPU pool whole: {words}"}


def test_a_pod_that_the_watch_shows_bound_may_go_nowhere_else():
    setup = ExtenderSetup().pool(n1=1, n2=1)
    setup.bound("p", "n1", "GPU-n1-0")
    reply = ask(setup, a_wire_pod("p", whole=1), "n1", "n2")
    assert reply["NodeNames"] == ["n1"]
    assert reply["FailedAndUnresolvableNodes"] == {"n2": "GPU pool whole: it is bound to node n1"}


def test_slices_are_counted_as_units():
    setup = ExtenderSetup().pool(a_slice_pool(slices=4), n1=1)
    setup.bound("a", "n1", "GPU-n1-0::0", "GPU-n1-0::1", pool="slices")
    assert ask(setup, a_wire_pod(slices=2), "n1")["NodeNames"] == ["n1"]
    assert ask(setup, a_wire_pod(slices=3), "n1")["FailedNodes"] == {
        "n1": "GPU pool slices: 3 requested, 2 free (2 used of 4)"
    }


def test_filtering_any_number_of_times_takes_nothing():
    """Lessons 31 and 33: a simulation cannot be told from a real call, and leaves no reservation."""
    setup = ExtenderSetup().pool(n1=1)
    generation = setup.allocation_state.index.generation
    for number in range(5):
        assert ask(setup, a_wire_pod(f"p{number}", whole=1), "n1")["NodeNames"] == ["n1"]
    assert len(setup.allocation_state.ledger) == 0
    assert setup.free("n1") == 1
    assert setup.allocation_state.index.generation == generation


def test_a_simulated_pod_without_uid_is_judged_like_any_other():
    setup = ExtenderSetup().pool(n1=1)
    pod = copy.deepcopy(a_wire_pod(whole=1))
    del pod["metadata"]["uid"]
    assert ask(setup, pod, "n1")["NodeNames"] == ["n1"]


def test_an_expired_reservation_frees_its_node_for_others():
    """Lesson 31: a pod that fails later in the cycle loses its reservation to the TTL."""
    setup = ExtenderSetup().pool(n1=1)
    setup.reserve_and_observe("p", 1, "n1")
    assert ask(setup, a_wire_pod("q", whole=1), "n1")["NodeNames"] == []
    setup.allocation_state.expire(Instant(setup.time.seconds + 121, EPOCH))
    assert ask(setup, a_wire_pod("q", whole=1), "n1")["NodeNames"] == ["n1"]


def test_an_empty_list_of_names_is_answered_empty():
    setup = ExtenderSetup().pool(n1=1)
    reply = ask(setup, a_wire_pod(whole=1))
    assert (reply["NodeNames"], reply["Error"]) == ([], "")


def test_the_log_line_names_pod_pool_and_figures():
    setup = ExtenderSetup().pool(n1=1, n2=2)
    answer = filter_nodes(extender_args(a_wire_pod(whole=2), "n1", "n2"), setup.context)
    assert answer.facts == {
        "pod": "default/p",
        "uid": PodUid("uid-p"),
        "pool": "whole",
        "units": 2,
        "nodes": 2,
        "fit": 1,
    }
    assert setup.allocation_state.index.knows_node(NodeName("n1"))
