"""Explanations for viewers: those that were explained longest ago first, within a share of the time."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from api.names import PodUid
from console.data.explanations.joinable_devices import JoinableDevices
from console.data.explanations.waits import (
    IDLE_S,
    MAX_BATCH_S,
    MIN_INTERVAL_S,
    RESYNC_S,
    SHARE,
    WaitExplanations,
)
from pool.what_if.explanation import DevicesJoin, Explanation, UsePool
from pool.what_if.question import JoinableDevice
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
    joinable.update([device.facts.name for device in feed.state.index.devices.all()])
    found = WaitExplanations(feed.state, joinable, clock)
    for pod in sorted(
        feed.state.reader.pods.all_waiting(), key=lambda item: item.ref, reverse=True
    ):
        found.add(pod.uid)
    return found


def everywhere(_: str) -> bool:
    return True


def refreshed(found: WaitExplanations, sees: Callable[[str], bool] = everywhere) -> set[str]:
    """Let pods be explained until none has a turn; return those that were."""
    while found.explain_due(sees) != IDLE_S:
        pass
    return set(found.take_updated())


def test_every_pod_is_explained_once(feed: ConsoleFeed):
    found = explanations(feed, feed.clock.monotonic)
    assert refreshed(found) == {f"uid-p{units}" for units in range(5, 9)}
    assert not refreshed(found)
    one = found.get(next(iter(feed.state.reader.pods.all_waiting())).uid)
    assert one is not None
    assert one.reason == "PodTooLarge"


def test_pods_that_are_alike_share_an_explanation():
    feed = ConsoleFeed([*two_nodes(), waiting("a"), waiting("b"), waiting("c", 8)])
    found = explanations(feed, feed.clock.monotonic)
    refreshed(found)
    by_name = {pod.name: found.get(pod.uid) for pod in feed.state.reader.pods.all_waiting()}
    assert by_name["a"] is by_name["b"]
    assert by_name["a"] is not by_name["c"]


def test_a_pod_is_explained_again_when_its_pool_has_changed_and_not_too_often(feed: ConsoleFeed):
    found = explanations(feed, feed.clock.monotonic)
    refreshed(found)
    feed.clock.passed_s += MIN_INTERVAL_S / 2
    found.note_change("gpu.deckhouse.io/whole")
    found.note_change("gpu.deckhouse.io/other")
    assert not refreshed(found)
    feed.clock.passed_s += MIN_INTERVAL_S
    assert len(refreshed(found)) == 4
    feed.clock.passed_s += MIN_INTERVAL_S
    assert not refreshed(found)
    feed.clock.passed_s += RESYNC_S
    assert len(refreshed(found)) == 4


def test_only_so_much_time_is_taken_at_once_and_the_next_ones_come_first(feed: ConsoleFeed):
    clock = RunningClock(feed)
    found = explanations(feed, clock)
    clock.cost_s = MAX_BATCH_S
    order: list[str] = []
    goes = 0
    while len(order) < 4:
        began = feed.clock.monotonic()
        found.explain_due(everywhere)
        goes += 1
        assert feed.clock.monotonic() - began < 10 * MAX_BATCH_S
        order += sorted(found.take_updated())
    assert order == ["uid-p5", "uid-p6", "uid-p7", "uid-p8"]
    assert goes > 4  # one explanation takes several


def test_explaining_takes_a_share_of_the_time(feed: ConsoleFeed):
    clock = RunningClock(feed)
    found = explanations(feed, clock)
    clock.cost_s = MAX_BATCH_S
    began = feed.clock.monotonic()
    pause_s = found.explain_due(everywhere)
    spent_s = feed.clock.monotonic() - began
    assert pause_s >= (spent_s - MAX_BATCH_S) * (1 / SHARE - 1) - 1e-9
    assert pause_s > IDLE_S / 10


def test_a_pod_that_waits_no_more_has_no_turn(feed: ConsoleFeed):
    found = explanations(feed, feed.clock.monotonic)
    for pod in list(feed.state.reader.pods.all_waiting()):
        found.discard(pod.uid)
    assert not refreshed(found)
    found.add(next(iter(feed.state.reader.pods.all_waiting())).uid)
    assert len(refreshed(found)) == 1


def test_a_pod_that_ends_to_wait_while_it_is_explained_is_not_told_of(feed: ConsoleFeed):
    clock = RunningClock(feed)
    found = explanations(feed, clock)
    clock.cost_s = MAX_BATCH_S
    found.explain_due(everywhere)
    for pod in list(feed.state.reader.pods.all_waiting()):
        found.discard(pod.uid)
    assert not refreshed(found)


def test_an_explanation_is_given_up_when_its_pool_becomes_another_one(feed: ConsoleFeed):
    clock = RunningClock(feed)
    found = explanations(feed, clock)
    clock.cost_s = MAX_BATCH_S
    found.explain_due(everywhere)
    feed.remove(a_pool_object())
    clock.cost_s = 0.0
    assert len(refreshed(found)) == 4
    reasons = {one.reason for pod in feed.state.reader.pods.all() if (one := found.get(pod.uid))}
    assert reasons == {"PoolMissing"}


class Unreadable(list[JoinableDevice]):
    def __iter__(self) -> Iterator[JoinableDevice]:
        raise LookupError("no such device")


class BrokenDevices:
    """In place of `JoinableDevices`."""

    def of(self, _: object, __: float) -> list[JoinableDevice]:
        return Unreadable()


def test_a_pod_that_cannot_be_explained_keeps_no_other_one_waiting(feed: ConsoleFeed):
    stray = labelled(a_pod_object("stray", 1, pool="gone"), pool="gone")
    feed.put(stray)
    broken: Any = BrokenDevices()
    found = WaitExplanations(feed.state, broken, feed.clock.monotonic)
    for pod in feed.state.reader.pods.all_waiting():
        found.add(pod.uid)
    assert refreshed(found) == {"pod-stray"}
    assert found.get(PodUid("uid-p5")) is None
    feed.clock.passed_s += RESYNC_S
    assert refreshed(found) == {"pod-stray"}


def test_pods_that_nobody_looks_at_keep_their_turns(feed: ConsoleFeed):
    found = explanations(feed, feed.clock.monotonic)
    assert not refreshed(found, lambda namespace: namespace == "other")
    assert len(refreshed(found, lambda namespace: namespace == "ml-team")) == 4


def explained_now(feed: ConsoleFeed) -> Explanation:
    seen = feed.state.pods.named("ml-team/a")
    assert seen is not None
    return feed.rows.explanations.explain(seen, most_nodes=0, is_quick=True)


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
    (remedy,) = explained_now(feed).remedies
    assert isinstance(remedy, DevicesJoin)
    assert remedy.devices == ("n3-0",)
    feed.put(a_device_object("n3", 0))
    feed.flush()
    assert explained_now(feed).remedies == ()


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
    remedies = explained_now(feed).remedies
    assert {remedy.pool for remedy in remedies if isinstance(remedy, UsePool)} == {"open", "ours"}
