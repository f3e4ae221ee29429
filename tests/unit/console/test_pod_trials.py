"""Pods that are tried on the live state are placed as `kubectl gpu whatif` places them on a copy, and leave nothing."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.names import PoolName
from cli.simulation.pod_file import pod_of_object
from cli.simulation.pod_scheduling import PodCreator
from console.console_data import BadQuestionError, PodTrial
from console.data.answers import pod_trials
from console.data.read_scope import ReadScope
from console.rows import WhatIfAnswer
from kubectl_gpu.what_if.trial_pods import try_pods as try_pods_on_copy
from kubectl_gpu.what_if.verb import copy_of
from tests.support.cluster_objects import (
    Object,
    a_device_object,
    a_node_object,
    a_pod_object,
    a_pool_object,
    two_nodes,
)
from tests.support.console_feed import ConsoleFeed
from tests.support.console_worlds import ConsoleWorld
from tests.support.listed_clusters import clusters
from tests.support.listed_objects import ListedObjects
from tests.support.plugin_cluster import labelled

STRATEGIES = ("BinPack", "Spread", "LeastFragmentation")


def fed(objects: list[Object]) -> ConsoleFeed:
    """Return a console that has read these lists."""
    pods = [object_ for object_ in objects if object_["kind"] == "Pod"]
    feed = ConsoleFeed(object_ for object_ in objects if object_["kind"] != "Pod")
    feed.list_pods(pods)
    feed.flush()
    return feed


def tried(feed: ConsoleFeed, **trial: Any) -> WhatIfAnswer:
    return pod_trials.try_pods(
        feed.state, feed.rows.explanations, PodTrial(**trial), viewer=feed.viewer()
    )


def of_plugin(objects: list[Object], *, units: int, times: int, cordoned: list[str]) -> Any:
    snapshot = copy_of(ListedObjects(objects), cordoned=cordoned)
    limits = {"gpu.deckhouse.io/whole": str(units)}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "what-if"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
    asked = pod_of_object(pod, where="the test", namespace="default")
    assert asked is not None
    return try_pods_on_copy(asked, times, snapshot, caller=PodCreator())


@given(
    objects=clusters(),
    units=st.integers(1, 4),
    times=st.integers(1, 8),
    strategy=st.sampled_from(STRATEGIES),
    topology=st.sampled_from(["Preferred", "Required"]),
    rejects=st.booleans(),
    is_cordoned=st.booleans(),
)
def test_the_answer_is_that_of_the_plugin(
    objects: list[Object],
    units: int,
    times: int,
    strategy: str,
    topology: str,
    rejects: bool,
    is_cordoned: bool,
):
    for object_ in objects:
        if object_["kind"] == "GPUPool":
            object_["spec"]["scheduling"] = {"strategy": strategy, "deviceTopology": topology}
            exhausted = "Reject" if rejects else "Pend"
            object_["spec"]["reservation"] = {"ttl": "2m", "whenExhausted": exhausted}
    cordoned = ["n0"] if is_cordoned else []
    expected = of_plugin(objects, units=units, times=times, cordoned=cordoned)
    nodes = Counter(item.placement.node for item in expected.placed)
    answer = tried(fed(objects), pool="whole", units=units, times=times, cordoned=tuple(cordoned))
    assert {item.node: item.pods for item in answer.placed} == dict(nodes)
    assert answer.fits is expected.fits
    assert answer.pods == times
    assert all(item.units == item.pods * units for item in answer.placed)


def everything(feed: ConsoleFeed) -> dict[str, object]:
    """Return all that a trial could leave behind."""
    state = feed.state
    index = state.index
    changes = index.changes
    return {
        "masks": {
            device.facts.name: (device.observed, device.assumed, device.confirmed)
            for device in index.devices.all()
        },
        "nodes": dict(index.nodes),
        "figures": {pool.name: dict(index.state(pool.name).nodes()) for pool in index.pools()},
        "nodes_by_available": {
            pool.name: dict(index.state(pool.name).nodes_by_available()) for pool in index.pools()
        },
        "capacity": {pool.name: index.state(pool.name).capacity() for pool in index.pools()},
        "reservations": sorted(state.reader.ledger.all(), key=lambda reservation: reservation.id),
        "pods": {pod.uid: pod for pod in state.reader.pods.all()},
        "waiting": {pod.uid for pod in state.reader.pods.all_waiting()},
        "ended": state.ended.rows(state.now().utc),
        "changes": (set(changes.devices), set(changes.nodes), set(changes.pools)),
        "changed": repr(state.changed),
        "requests": {node: index.requests.on(node) for node in index.nodes},
    }


@given(
    seed=st.integers(0, 10**9),
    changes=st.integers(0, 60),
    pool=st.sampled_from(["whole", "slices"]),
    units=st.integers(1, 4),
    times=st.integers(1, 12),
    cordoned=st.sets(st.sampled_from(["n0", "n1", "n2"])),
)
def test_the_state_is_afterwards_as_before(
    seed: int, changes: int, pool: str, units: int, times: int, cordoned: set[str]
):
    feed = ConsoleFeed()
    world = ConsoleWorld(feed, seed)
    for _ in range(changes):
        world.change()
    before = everything(feed)
    try:
        first = tried(feed, pool=pool, units=units, times=times, cordoned=tuple(cordoned))
    except BadQuestionError:
        assert everything(feed) == before
        return
    assert everything(feed) == before
    again = tried(feed, pool=pool, units=units, times=times, cordoned=tuple(cordoned))
    assert again == first
    feed.tick()


@pytest.mark.parametrize(
    ("trial", "text"),
    [
        pytest.param({"pool": "none", "units": 1}, "there is no pool none", id="pool"),
        pytest.param(
            {"pool": "whole", "units": 1, "cordoned": ("n9", "n1")},
            "there is no node n9",
            id="node",
        ),
        pytest.param(
            {"pool": "whole", "units": 0},
            "units is a number from 1 to 10000, and not 0",
            id="units",
        ),
        pytest.param(
            {"pool": "whole", "units": 10_001},
            "units is a number from 1 to 10000, and not 10001",
            id="many units",
        ),
        pytest.param(
            {"pool": "whole", "units": 1, "times": 0},
            "times is a number from 1 to 1000, and not 0",
            id="times",
        ),
        pytest.param(
            {"pool": "whole", "units": 1, "times": 1001},
            "times is a number from 1 to 1000, and not 1001",
            id="many times",
        ),
        pytest.param(
            {"pool": "whole", "units": 1, "cordoned": ("n1",) * 101},
            "at most 100 nodes can count as cordoned",
            id="many nodes",
        ),
    ],
)
def test_a_question_without_an_answer_is_refused_with_a_sentence(trial: Any, text: str):
    with pytest.raises(BadQuestionError) as refused:
        tried(fed(two_nodes()), **trial)
    assert str(refused.value) == text


def test_without_the_pods_of_all_namespaces_nothing_is_tried():
    scope = ReadScope(all_pods=False, namespace="default", nodes=True, inventories=True)
    with pytest.raises(BadQuestionError) as refused:
        tried(ConsoleFeed(two_nodes(), scope=scope), pool="whole", units=1)
    assert "would be a guess" in str(refused.value)


def test_a_pool_whose_resource_another_one_serves_takes_no_pods():
    older = a_pool_object("older", resource={"name": "gpu.deckhouse.io/whole"})
    older["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    whole = a_pool_object()
    whole["metadata"]["creationTimestamp"] = "2021-01-01T00:00:00Z"
    with pytest.raises(BadQuestionError) as refused:
        tried(ConsoleFeed([older, whole]), pool="whole", units=1)
    assert str(refused.value) == "pool whole gets no pods: older has its resource"


def test_a_node_that_a_reservation_names_needs_a_place_for_the_pod():
    node = a_node_object("n1")
    node["status"]["allocatable"]["pods"] = "1"
    objects = [a_pool_object(), node, a_device_object("n1", 0), a_device_object("n1", 1)]
    assert [item.pods for item in tried(fed(objects), pool="whole", units=1, times=2).placed] == [1]


def test_the_message_says_how_many_are_placed_and_why_the_next_one_is_not():
    feed = fed(two_nodes())
    one = tried(feed, pool="whole", units=4)
    assert one.message == "the pod would be placed now, on node n1"
    assert one.remedies == ()
    both = tried(feed, pool="whole", units=4, times=2)
    assert both.message == "2 of 2 pods would be placed now, each with 4 units"
    more = tried(feed, pool="whole", units=3, times=3, cordoned=("n2",))
    assert more.message == (
        "1 of 3 pods would be placed now, each with 3 units; the next one would wait:"
        " 3 units of pool whole requested, 1 of 8 are free, at most 1 on one node"
    )
    assert more.remedies == (
        "ask for 1 unit: node n1 would take the pod now",
        "when node n2 is uncordoned, it has 4 units more, and takes the pod",
    )
    assert tried(feed, pool="whole", units=5).message.startswith("the pod would wait: 5 units")


def test_a_pool_that_refuses_pods_that_would_wait_is_said_to():
    objects = two_nodes()
    objects[0]["spec"]["reservation"] = {"ttl": "2m", "whenExhausted": "Reject"}
    answer = tried(fed(objects), pool="whole", units=4, times=3)
    assert "the next one would be refused at admission: " in answer.message


def test_units_that_waiting_pods_could_use_are_not_reserved_and_given_all_the_same():
    """As kube-scheduler comes to the pod, the waiting one may not have tried again."""
    waiting = labelled(a_pod_object("big", 4), pool="whole")
    objects = [a_pool_object(), a_node_object("n1"), a_device_object("n1", 0), waiting]
    assert tried(fed(objects), pool="whole", units=1).fits
    feed = fed(objects)
    assert feed.state.reader.pods.waiting_count("gpu.deckhouse.io/whole") == 1
    assert feed.state.index.state(PoolName("whole")).capacity().available == 1
