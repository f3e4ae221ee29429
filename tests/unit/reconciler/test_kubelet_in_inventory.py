"""The settings of a node's kubelet in the status of its inventory."""

from typing import TYPE_CHECKING

import msgspec

from api.foreign.nodefeature import AGENT_ATTRIBUTES, AgentNode, NodeFeature
from api.kinds.gpunodeinventory import (
    GPUNodeInventoryStatus,
    KubeletConfiguration,
    TopologyManagerPolicy,
    TopologyManagerScope,
)
from inventory.discovery.labels import label_report
from inventory.discovery.merge import merge
from inventory.discovery.node import FRESH_FOR
from inventory.discovery.sources import feature_report
from reconciler.inventory.status import (
    CompletenessFacts,
    inventory_body,
    inventory_status,
    shows_inventory,
)
from tests.support.builders import EPOCH

if TYPE_CHECKING:
    from inventory.discovery.merge import MergedReport

COMPLETENESS_FACTS = CompletenessFacts(
    names=[], faulted=0, managed=True, kernel="", managed_label="enabled", incomplete=None
)
NONE = KubeletConfiguration()
SINGLE = KubeletConfiguration(
    topology_manager_policy=TopologyManagerPolicy.SINGLE_NUMA_NODE,
    topology_manager_scope=TopologyManagerScope.POD,
)


def reported(**attributes: str) -> "MergedReport":
    elements = {AgentNode.DRIVER_VERSION: "570.86.15"} | {
        f"kubelet.{key}": value for key, value in attributes.items()
    }
    spec = {"features": {"attributes": {AGENT_ATTRIBUTES: {"elements": elements}}}}
    feature = msgspec.convert({"metadata": {"name": "f"}, "spec": spec}, NodeFeature)
    return merge(
        label_report({}),
        [feature_report(feature)],
        addresses=(),
        now=EPOCH,
        fresh_for=FRESH_FOR,
    )


def status_after(
    merged: "MergedReport", current: GPUNodeInventoryStatus | None = None
) -> GPUNodeInventoryStatus:
    return inventory_status(
        COMPLETENESS_FACTS, merged, current or GPUNodeInventoryStatus(), generation=1, now=EPOCH
    )


def test_what_the_agent_reports_is_shown():
    merged = reported(topologyManagerPolicy="single-numa-node", topologyManagerScope="pod")
    expected = status_after(merged)
    assert expected.kubelet == SINGLE
    assert inventory_body(expected)["kubelet"] == SINGLE
    assert msgspec.to_builtins(NONE) == {
        "topologyManagerPolicy": "none",
        "topologyManagerScope": "container",
        "alignedResources": [],
    }


def test_what_kubelet_aligns_with_devices_is_shown():
    settings = {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}
    current = status_after(reported(**settings, alignedResources="cpu,example.com/nic"))
    assert current.kubelet is not None
    assert current.kubelet.aligned_resources == ["cpu", "example.com/nic"]
    invalid = reported(**settings, alignedResources="cpu,,")
    assert status_after(invalid).kubelet == KubeletConfiguration(
        topology_manager_policy=TopologyManagerPolicy.RESTRICTED,
        topology_manager_scope=TopologyManagerScope.POD,
    )
    assert {item.value for item in invalid.bad} == {"cpu,,"}


def test_unknown_settings_are_absent():
    assert "kubelet" not in inventory_body(status_after(reported()))
    half = reported(topologyManagerPolicy="single-numa-node")
    assert status_after(half).kubelet is None
    invalid = reported(topologyManagerPolicy="strict", topologyManagerScope="pod")
    assert status_after(invalid).kubelet is None
    assert {item.value for item in invalid.bad} == {"strict"}


def test_a_change_of_them_is_written():
    merged = reported(topologyManagerPolicy="none", topologyManagerScope="container")
    current = status_after(merged)
    assert shows_inventory(current, status_after(merged, current), merged)
    changed = reported(topologyManagerPolicy="single-numa-node", topologyManagerScope="pod")
    assert not shows_inventory(current, status_after(changed, current), changed)
    gone = reported()
    assert not shows_inventory(current, status_after(gone, current), gone)
