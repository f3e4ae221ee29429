"""Who says what of which device, and which devices are there."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from api.foreign.nodefeature import NodeFeature
from inventory.discovery.labels import label_report
from inventory.discovery.merge import MergedReport, merge, merged_labels
from inventory.discovery.sources import FeatureReport, Source, feature_report
from tests.support.builders import EPOCH
from tests.support.node_features import (
    address_of,
    agent_device,
    agent_feature,
    gfd_labels,
    gpu_feature,
    nfd_feature,
    rule_labels,
)

FRESH_FOR = dt.timedelta(minutes=2)


def reports(*features: dict[str, Any]) -> list[FeatureReport]:
    return [feature_report(msgspec.convert(feature, NodeFeature)) for feature in features]


def seen(
    *features: dict[str, Any], labels: dict[str, str] | None = None, addresses: tuple[str, ...] = ()
) -> MergedReport:
    said = reports(*features)
    merged = merged_labels(labels or {}, said)
    return merge(label_report(merged), said, addresses=addresses, now=EPOCH, fresh_for=FRESH_FOR)


def an_agent(*numbers: int, age_s: float = 0) -> dict[str, Any]:
    devices = [agent_device("n1", number) for number in numbers]
    return agent_feature("n1", devices, heartbeat=EPOCH - dt.timedelta(seconds=age_s))


def sources(merged: MergedReport, number: int = 0) -> list[Source]:
    return [item.source for item in merged.by_address[address_of(number)]]


def test_sources_are_heard_in_order_of_trust():
    labels = rule_labels(1) | gfd_labels(1)
    merged = seen(gpu_feature("n1", 1), an_agent(0), labels=labels)
    assert sources(merged) == [Source.AGENT, Source.INSTANCES, Source.SLOTS, Source.NODE]


@pytest.mark.parametrize(
    ("features", "labels", "listed", "is_whole"),
    [
        pytest.param([an_agent(0, 1)], {}, {0, 1}, True, id="the agent reads the bus"),
        pytest.param([an_agent()], {}, set(), True, id="the agent finds nothing"),
        pytest.param([an_agent(0, age_s=121)], {}, set(), False, id="a silent agent says nothing"),
        pytest.param(
            [an_agent(0, age_s=-121)], {}, set(), False, id="nor one that is from the future"
        ),
        pytest.param(
            [agent_feature("n1", [agent_device("n1", 0)])], {}, {0}, True, id="no heartbeat, no age"
        ),
        pytest.param([gpu_feature("n1", 2)], {}, {0, 1}, True, id="instances are believed"),
        pytest.param(
            [gpu_feature("n1", 1)], rule_labels(2), {0}, False, id="unless NFD counts more"
        ),
        pytest.param([gpu_feature("n1", 0)], {}, set(), True, id="an empty list is a list"),
        pytest.param(
            [gpu_feature("n1", 0), nfd_feature("n1")],
            {},
            set(),
            False,
            id="unless NFD finds a device",
        ),
        pytest.param(
            [an_agent(0), gpu_feature("n1", 2)], {}, {0}, True, id="the agent is believed first"
        ),
        pytest.param(
            [an_agent(0, age_s=121), gpu_feature("n1", 2)],
            {},
            {0, 1},
            True,
            id="a silent agent leaves it to instances",
        ),
        pytest.param([], rule_labels(2) | gfd_labels(2), set(), False, id="labels list nobody"),
    ],
)
def test_the_present_devices(
    features: list[dict[str, Any]], labels: dict[str, str], listed: set[int], *, is_whole: bool
):
    merged = seen(*features, labels=labels)
    assert merged.listed == {address_of(number) for number in listed}
    assert merged.is_whole is is_whole


def test_devices_of_several_features_are_one_list():
    first, second = gpu_feature("n1", 1), gpu_feature("n1", 2)
    second["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"].pop(0)
    assert seen(first, second).listed == {address_of(0), address_of(1)}


def test_labels_that_number_other_devices_than_present_are_ignored():
    assert sources(seen(gpu_feature("n1", 1), labels=rule_labels(2))) == [Source.INSTANCES]


def test_labels_that_contradict_a_device_are_ignored():
    labels = rule_labels(2) | {"gpu.deckhouse.io/device.01.device": "20b2"}
    merged = seen(gpu_feature("n1", 2), labels=labels)
    assert Source.SLOTS not in sources(merged, 0)


def test_numbered_devices_come_in_order_of_their_addresses():
    labels = rule_labels(2) | {"gpu.deckhouse.io/device.01.product": "second"}
    merged = seen(gpu_feature("n1", 2), labels=labels)
    assert merged.by_address[address_of(1)][-1].facts.product == "second"


@pytest.mark.parametrize(("count", "is_heard"), [(2, True), (1, False)])
def test_without_ids_gfd_is_heard_where_it_counts_all_devices(count: int, *, is_heard: bool):
    """GFD counts the devices of the model that its labels are of."""
    feature = gpu_feature("n1", 2)
    for element in feature["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"]:
        del element["attributes"]["pci.device"]
    merged = seen(feature, labels=gfd_labels(count))
    assert (Source.NODE in sources(merged)) is is_heard


def test_a_known_device_that_no_source_lists_still_has_reports():
    merged = seen(labels=gfd_labels(1), addresses=(address_of(3),))
    assert sources(merged, 3) == [Source.NODE]
    assert merged.listed == frozenset()


def test_labels_of_the_node_win_over_those_that_a_feature_asks_for():
    asked = nfd_feature("n1")
    asked["spec"]["labels"] = {"nvidia.com/gpu.product": "asked", "nvidia.com/gpu.count": "1"}
    merged = merged_labels({"nvidia.com/gpu.product": "shown"}, reports(asked))
    assert merged == {"nvidia.com/gpu.product": "shown", "nvidia.com/gpu.count": "1"}


def test_of_several_features_the_first_is_heard():
    first, second = nfd_feature("a"), nfd_feature("b")
    first["spec"]["labels"] = {"nvidia.com/gpu.product": "first"}
    second["spec"]["labels"] = {"nvidia.com/gpu.product": "second"}
    assert merged_labels({}, reports(first, second)) == {"nvidia.com/gpu.product": "first"}
