"""What sources say, in every form that they are known to write, and in forms that make no sense."""

import datetime as dt
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.foreign.nodefeature import NodeFeature
from inventory.discovery import parsing as values
from inventory.discovery.labels import LabelReport, label_report
from inventory.discovery.parsing import MigPartition, PeerLink
from inventory.discovery.sources import FeatureReport, ReportedDevice, feature_report
from inventory.health.device import HealthReport
from tests.support.node_features import (
    a_node_feature,
    agent_device,
    agent_feature,
    gfd_labels,
    gpu_feature,
    gpu_instance,
    nfd_feature,
    rule_labels,
    uuid_of,
)


def reported(feature: dict[str, Any]) -> FeatureReport:
    return feature_report(msgspec.convert(feature, NodeFeature))


def device_of(report: FeatureReport) -> ReportedDevice:
    devices = report.agent or report.instances
    assert devices is not None
    (device,) = devices.devices
    return device


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("81559", 81559),
        ("81559 MiB", 81559),
        ("81559MB", 81559),
        ("80 GiB", 81920),
        ("80GB", 81920),
        ("79.5 GiB", 81408),
        ("1 TiB", 1048576),
        ("0.5TB", 524288),
        ("85899345920 bytes", 81920),
        ("85899345920B", 81920),
        ("83886080 KiB", 81920),
        (" 40960 ", 40960),
        ("0", None),
        ("-1", None),
        ("1e9", None),
        ("80 GiBs", None),
        ("a lot", None),
        ("", None),
        ("٨٠ GiB", None),
        ("9" * 500, None),
        ("99999999 TiB", None),
    ],
)
def test_memory_in_every_unit_is_mib(text: str, want: int | None):
    assert values.memory_mib(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [("10DE", "10de"), ("0x10de", "10de"), ("3d", "003d"), ("10deg", None), ("", None)],
)
def test_ids_are_four_lower_case_hex_digits(text: str, want: str | None):
    """Lesson 16: 10DE and 10de are one vendor."""
    assert values.hex_id(text) == want


@pytest.mark.parametrize(
    ("text", "want"), [("0302", "0302"), ("0x030200", "0302"), ("03", None), ("03020", None)]
)
def test_a_class_has_no_programming_interface(text: str, want: str | None):
    assert values.pci_class(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1g.5gb", ("1g.5gb",)),
        ("3g.71gb, 1g.18gb,1g.18gb", ("1g.18gb", "3g.71gb")),
        ("1g.5gb+me,1C.2G.20GB", ("1c.2g.20gb", "1g.5gb+me")),
        ("1g.12gb+me.all", ("1g.12gb+me.all",)),
        ("1g.5gb,nonsense", None),
    ],
)
def test_profiles_of_a_list(text: str, want: tuple[str, ...] | None):
    assert values.profiles(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("GPU-8d7e6b1c-1", "GPU-8d7e6b1c-1"),
        ("GPU-1::0", None),
        ("[Unknown Error]", None),
        ("GPU-a/b", None),
        ("GPU-a.b", None),
        ("x" * 63, "x" * 63),
        ("x" * 64, None),
    ],
)
def test_a_uuid_can_name_a_unit(text: str, want: str | None):
    assert values.uuid(text) == want


def test_a_device_has_no_more_instances_than_its_object_takes():
    said = [{"profile": "1g.18gb", "uuid": f"MIG-{number}"} for number in range(65)]
    found = values.partitions(json.dumps(said[:64]))
    assert found is not None
    assert len(found) == 64
    assert values.partitions(json.dumps(said)) is None


class TestLabels:
    def test_of_the_rule_number_devices(self):
        report = label_report(rule_labels(2))
        assert report.devices == 2
        assert report.has_devices
        assert report.slots == {
            0: ReportedDevice(vendor="10de", device="2335", class_="0302"),
            1: ReportedDevice(vendor="10de", device="2335", class_="0302"),
        }
        assert report.bad == frozenset()

    def test_of_the_rule_may_say_more_of_a_device(self):
        more = {
            "gpu.deckhouse.io/device.00.product": "NVIDIA-H200",
            "gpu.deckhouse.io/device.00.memoryMiB": "140GiB",
        }
        slot = label_report(rule_labels(1) | more).slots[0]
        assert (slot.product, slot.memory_mib) == ("NVIDIA-H200", 143360)

    def test_of_gfd_are_about_all_devices(self):
        report = label_report(gfd_labels(2, **{"nvidia.com/gpu.numa.node": "1"}))
        assert report.common == ReportedDevice(
            product="NVIDIA-H200",
            memory_mib=143771,
            compute_capability="9.0",
            numa_node=1,
            mig_capable=True,
        )
        assert report.model_count == 2
        assert (report.versions.driver, report.versions.cuda) == ("570.86.15", "12.8")

    @pytest.mark.parametrize(
        "labels",
        [
            {"nvidia.com/mig.capable": "true", "nvidia.com/mig.strategy": "mixed"},
            {"nvidia.com/mig-capable": "true", "nvidia.com/mig-strategy": "single"},
        ],
        ids=["today", "older"],
    )
    def test_of_both_generations_tell_of_mig(self, labels: dict[str, str]):
        report = label_report(labels)
        assert report.common.mig_capable
        assert report.bad == frozenset()

    def test_of_mig_make_profiles_and_no_instance(self):
        """Lesson 5: a node's counts are nobody's."""
        report = label_report(
            {
                "nvidia.com/mig-1g.10gb.count": "7",
                "nvidia.com/mig-3g.40gb.ready": "1",
                "nvidia.com/mig-1g.10gb.me.available": "1",
                "nvidia.com/mig-1g.10gb.memory": "9856",
            }
        )
        assert report.common.mig_profiles == ("1g.10gb", "1g.10gb+me", "3g.40gb")
        assert report.common.mig_capable
        assert report.common.mig_instances is None

    def test_that_say_zero_because_they_do_not_know_are_no_garbage(self):
        report = label_report({"nvidia.com/gpu.memory": "0", "nvidia.com/gpu.count": "0"})
        assert report == LabelReport()

    def test_of_others_say_nothing(self):
        others = {"kubernetes.io/arch": "amd64", "nvidia.com/gpu.deploy.driver": "true"}
        assert label_report(others) == LabelReport()


class TestFeatures:
    def test_of_the_agent_tell_everything_of_a_device(self):
        heartbeat = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        instances = '[{"profile": "1g.18gb", "uuid": "MIG-1"}]'
        device = agent_device("n1", 1, of=2) | {"mig.instances": instances, "mig.mode": "Enabled"}
        report = reported(agent_feature("n1", [device], heartbeat=heartbeat))
        assert device_of(report) == ReportedDevice(
            address="0000:18:00.0",
            uuid=uuid_of("n1", 1),
            vendor="10de",
            device="2335",
            class_="0302",
            product="NVIDIA H200",
            memory_mib=143771,
            compute_capability="9.0",
            numa_node=0,
            links=(PeerLink("0000:17:00.0", "NVLink", 18),),
            mig_capable=True,
            mig_mode="Enabled",
            mig_profiles=("1g.18gb", "3g.71gb"),
            mig_instances=(MigPartition("1g.18gb", "MIG-1"),),
        )
        assert report.heartbeat == heartbeat
        assert report.health == {uuid_of("n1", 1): HealthReport("Healthy")}
        assert report.versions.toolkit == "1.17.4"
        assert report.bad == frozenset()

    def test_of_others_tell_of_their_instances(self):
        device = device_of(reported(gpu_feature("n1", 1)))
        assert (device.address, device.uuid) == ("0000:17:00.0", uuid_of("n1", 0))
        assert (device.memory_mib, device.compute_capability) == (143771, "9.0")
        assert device.mig_instances is None

    def test_of_nfd_itself_keep_their_labels_about_devices_only(self):
        report = reported(nfd_feature("n1"))
        assert report.labels == {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}
        assert (report.agent, report.instances) == (None, None)

    def test_without_an_address_do_not_list_all_devices(self):
        report = reported(
            a_node_feature(
                "f",
                "n1",
                instances={"nvidia.com/gpu": [gpu_instance("n1", 0), {"uuid": "GPU-lost"}]},
            )
        )
        assert report.instances is not None
        assert len(report.instances.devices) == 1
        assert not report.instances.is_complete
        assert {item.key for item in report.bad} == {"[1].pci.address"}

    def test_that_list_a_device_twice_have_it_once(self):
        devices = [gpu_instance("n1", 0), gpu_instance("n1", 0, uuid="GPU-other")]
        report = reported(a_node_feature("f", "n1", instances={"nvidia.com/gpu": devices}))
        assert device_of(report).uuid == uuid_of("n1", 0)
        assert {item.key for item in report.bad} == {"[1].pci.address"}

    def test_with_a_list_that_was_not_written_list_nothing_and_not_none(self):
        raw: dict[str, Any] = {"spec": {"features": {"instances": {"nvidia.com/gpu": {}}}}}
        assert reported(raw).instances is None
        listed: dict[str, Any] = {
            "spec": {"features": {"instances": {"nvidia.com/gpu": {"elements": []}}}}
        }
        report = reported(listed)
        assert report.instances is not None
        assert report.instances.is_complete

    @pytest.mark.parametrize("text", ["yesterday", "2026-01-01", "2026-01-01T00:00:00"])
    def test_with_a_heartbeat_that_is_no_time_have_none(self, text: str):
        feature = agent_feature("n1", [])
        feature["metadata"]["annotations"] = {"gpu.deckhouse.io/heartbeat": text}
        report = reported(feature)
        assert report.heartbeat is None
        assert {item.value for item in report.bad} == {text}

    def test_keep_garbage_short(self):
        device = agent_device("n1", 0) | {"product": "\n" * 1000}
        (bad,) = reported(agent_feature("n1", [device])).bad
        assert len(bad.value) < 80


KEYS = st.sampled_from(
    sorted(
        {**rule_labels(1), **gfd_labels(1)}
        | dict.fromkeys(
            [
                "nvidia.com/mig-1g.5gb.count",
                "nvidia.com/mig-.count",
                "gpu.deckhouse.io/device..",
                "gpu.deckhouse.io/device.9999999.vendor",
            ]
        )
    )
)
ATTRIBUTES = st.sampled_from(sorted({*agent_device("n", 0), *gpu_instance("n", 0)}))
TEXTS = st.text(max_size=40) | st.sampled_from(
    ["[]", "{}", '[{"peer": 1}]', "[" * 3000, "0x", "10DE", "1g.5gb", "-1", "0000:17:00.0", "true"]
)


@given(st.dictionaries(KEYS | st.text(max_size=20), TEXTS, max_size=12))
def test_no_label_raises(labels: dict[str, str]):
    report = label_report(labels)
    assert all(item.key for item in report.bad)


@given(st.lists(st.dictionaries(ATTRIBUTES, TEXTS, max_size=8), max_size=4), st.text(max_size=30))
def test_no_attribute_raises(elements: list[dict[str, str]], heartbeat: str):
    feature = a_node_feature(
        "f",
        "n1",
        instances={"gpu.deckhouse.io/device": elements, "nvidia.com/gpu": elements},
        annotations={"gpu.deckhouse.io/heartbeat": heartbeat},
    )
    report = reported(feature)
    assert report.agent is not None
    addresses = [device.address for device in report.agent.devices]
    assert len(set(addresses)) == len(addresses)
