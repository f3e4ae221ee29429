"""The inventory of every described node: right by each source, and with each label missing or invalid in turn.

A fact is right or absent. What is absent is named: by the condition InventoryIncomplete, or as an invalid value.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from api.foreign.nodefeature import NodeFeature
from api.kinds.gpudevice import GPUDeviceStatus
from api.names import NodeName
from inventory.discovery.labels import label_report
from inventory.discovery.merge import MergedReport, merge, merged_labels
from inventory.discovery.node import (
    FRESH_FOR,
    IncompleteInventory,
    IncompleteReason,
    has_inventory,
    incompleteness_of,
)
from inventory.discovery.plan import plan_inventory
from inventory.discovery.presence import has_device
from inventory.discovery.sources import FeatureReport, feature_report
from inventory.products import display_product
from reconciler.sinks.node_feature import NodeFeatureSink, observe_feature
from tests.support.builders import EPOCH
from tests.support.described_nodes import GPU, DescribedNode, described_nodes, wrong_facts

Json = dict[str, Any]
Labels = Mapping[str, str]

NODES = described_nodes()
EACH_NODE = pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
INVALID = ("", "-1", "9" * 70, "x" * 300)
READ = re.compile(
    r"nvidia\.com/(gpu\.(product|memory|count|compute\.\w+)|mig-.*\.count|mig\.(capable|strategy)|cuda\..*)"
    r"|feature\.node.*|gpu\.deckhouse\.io/(present|device-count|device\.00\..*)"
)
"""Labels that the inventory reads; of the numbered devices the first."""
SOURCES: Mapping[str, Callable[[DescribedNode], list[Json]]] = {
    "labels": lambda _node: [],
    "bus": lambda node: [node.on_bus(heartbeat=EPOCH)],
    "driver": lambda node: [node.by_driver(heartbeat=EPOCH)],
    "instances": lambda node: [node.by_instances()],
}


@dataclass(frozen=True)
class Found:
    """The inventory's view of a node that it meets for the first time."""

    merged: MergedReport
    devices: list[GPUDeviceStatus]
    incomplete: IncompleteInventory | None
    is_published: bool
    is_present: bool

    @property
    def reason(self) -> IncompleteReason | None:
        return None if self.incomplete is None else self.incomplete.reason


@functools.cache
def reports_of(node: str, source: str) -> list[FeatureReport]:
    (found,) = (item for item in NODES if item.name == node)
    return [feature_report(msgspec.convert(item, NodeFeature)) for item in SOURCES[source](found)]


def found_by(node: DescribedNode, source: str, labels: Labels, asked: Iterable[Json] = ()) -> Found:
    """Return what is found with these labels, and those that NodeFeatures ask for, where a source lists the devices."""
    features = [feature_report(msgspec.convert(item, NodeFeature)) for item in asked]
    features += reports_of(node.name, source)
    addresses = merged_labels(labels, features)
    merged = merge(label_report(addresses), features, addresses=(), now=EPOCH, fresh_for=FRESH_FOR)
    plan = plan_inventory(NodeName(node.name), [], merged, is_managed=True)
    devices = [item.status for item in plan.create]
    return Found(
        merged=merged,
        devices=devices,
        incomplete=incompleteness_of(merged, devices, plan.refused),
        is_published=has_inventory(merged, [], plan, is_visible=False),
        is_present=has_device(addresses, features),
    )


def test_there_are_nodes_of_each_kind():
    assert len(NODES) >= 40
    assert all(node.fields["source"] for node in NODES)
    seen = {(node.fields["gfd"], node.fields["nfd"]) for node in NODES}
    assert seen >= {("old", "labels"), ("new", "labels"), ("new", "features"), ("none", "labels")}
    assert {node.mig[0] for node in NODES} == {"none", "single", "mixed", "invalid"}


@EACH_NODE
def test_labels_alone_make_no_device_and_name_what_is_missing(node: DescribedNode):
    found = found_by(node, "labels", node.labels())
    assert found.is_present
    assert (found.devices, found.merged.bad) == ([], frozenset())
    assert found.reason is IncompleteReason.SOURCE
    numbered = found_by(node, "labels", node.labels() | node.rule_labels())
    assert numbered.merged.expected == len(node.devices)
    assert (numbered.devices, numbered.reason) == ([], IncompleteReason.ADDRESSES)


@EACH_NODE
@pytest.mark.parametrize("source", SOURCES)
def test_labels_count_that_node_features_ask_for_and_nfd_master_has_not_written(
    node: DescribedNode, source: str
):
    labels = node.labels()
    if not (asked := node.features(labels)):
        return
    found, written = found_by(node, source, {}, asked), found_by(node, source, labels)
    assert (found.devices, found.incomplete) == (written.devices, written.incomplete)
    assert (found.is_published, found.is_present, found.merged.bad) == (True, True, frozenset())
    # nfd-worker lists the bus, whatever it is configured to label.
    on_bus = found_by(
        node, source, {}, asked=[item | {"spec": {**item["spec"], "labels": {}}} for item in asked]
    )
    assert (on_bus.is_published, on_bus.is_present) == (True, True)


@EACH_NODE
def test_a_node_without_a_driver_has_what_its_labels_say_of_each_device(node: DescribedNode):
    found = found_by(node, "bus", node.labels() | node.rule_labels())
    assert [item.pci.address for item in found.devices] == [item.address for item in node.devices]
    assert [*wrong_facts(node, found.devices)] == []
    assert found.reason is IncompleteReason.UUIDS
    versions = found.merged.versions
    has_gfd = node.fields["gfd"] != "none"
    assert (versions.driver, versions.cuda) == (node.versions if has_gfd else (None, None))
    if not has_gfd or len(node.fields["gpus"]) > 1:
        assert {item.memory_mib for item in found.devices} == {0}
        return
    strategy, instances = node.mig
    for item, status in zip(node.devices, found.devices, strict=True):
        assert status.product == display_product(item.name)
        assert status.compute_capability == item.capability
        is_of_device = strategy in {"none", "mixed"}
        assert status.memory_mib == (item.memory_mib if is_of_device else 0)
        assert {*(status.mig.profiles or ())} == (
            instances.keys() if strategy == "mixed" else set()
        )


@EACH_NODE
@pytest.mark.parametrize("source", ["driver", "instances"])
def test_a_source_of_each_device_is_right_whatever_the_labels_say(node: DescribedNode, source: str):
    found = found_by(node, source, node.labels() | node.rule_labels())
    assert [*wrong_facts(node, found.devices)] == []
    assert (found.incomplete, found.merged.bad) == (None, frozenset())
    for item, status in zip(node.devices, found.devices, strict=True):
        published_facts = (status.product, status.memory_mib, status.compute_capability)
        assert published_facts == (display_product(item.name), item.memory_mib, item.capability)


@EACH_NODE
@pytest.mark.parametrize("source", ["labels", "bus", "driver"])
def test_a_label_that_is_missing_or_invalid_makes_nothing_wrong(node: DescribedNode, source: str):
    labels = node.labels() | node.rule_labels()
    whole = found_by(node, source, labels)
    numbered = {key: text for key, text in labels.items() if "/device." in key}
    read = {key: text for key, text in labels.items() if READ.fullmatch(key)}
    assert found_by(node, source, read | numbered) == whole
    for key in read:
        dropped = {name: value for name, value in labels.items() if name != key}
        found = found_by(node, source, dropped)
        check(node, found, whole, key)
        for text in INVALID:
            invalid = found_by(node, source, labels | {key: text})
            check(node, invalid, whole, key)
            is_named = any(item.key == key for item in invalid.merged.bad)
            assert invalid.devices == found.devices, f"{key}={text!r}"
            assert is_named or not text or invalid == whole or key.endswith("present"), (
                f"{key}={text!r}"
            )


def check(node: DescribedNode, found: Found, whole: Found, key: str) -> None:
    assert [*wrong_facts(node, found.devices)] == [], key
    assert len(found.devices) == len(whole.devices), key
    assert found.is_present, key
    assert found.is_published, key
    if found.devices:
        assert found.reason is whole.reason, key
    else:
        assert found.reason in {IncompleteReason.ADDRESSES, IncompleteReason.SOURCE}, key


@pytest.mark.parametrize("key", [f"{GPU}.count", "10de.present"])
@EACH_NODE
def test_one_label_of_either_tool_is_enough_to_look_for_devices(node: DescribedNode, key: str):
    labels = {name: text for name, text in node.labels().items() if name.endswith(key)}
    if not labels or "0" in labels.values():
        return
    found = found_by(node, "labels", labels)
    assert found.is_present
    assert found.reason is IncompleteReason.SOURCE


@pytest.mark.parametrize(
    "node", [node for node in NODES if node.fields.get("namespaces") == 2], ids=lambda n: n.name
)
def test_of_node_features_in_two_namespaces_the_newest_count(node: DescribedNode):
    labels = node.labels()
    sink = NodeFeatureSink()
    outdated = {**labels, f"{GPU}.product": "NVIDIA-A30", f"{GPU}.memory": "24576"}
    for namespace, created, of in (
        ("node-feature-discovery", "2026-01-02T00:00:00Z", labels),
        ("gpu-operator", "2026-01-01T00:00:00Z", outdated),
    ):
        for feature in node.features(of):
            feature["metadata"] |= {"namespace": namespace, "creationTimestamp": created}
            sink.upsert(observe_feature(msgspec.convert(feature, NodeFeature)))
    features = sink.on_node(NodeName(node.name))
    assert merged_labels({}, features)[f"{GPU}.product"] == labels[f"{GPU}.product"]
    assert len(features) == 2
