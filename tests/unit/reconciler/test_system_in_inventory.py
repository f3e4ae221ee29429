"""Kernel and operating system in a GPUNodeInventory: which source counts, and that a quiet node costs no write."""

import msgspec
import pytest

from api.foreign.nodefeature import AGENT_ATTRIBUTES, AgentNode, NodeFeature
from api.kinds.gpunodeinventory import NodeSystem
from inventory.discovery.labels import label_report
from inventory.discovery.merge import MergedReport, merge, merged_labels
from inventory.discovery.node import FRESH_FOR, system_of
from inventory.discovery.sources import feature_report
from tests.support.builders import EPOCH
from tests.unit.manifests.test_node_feature_rule import DEVICES, labels

AGENTS = {AgentNode.OS: "ubuntu", AgentNode.OS_VERSION: "22.04"}
WORKERS = {
    "feature.node.kubernetes.io/kernel-version.full": "6.1.0-18-amd64",
    "feature.node.kubernetes.io/system-os_release.ID": "debian",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID": "12",
}


def merged(
    node: dict[str, str] | None = None,
    agent: dict[str, str] | None = None,
    asked: dict[str, str] | None = None,
) -> MergedReport:
    attributes = {AGENT_ATTRIBUTES: {"elements": agent or {}}}
    body = {"spec": {"features": {"attributes": attributes}, "labels": asked or {}}}
    features = [feature_report(msgspec.convert(body, NodeFeature))]
    return merge(
        label_report(merged_labels(node or {}, features)),
        features,
        addresses=(),
        now=EPOCH,
        fresh_for=FRESH_FOR,
    )


def current(
    report: MergedReport, addresses: NodeSystem | None = None, kernel: str = ""
) -> list[str]:
    found = system_of(report, addresses or NodeSystem(), kernel=kernel)
    return [found.kernel, found.os, found.os_version]


@pytest.mark.parametrize(
    ("report", "kernel", "expected"),
    [
        pytest.param(merged(), "", ["", "", ""], id="nobody says"),
        pytest.param(merged(), "6.8.0", ["6.8.0", "", ""], id="kubelet"),
        pytest.param(merged(agent=AGENTS), "6.8.0", ["6.8.0", "ubuntu", "22.04"], id="the agent"),
        pytest.param(merged(WORKERS), "", ["6.1.0-18-amd64", "debian", "12"], id="NFD"),
        pytest.param(
            merged(asked=WORKERS), "", ["6.1.0-18-amd64", "debian", "12"], id="NFD, not on the node"
        ),
        pytest.param(
            merged(labels(DEVICES)), "", ["6.1.0-18-amd64", "debian", "12"], id="our rule"
        ),
        pytest.param(
            merged(WORKERS, AGENTS),
            "6.8.0",
            ["6.8.0", "ubuntu", "22.04"],
            id="kubelet and agent before NFD",
        ),
        pytest.param(
            merged(WORKERS, {AgentNode.OS: "arch"}),
            "6.8.0",
            ["6.8.0", "arch", ""],
            id="no version of another source",
        ),
    ],
)
def test_most_trusted_source_counts(report: MergedReport, kernel: str, expected: list[str]):
    assert current(report, kernel=kernel) == expected


def test_known_system_stays_when_its_source_is_gone():
    system = NodeSystem(kernel="6.8.0", os="ubuntu", os_version="22.04")
    assert system_of(merged(), system, kernel="") == system
    assert current(merged(), system, kernel="6.8.1") == ["6.8.1", "ubuntu", "22.04"]


def test_invalid_text_is_left_out_and_reported():
    report = merged(agent={AgentNode.OS: "a b"})
    assert report.system == NodeSystem()
    assert [item.key for item in report.bad] == [AgentNode.OS]
