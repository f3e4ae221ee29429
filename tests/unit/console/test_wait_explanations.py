"""Explanations for viewers: those that were explained longest ago first, within a share of the time."""

from collections.abc import Callable
from typing import Any

import pytest

from console.data.explanations.joinable_devices import JoinableDevices
from console.data.explanations.wait_explanations import (
    AGAIN_S,
    MOST_S,
    RESYNC_S,
    SHARE,
    WaitExplanations,
)
from pool.explanation.explanation import DevicesJoin, UsePool
from tests.support.cluster_objects import (
    Object,
    a_device_object,
    a_node_object,
    a_pod_object,
    a_pool_object,
    two_nodes,
)
from tests.support.console_feed import ConsoleFeed
from tests.support.plugin_cluster import labelled


class RunningClock:
    """Each reading takes a moment; `cost_s` says how long."""

    def __init__(self, feed: ConsoleFeed) -> None:
        self._feed = feed
        self.cost_s = 0.0

    def __call__(self) -> float:
        self._feed.clock.passed_s += self.cost_s
        return self._feed.clock.monotonic()


def waiting(name: str, units: int = 9, **spec: Any) -> Object:
    pod = labelled(a_pod_object(name, units, **spec), pool="whole")
    pod["metadata"]["uid"] = f"uid-{name}"
    return pod


@pytest.fixture
def feed() -> ConsoleFeed:
    return ConsoleFeed([*two_nodes(), *(waiting(f"p{units}", units) for units in range(5, 9))])


def explanations(feed: ConsoleFeed, clock: Callable[[], float]) -> WaitExplanations:
    joinable = JoinableDevices(feed.state)
    joinable.update([one.facts.name for one in feed.state.index.devices.all()])
    found = WaitExplanations(feed.state, joinable, clock)
    for pod in sorted(feed.state.reader.all_waiting(), key=lambda one: one.ref, reverse=True):
        found.add(pod.uid)
    return found


def everywhere(_: str) -> bool:
    return True


def test_every_pod_is_explained_once(feed: ConsoleFeed):
    found = explanations(feed, feed.clock.monotonic)
    assert set(found.refresh(everywhere)) == {f"uid-p{units}" for units in range(5, 9)}
    assert not found.refresh(everywhere)
    one = found.get(next(iter(feed.state.reader.all_waiting())).uid)
    assert one is not None
    assert one.reason == "PodTooLarge"


def test_pods_that_are_alike_share_an_explanation():
    feed = ConsoleFeed([*two_nodes(), waiting("a"), waiting("b"), waiting("c", 8)])
    found = explanations(feed, feed.clock.monotonic)
    found.refresh(everywhere)
    by_name = {pod.name: found.get(pod.uid) for pod in feed.state.reader.all_waiting()}
    assert by_name["a"] is by_name["b"]
    assert by_name["a"] is not by_name["c"]


def test_a_pod_is_explained_again_when_its_pool_has_changed_and_not_too_often(feed: ConsoleFeed):
    found = explanations(feed, feed.clock.monotonic)
    found.refresh(everywhere)
    feed.clock.passed_s += AGAIN_S / 2
    found.note_change("gpu.deckhouse.io/whole")
    found.note_change("gpu.deckhouse.io/other")
    assert not found.refresh(everywhere)
    feed.clock.passed_s += AGAIN_S
    assert len(found.refresh(everywhere)) == 4
    feed.clock.passed_s += AGAIN_S
    assert not found.refresh(everywhere)
    feed.clock.passed_s += RESYNC_S
    assert len(found.refresh(everywhere)) == 4


def test_only_so_much_time_is_taken_at_once_and_the_next_ones_come_first(feed: ConsoleFeed):
    clock = RunningClock(feed)
    found = explanations(feed, clock)
    clock.cost_s = MOST_S
    order: list[str] = []
    for _ in range(4):
        some = found.refresh(everywhere)
        assert len(some) == 1
        order += some
        feed.clock.passed_s += 10
    assert order == ["uid-p5", "uid-p6", "uid-p7", "uid-p8"]


def test_explaining_takes_a_share_of_the_time(feed: ConsoleFeed):
    clock = RunningClock(feed)
    found = explanations(feed, clock)
    clock.cost_s = MOST_S
    began = feed.clock.monotonic()
    found.refresh(everywhere)
    spent = feed.clock.monotonic() - began
    clock.cost_s = 0.0
    feed.clock.passed_s += spent * (1 / SHARE - 1) / 2
    assert not found.refresh(everywhere)
    feed.clock.passed_s += spent * (1 / SHARE - 1) / 2
    assert found.refresh(everywhere)


def test_a_pod_that_waits_no_more_has_no_turn(feed: ConsoleFeed):
    found = explanations(feed, feed.clock.monotonic)
    for pod in list(feed.state.reader.all_waiting()):
        found.discard(pod.uid)
    assert not found.refresh(everywhere)
    found.add(next(iter(feed.state.reader.all_waiting())).uid)
    assert len(found.refresh(everywhere)) == 1


def test_pods_that_nobody_looks_at_keep_their_turns(feed: ConsoleFeed):
    found = explanations(feed, feed.clock.monotonic)
    assert not found.refresh(lambda namespace: namespace == "other")
    assert len(found.refresh(lambda namespace: namespace == "ml-team")) == 4


def test_devices_in_no_pool_are_a_remedy_until_they_are_in_one():
    spare = a_device_object("n3", 0)
    del spare["status"]["poolRef"]
    feed = ConsoleFeed(
        [
            a_pool_object(),
            a_node_object("n3"),
            {**spare, "status": {**spare["status"], "pci": {"address": "0000:17:00.0"}}},
            waiting("a", 1),
        ]
    )
    seen = feed.state.pods.named("ml-team/a")
    assert seen is not None
    (remedy,) = feed.rows.explanations.explain(seen).remedies
    assert isinstance(remedy, DevicesJoin)
    assert remedy.devices == ("n3-0",)
    feed.put(a_device_object("n3", 0))
    feed.settle()
    assert feed.rows.explanations.explain(seen).remedies == ()


def test_another_pool_that_the_pod_may_use_is_a_remedy():
    objects = [
        a_pool_object(),
        a_pool_object("open"),
        a_pool_object("closed", access={"namespaces": ["other"]}),
        a_pool_object("ours", access={"serviceAccounts": ["ml-team/trainer"]}),
        a_node_object("n1"),
    ]
    for number, pool in enumerate(("open", "closed", "ours")):
        objects.append(a_device_object("n1", number, pool=pool))
    feed = ConsoleFeed([*objects, waiting("a", 1, serviceAccountName="trainer")])
    seen = feed.state.pods.named("ml-team/a")
    assert seen is not None
    remedies = feed.rows.explanations.explain(seen).remedies
    assert {one.pool for one in remedies if isinstance(one, UsePool)} == {"open", "ours"}
