"""Of pods that a viewer may not see, it is told that units are used, by nobody."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.console_data import BadQuestionError, PodTrial
from console.data.answers.device_details import device_detail
from console.data.answers.pod_details import pod_detail
from console.data.answers.pod_trials import try_pods
from console.rows import ViewerRow
from console.visibility import Visibility
from tests.support.cluster_objects import a_node_object, a_pool_object
from tests.support.console_feed import ConsoleFeed, next_whole_event, waiting_events
from tests.support.console_worlds import NAMESPACES, POOLS, ConsoleWorld
from tests.support.plugin_cluster import a_device, a_fragmented_cluster

SEEN = ({"southern"}, set[str](), {"northern", "southern"})
TEAM = Visibility(namespaces=frozenset({"other-team"}), nodes=True)


def answers(feed: ConsoleFeed, visibility: Visibility) -> Iterator[bytes]:
    """Yield the answers to every question that a viewer can ask."""
    viewer = feed.viewer(visibility)
    found: list[object] = [
        device_detail(feed.state, name, viewer) for name in feed.rows.table.section("devices")
    ]
    found += [
        pod_detail(feed.state, feed.rows, name, viewer=viewer)
        for name in feed.rows.table.section("waiting")
    ]
    for pool in POOLS:
        trial = PodTrial(pool=pool, units=2, times=9, cordoned=("n0",))
        try:
            found.append(try_pods(feed.state, feed.rows.explanations, trial, viewer=viewer))
        except BadQuestionError as error:
            found.append(str(error))
    yield from map(msgspec.json.encode, found)


@given(
    seed=st.integers(0, 10**9),
    seen=st.sampled_from(SEEN),
    nodes=st.booleans(),
    ticks=st.lists(st.integers(5, 12), min_size=2, max_size=4),
)
def test_no_byte_names_a_pod_that_the_viewer_may_not_see(
    seed: int, seen: set[str], nodes: bool, ticks: list[int]
):
    visibility = Visibility(namespaces=frozenset(seen), nodes=nodes)
    hidden = [name.encode() for name in NAMESPACES if name not in seen]
    feed = ConsoleFeed()
    world = ConsoleWorld(feed, seed)
    stream = feed.open(visibility, viewer=ViewerRow(name="ann"))

    async def follow() -> list[bytes]:
        events = [await next_whole_event(stream)]
        for changes in ticks:
            for _ in range(changes):
                world.change()
            feed.tick()
            feed.clock.passed_s += 3
            feed.tick()
            events += await waiting_events(stream)
        return events

    for reported in (*asyncio.run(follow()), *answers(feed, visibility)):
        for name in hidden:
            assert name not in reported, reported


@given(seed=st.integers(0, 10**9), changes=st.integers(1, 40))
def test_hidden_pods_are_counted_all_the_same(seed: int, changes: int):
    feed = ConsoleFeed()
    world = ConsoleWorld(feed, seed)
    for _ in range(changes):
        world.change()
    feed.flush()
    no_namespaces = Visibility(namespaces=frozenset(), nodes=True)
    assert feed.section("pools", no_namespaces) == feed.section("pools")
    figures = [(row.used, row.reserved, row.look) for row in feed.section("devices").values()]
    hidden = feed.section("devices", no_namespaces).values()
    assert [(row.used, row.reserved, row.look) for row in hidden] == figures
    assert all(row.holders == () for row in hidden)
    reserved = [(row.node, row.units, row.expires) for row in feed.section("reservations").values()]
    reported = feed.section("reservations", no_namespaces).values()
    assert [(row.node, row.units, row.expires) for row in reported] == reserved
    assert {(row.namespace, row.pod, row.created) for row in reported} <= {("", "", "")}
    assert not feed.section("waiting", no_namespaces)
    assert not feed.section("shares", no_namespaces)


def test_remedies_name_pods_of_others_as_units_of_other_users():
    objects = [
        item if item["metadata"]["name"] != "big" else moved(item)
        for item in a_fragmented_cluster()
    ]
    feed = ConsoleFeed(objects)
    feed.open(TEAM)
    feed.tick()
    (row,) = feed.section("waiting", TEAM).values()
    assert row.remedies[-1] == "when 1 pod of other users (1 unit) ends, the pod fits on gpu-0"
    (whole,) = feed.section("waiting").values()
    assert whole.remedies[-1] == "when ml-team/train-a (1 unit) ends, the pod fits on gpu-0"


def moved(pod: dict[str, object]) -> dict[str, object]:
    metadata = pod["metadata"]
    assert isinstance(metadata, dict)
    return {**pod, "metadata": {**metadata, "namespace": "other-team"}}


@pytest.mark.parametrize("is_visible", [True, False])
def test_states_of_nodes_are_told_to_those_who_may_see_them(is_visible: bool):
    objects = [
        a_pool_object("training"),
        a_node_object("gpu-0", unschedulable=True),
        a_device("training", "gpu-0", 0),
    ]
    feed = ConsoleFeed(objects)
    visibility = Visibility(namespaces=None, nodes=is_visible)
    (node,) = feed.section("nodes", visibility).values()
    assert node.state.value == ("Cordoned" if is_visible else "Unknown")
    assert ("Node gpu-0" in feed.section("health", visibility)) is is_visible
    trial = PodTrial(pool="training", units=1)
    answer = try_pods(feed.state, feed.rows.explanations, trial, viewer=feed.viewer(visibility))
    assert any("uncordoned" in remedy for remedy in answer.remedies) is is_visible
