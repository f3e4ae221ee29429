"""Nodes and policies for the tests of deploy labels."""

from dataclasses import replace
from typing import Any

import msgspec

from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from api.names import DEPLOY_LABELS_ANNOTATION, UPGRADE_ENABLED_ANNOTATION
from operands.nvidia.deploy_labels import LabelParameters, deploy_labels, label_parameters
from operands.nvidia.label_change import Hold, LabelChange, LabelledNode

GPU = {"feature.node.kubernetes.io/pci-10de.present": "true"}
NFD = {
    "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
    "feature.node.kubernetes.io/kernel-version.full": "6.8.0-40-generic",
    **GPU,
}
MIG = {"nvidia.com/mig.capable": "true"}
DEPLOY = "nvidia.com/gpu.deploy."
CONTAINER = {
    "driver",
    "gpu-feature-discovery",
    "container-toolkit",
    "device-plugin",
    "dcgm",
    "dcgm-exporter",
    "node-status-exporter",
    "operator-validator",
    "client",
}
ALL_HOLDS = frozenset(Hold)


def a_policy(name: str = "cluster-policy", *, created: str = "", **spec: Any) -> ClusterPolicy:
    metadata = {"name": name, "creationTimestamp": created or None}
    return msgspec.convert({"metadata": metadata, "spec": spec}, ClusterPolicy)


def a_driver(name: str, *, is_going: bool = False, **spec: Any) -> NVIDIADriver:
    metadata = {"name": name, "deletionTimestamp": "2026-01-01T00:00:00Z" if is_going else None}
    return msgspec.convert({"metadata": metadata, "spec": spec}, NVIDIADriver)


def parameters(*drivers: NVIDIADriver, **spec: Any) -> LabelParameters:
    found = label_parameters(a_policy(**spec), drivers)
    assert found is not None
    return found


def a_node(labels: dict[str, str] | None = None, **facts: Any) -> LabelledNode:
    return LabelledNode(**{"labels": NFD if labels is None else labels, **facts})


def applied(node: LabelledNode, change: LabelChange) -> LabelledNode:
    """Return the node as a merge patch leaves it."""
    labels = {**node.labels, **change.labels}
    annotations = {
        DEPLOY_LABELS_ANNOTATION: node.recorded,
        UPGRADE_ENABLED_ANNOTATION: node.upgrade_enabled,
        **change.annotations,
    }
    return changed(
        node,
        labels={key: value for key, value in labels.items() if value is not None},
        recorded=annotations[DEPLOY_LABELS_ANNOTATION] or "",
        upgrade_enabled=annotations[UPGRADE_ENABLED_ANNOTATION] or "",
    )


def changed(node: LabelledNode, **changes: Any) -> LabelledNode:
    return replace(node, **changes)


def with_labels(node: LabelledNode, **labels: str | None) -> LabelledNode:
    """Return the node after another writer changed deploy labels, which are named by their operand."""
    return relabelled(
        node, {f"{DEPLOY}{name.replace('_', '-')}": value for name, value in labels.items()}
    )


def relabelled(node: LabelledNode, labels: dict[str, str | None]) -> LabelledNode:
    """Return the node after another writer changed labels."""
    merged = {**node.labels, **labels}
    kept = {key: value for key, value in merged.items() if value is not None}
    return changed(node, labels=kept)


def stable(
    node: LabelledNode, policy: LabelParameters | None, *, expired: frozenset[Hold] = frozenset()
) -> LabelledNode:
    """Return the node after its change, which leaves nothing more to change."""
    after = applied(node, deploy_labels(node, policy, expired=expired))
    assert not deploy_labels(after, policy, expired=expired)
    return after


def operands(node: LabelledNode) -> set[str]:
    """Return the operands that the node's labels bring."""
    return {
        key.removeprefix(DEPLOY)
        for key, value in node.labels.items()
        if key.startswith(DEPLOY) and value == "true"
    }
