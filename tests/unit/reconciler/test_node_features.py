"""NodeFeatures on their way from the watch to the nodes that they are about."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from api.foreign.nodefeature import NODE_NAME_LABEL, NodeFeature
from api.names import NodeName
from reconciler.sinks.node_features import NodeFeatureSink, ObservedFeature, observe_feature
from tests.support.builders import EPOCH
from tests.support.node_features import (
    agent_card,
    agent_feature,
    gpu_feature,
    nfd_feature,
    uuid_of,
)

N1 = NodeName("n1")


def observed(feature: dict[str, Any]) -> ObservedFeature:
    return observe_feature(msgspec.convert(feature, NodeFeature))


def beat(seconds: float, **changes: str) -> ObservedFeature:
    cards = [agent_card("n1", 0) | changes]
    return observed(agent_feature("n1", cards, heartbeat=EPOCH + dt.timedelta(seconds=seconds)))


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def feed(told: list[str]) -> Iterator[NodeFeatureSink]:
    feed = NodeFeatureSink()
    with feed.listeners.told(told.append):
        yield feed


def test_features_are_found_by_their_label_and_without_it_by_their_name(feed: NodeFeatureSink):
    feed.upsert(observed(gpu_feature("n1")))
    nameless = nfd_feature("n2")
    del nameless["metadata"]["labels"][NODE_NAME_LABEL]
    feed.upsert(observed(nameless))
    assert sorted(feed.nodes()) == ["n1", "n2"]
    assert len(feed.on_node(N1)) == 1


def test_nfds_own_feature_is_heard_last(feed: NodeFeatureSink):
    feed.upsert(observed(nfd_feature("n1")))
    feed.upsert(observed(gpu_feature("n1")))
    assert [one.instances is not None for one in feed.on_node(N1)] == [True, False]


def test_a_list_leaves_exactly_its_features(feed: NodeFeatureSink, told: list[str]):
    feed.replace_all([observed(gpu_feature("n1")), observed(gpu_feature("n2"))])
    told.clear()
    feed.replace_all([observed(gpu_feature("n2")), observed(gpu_feature("n3"))])
    assert sorted(feed.nodes()) == ["n2", "n3"]
    assert told == ["n1", "n3"]


def test_the_same_again_is_told_nobody(feed: NodeFeatureSink, told: list[str]):
    feed.upsert(observed(gpu_feature("n1")))
    feed.upsert(observed(gpu_feature("n1")))
    assert told == ["n1"]


def test_a_heartbeat_is_kept_and_told_nobody(feed: NodeFeatureSink, told: list[str]):
    for seconds in (0, 30, 60):
        feed.upsert(beat(seconds))
    assert told == ["n1"]
    assert feed.heartbeat(N1) == EPOCH + dt.timedelta(seconds=60)


def test_a_heartbeat_after_a_silence_is_told(feed: NodeFeatureSink, told: list[str]):
    feed.upsert(beat(0))
    feed.upsert(beat(300))
    assert told == ["n1", "n1"]


def test_a_fact_that_comes_with_a_heartbeat_is_told(feed: NodeFeatureSink, told: list[str]):
    feed.upsert(beat(0))
    feed.upsert(beat(30, health="Unhealthy", **{"health.reason": "Xid79"}))
    assert told == ["n1", "n1"]
    assert feed.health(N1) == {uuid_of("n1", 0): ("Unhealthy", "Xid79")}


def test_a_feature_that_changes_its_node_is_told_both(feed: NodeFeatureSink, told: list[str]):
    feature = gpu_feature("n1")
    feed.upsert(observed(feature))
    feature["metadata"]["labels"][NODE_NAME_LABEL] = "n2"
    feed.upsert(observed(feature))
    assert told == ["n1", "n1", "n2"]
    assert feed.on_node(N1) == []


def test_a_deleted_feature_is_forgotten_even_twice(feed: NodeFeatureSink, told: list[str]):
    feed.upsert(beat(0))
    feed.discard(beat(0))
    feed.discard(beat(0))
    assert (feed.nodes(), feed.heartbeat(N1), feed.health(N1)) == ([], None, {})
    assert told == ["n1", "n1"]


def test_most_of_nfds_own_feature_is_never_made():
    feature = msgspec.convert(nfd_feature("n1", cpu_features=500), NodeFeature)
    assert len(msgspec.json.encode(feature)) < 500
