"""What a node's inventory lacks, and whether the node has one."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from api.foreign.nodefeature import NodeFeature
from api.kinds.gpudevice import PCI, GPUDevice, GPUDeviceStatus
from api.kinds.gpunodeinventory import DriverVersions
from api.meta import ObjectMeta
from api.names import DEVICE_NODE_LABEL
from inventory.discovery import node
from inventory.discovery import parsing as values
from inventory.discovery.labels import label_report
from inventory.discovery.merge import MergedReport, merge
from inventory.discovery.plan import DevicePlan
from inventory.discovery.sources import feature_report
from tests.support.builders import EPOCH
from tests.support.node_features import agent_device, agent_feature, gfd_labels, rule_labels


def seen(labels: dict[str, str]) -> MergedReport:
    return merge(label_report(labels), [], addresses=(), now=EPOCH, fresh_for=node.FRESH_FOR)


def gpus(*uuids: str) -> list[GPUDeviceStatus]:
    return [GPUDeviceStatus(uuid=uuid, inventory_id=f"n1-{n}") for n, uuid in enumerate(uuids)]


@pytest.mark.parametrize(
    ("labels", "devices", "want"),
    [
        pytest.param({}, [], None, id="no device"),
        pytest.param(
            {"feature.node.kubernetes.io/pci-10de.present": "true"},
            [],
            (node.IncompleteReason.SOURCE, "no source reports its PCI address"),
            id="a device that no source lists",
        ),
        pytest.param(
            {"gpu.deckhouse.io/device-count": "2"},
            [],
            (node.IncompleteReason.SOURCE, "the node agent"),
            id="two that no source lists",
        ),
        pytest.param(
            rule_labels(2),
            [],
            (node.IncompleteReason.ADDRESSES, "device.00, device.01"),
            id="numbered devices",
        ),
        pytest.param(
            rule_labels(3),
            gpus("a", "b"),
            (node.IncompleteReason.DEVICES, "3 devices are on the bus, and 2"),
            id="more on the bus",
        ),
        pytest.param(
            rule_labels(2),
            gpus("a", ""),
            (node.IncompleteReason.UUIDS, "of n1-1: install or load"),
            id="no driver",
        ),
        pytest.param(rule_labels(2), gpus("a", "b"), None, id="complete"),
        pytest.param({}, gpus("a"), None, id="more than is counted"),
    ],
)
def test_an_incomplete_inventory_names_its_reason(
    labels: dict[str, str],
    devices: list[GPUDeviceStatus],
    want: tuple[node.IncompleteReason, str] | None,
):
    incomplete = node.incompleteness_of(seen(labels), devices)
    if want is None:
        assert incomplete is None
    else:
        assert incomplete is not None
        assert incomplete.reason is want[0]
        assert want[1] in incomplete.message


@pytest.mark.parametrize(
    ("driver", "silent_s", "want"),
    [
        ("vfio-pci", 0, ("n1-1",)),
        ("nvgrace_gpu_vfio_pci", 0, ("n1-1",)),
        ("nouveau", 0, ()),
        pytest.param("vfio-pci", 10_000, ("n1-1",), id="an agent that is silent"),
    ],
)
def test_a_device_that_a_virtual_machine_has_is_not_incomplete(
    driver: str, silent_s: int, want: tuple[str, ...]
):
    bound = agent_device("n1", 1)
    del bound["uuid"]
    devices = [agent_device("n1", 0), bound | {"pci.driver": driver}]
    feature = msgspec.convert(agent_feature("n1", devices, heartbeat=EPOCH), NodeFeature)
    statuses = [
        msgspec.structs.replace(status, pci=PCI(address=device["pci.address"]))
        for status, device in zip(gpus("a", ""), devices, strict=True)
    ]
    addresses = [device["pci.address"] for device in devices]
    merged = merge(
        label_report({}),
        [feature_report(feature)],
        addresses=addresses,
        now=EPOCH + dt.timedelta(seconds=silent_s),
        fresh_for=node.FRESH_FOR,
    )
    assert node.passed_through(merged, statuses) == want
    assert (node.incompleteness_of(merged, statuses) is None) is bool(want)


@pytest.mark.parametrize(
    ("labels", "by_default", "want"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"gpu.deckhouse.io/enabled": "FALSE"}, True, False),
        ({"gpu.deckhouse.io/enabled": ""}, False, True),
        ({"gpu.deckhouse.io/enabled": "yes"}, False, True),
        ({"other": "false"}, True, True),
    ],
)
def test_a_node_is_managed_unless_its_label_says_no(
    labels: dict[str, str], *, by_default: bool, want: bool
):
    parameters = node.InventoryParameters(is_managed_by_default=by_default)
    assert node.is_managed(labels, parameters) is want


def test_the_label_that_opts_out_may_be_another():
    parameters = node.InventoryParameters(managed_label="example.com/gpu")
    assert not node.is_managed({"example.com/gpu": "false"}, parameters)
    assert node.is_managed({"gpu.deckhouse.io/enabled": "false"}, parameters)


def test_versions_that_no_source_reports_any_more_stay():
    versions = DriverVersions(version="1", cuda_version="2", toolkit_version="3")
    assert node.versions_of(seen({}), versions) == versions
    reported = node.versions_of(seen(gfd_labels(1)), versions)
    assert reported == DriverVersions(version="570.86.15", cuda_version="12.8", toolkit_version="3")


@pytest.mark.parametrize(
    ("labels", "devices", "is_visible", "want"),
    [
        ({}, [], False, False),
        ({}, [], True, True),
        ({"gpu.deckhouse.io/present": "true"}, [], False, True),
        ({"nvidia.com/gpu.memory": "much"}, [], False, True),
        ({}, ["by hand"], False, False),
        ({}, ["ours"], False, True),
    ],
)
def test_which_nodes_have_an_inventory(
    labels: dict[str, str], devices: list[str], *, is_visible: bool, want: bool
):
    def a_device(name: str) -> GPUDevice:
        labels = {DEVICE_NODE_LABEL: "x"} if name == "ours" else None
        return GPUDevice(metadata=ObjectMeta(name=name, labels=labels))

    found = [a_device(name) for name in devices]
    assert node.has_inventory(seen(labels), found, DevicePlan(), is_visible=is_visible) is want


@pytest.mark.parametrize(
    "text",
    [
        '[{"peer": "here", "type": "NVLink"}]',
        '[{"peer": "0000:17:00.0", "type": "NV Link"}]',
        '[{"peer": "0000:17:00.0", "type": "NVLink", "count": 0}]',
        '{"peer": 1}',
    ],
)
def test_links_that_make_no_sense_are_none(text: str):
    assert values.links(text) is None


@pytest.mark.parametrize(
    "text", ['[{"profile": "big", "uuid": "MIG-1"}]', '[{"profile": "1g.5gb", "uuid": ""}]', "x"]
)
def test_instances_that_make_no_sense_are_none(text: str):
    assert values.partitions(text) is None


def test_links_and_instances_of_a_list_have_one_order():
    links: Any = values.links(
        '[{"peer": "18:00.0", "type": "X"}, {"peer": "00000000:17:00.0", "type": "X", "count": 2}]'
    )
    assert [(link.peer, link.count) for link in links] == [("0000:17:00.0", 2), ("0000:18:00.0", 1)]
