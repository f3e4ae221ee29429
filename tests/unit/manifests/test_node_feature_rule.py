"""The NodeFeatureRule: valid for NFD's definition, and its labels are those that the inventory reads."""

from collections.abc import Sequence

from inventory.discovery.labels import label_report
from inventory.discovery.presence import has_device
from manifests.install.node_feature_rule import build_node_feature_rule
from tests.support.nfd_master import labels_of
from tests.support.published_crds import faults, published_crd

INTELS = {"vendor": "8086", "class": "0300", "device": "56a0"}
AUDIO = {"vendor": "10de", "class": "0403", "device": "10fa"}
DEVICES = [
    {"vendor": "10de", "class": "0302", "device": "20b0"},
    {"vendor": "10de", "class": "0300", "device": "2203"},
]
ATTRIBUTES = {
    "kernel.version": {"full": "6.1.0-18-amd64", "major": "6", "minor": "1", "revision": "0"},
    "system.osrelease": {"ID": "debian", "VERSION_ID": "12"},
}


def labels(
    devices: list[dict[str, str]],
    attributes: dict[str, dict[str, str]] | None = None,
    modules: Sequence[str] = (),
) -> dict[str, str]:
    return labels_of(
        build_node_feature_rule(),
        instances={"pci.device": devices},
        attributes=ATTRIBUTES if attributes is None else attributes,
        flags={"kernel.loadedmodule": list(modules)},
    )


def test_rule_is_valid_by_nfds_definition():
    assert (
        faults(build_node_feature_rule(), published_crd("nodefeaturerules.nfd.k8s-sigs.io")) == []
    )


def test_faults_are_found_by_nfds_definition():
    rule = build_node_feature_rule()
    rule["spec"]["rules"][0]["matchFeatures"][0]["matchExpressions"]["vendor"]["op"] = "Like"
    rule["spec"]["rules"][1]["label"] = {}
    found = faults(rule, published_crd("nodefeaturerules.nfd.k8s-sigs.io"))
    assert [text.partition(":")[0] for text in found] == [
        ".spec.rules[0].matchFeatures[0].matchExpressions.vendor.op",
        ".spec.rules[1].label",
    ]


def test_inventory_reads_the_devices_that_the_rule_labels():
    report = label_report(labels([INTELS, DEVICES[0], AUDIO, DEVICES[1]]))
    found = [
        (number, item.vendor, item.device, item.class_) for number, item in report.slots.items()
    ]
    assert found == [(0, "10de", "20b0", "0302"), (1, "10de", "2203", "0300")]
    assert (report.devices, report.has_devices, report.bad) == (2, True, frozenset())


def test_node_with_a_labelled_device_gets_the_node_agent():
    assert has_device(labels(DEVICES[:1]), [])


def test_node_without_a_device_gets_no_label():
    assert labels([INTELS, AUDIO], modules=["nvidia"]) == {}


def test_kernel_operating_system_and_loaded_modules_are_labelled():
    found = labels(DEVICES, modules=["nvidia", "nvidia_uvm", "ext4"])
    kept = {
        key.removeprefix("gpu.deckhouse.io/"): value
        for key, value in found.items()
        if "device" not in key
    }
    assert kept == {
        "present": "true",
        "driver.name": "nvidia",
        "driver.module.nvidia": "true",
        "driver.module.nvidia_uvm": "true",
        "kernel.version.full": "6.1.0-18-amd64",
        "kernel.version.major": "6",
        "kernel.version.minor": "1",
        "os.id": "debian",
        "os.version_id": "12",
    }


def test_system_without_a_version_gets_the_other_labels():
    attributes = {
        "kernel.version": ATTRIBUTES["kernel.version"],
        "system.osrelease": {"ID": "arch"},
    }
    found = labels(DEVICES, attributes)
    assert "gpu.deckhouse.io/os.id" not in found
    assert found["gpu.deckhouse.io/kernel.version.full"] == "6.1.0-18-amd64"
