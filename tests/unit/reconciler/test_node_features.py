"""NodeFeatures on their way from the watch to the nodes that they are about."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from api.foreign.nodefeature import NODE_NAME_LABEL, NodeFeature
from api.names import NodeName
from inventory.health.device import HealthReport
from reconciler.sinks.node_feature import NodeFeatureSink, ObservedFeature, observe_feature
from tests.support.builders import EPOCH
from tests.support.node_features import (
    agent_device,
    agent_feature,
    gpu_feature,
    nfd_feature,
    uuid_of,
)

N1 = NodeName("n1")


def observed(feature: dict[str, Any]) -> ObservedFeature:
    return observe_feature(msgspec.convert(feature, NodeFeature))


def heartbeat_at(seconds: float, **changes: str) -> ObservedFeature:
    devices = [agent_device("n1", 0) | changes]
    return observed(agent_feature("n1", devices, heartbeat=EPOCH + dt.timedelta(seconds=seconds)))


@pytest.fixture
def reported() -> list[str]:
    return []


@pytest.fixture
def sink(reported: list[str]) -> Iterator[NodeFeatureSink]:
    sink = NodeFeatureSink()
    with sink.changes.subscribed(reported.append):
        yield sink


def test_features_are_found_by_their_label_and_without_it_by_their_name(sink: NodeFeatureSink):
    sink.upsert(observed(gpu_feature("n1")))
    nameless = nfd_feature("n2")
    del nameless["metadata"]["labels"][NODE_NAME_LABEL]
    sink.upsert(observed(nameless))
    assert sorted(sink.nodes()) == ["n1", "n2"]
    assert len(sink.on_node(N1)) == 1


@pytest.mark.parametrize(("old", "new"), [("zzz", "aaa"), ("aaa", "zzz")])
@pytest.mark.parametrize("feature", [gpu_feature, nfd_feature])
def test_of_features_with_one_name_in_two_namespaces_the_newest_counts(
    sink: NodeFeatureSink, old: str, new: str, feature: Any
):
    """NFD, or the agents, were installed again in another namespace; the old objects stay for ever."""
    items = []
    for namespace, year in ((old, 2025), (new, 2026)):
        body = feature("n1")
        body["metadata"] |= {"namespace": namespace, "creationTimestamp": f"{year}-01-01T00:00:00Z"}
        items.append(observed(body))
    for item in items:
        sink.upsert(item)
    assert sink.on_node(N1) == [items[1].report]
    assert sink.on_node(N1)[0] is items[1].report
    sink.discard(items[1])
    assert sink.on_node(N1)[0] is items[0].report


def test_nfds_own_feature_is_heard_last(sink: NodeFeatureSink):
    sink.upsert(observed(nfd_feature("n1")))
    sink.upsert(observed(gpu_feature("n1")))
    assert [item.instances is not None for item in sink.on_node(N1)] == [True, False]


def test_a_list_leaves_exactly_its_features(sink: NodeFeatureSink, reported: list[str]):
    sink.replace_all([observed(gpu_feature("n1")), observed(gpu_feature("n2"))])
    reported.clear()
    sink.replace_all([observed(gpu_feature("n2")), observed(gpu_feature("n3"))])
    assert sorted(sink.nodes()) == ["n2", "n3"]
    assert reported == ["n1", "n3"]


def test_the_same_again_is_told_nobody(sink: NodeFeatureSink, reported: list[str]):
    sink.upsert(observed(gpu_feature("n1")))
    sink.upsert(observed(gpu_feature("n1")))
    assert reported == ["n1"]


def test_a_heartbeat_is_kept_and_told_nobody(sink: NodeFeatureSink, reported: list[str]):
    for seconds in (0, 30, 60):
        sink.upsert(heartbeat_at(seconds))
    assert reported == ["n1"]
    assert sink.heartbeat(N1) == EPOCH + dt.timedelta(seconds=60)


def test_a_heartbeat_after_a_silence_is_told(sink: NodeFeatureSink, reported: list[str]):
    sink.upsert(heartbeat_at(0))
    sink.upsert(heartbeat_at(300))
    assert reported == ["n1", "n1"]


def test_a_fact_that_comes_with_a_heartbeat_is_told(sink: NodeFeatureSink, reported: list[str]):
    sink.upsert(heartbeat_at(0))
    sink.upsert(heartbeat_at(30, health="Unhealthy", **{"health.reason": "Xid79"}))
    assert reported == ["n1", "n1"]
    assert sink.health(N1) == {uuid_of("n1", 0): HealthReport("Unhealthy", "Xid79")}


def test_a_feature_that_changes_its_node_is_told_both(sink: NodeFeatureSink, reported: list[str]):
    feature = gpu_feature("n1")
    sink.upsert(observed(feature))
    feature["metadata"]["labels"][NODE_NAME_LABEL] = "n2"
    sink.upsert(observed(feature))
    assert reported == ["n1", "n1", "n2"]
    assert sink.on_node(N1) == []


def test_a_deleted_feature_is_forgotten_even_twice(sink: NodeFeatureSink, reported: list[str]):
    sink.upsert(heartbeat_at(0))
    sink.discard(heartbeat_at(0))
    sink.discard(heartbeat_at(0))
    assert (sink.nodes(), sink.heartbeat(N1), sink.health(N1)) == ([], None, {})
    assert reported == ["n1", "n1"]


def test_most_of_nfds_own_feature_is_never_made():
    feature = msgspec.convert(nfd_feature("n1", cpu_features=500), NodeFeature)
    assert len(msgspec.json.encode(feature)) < 500
