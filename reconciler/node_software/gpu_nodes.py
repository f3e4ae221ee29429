"""Nodes with a GPU as the node software sees them, and the changes of nodes that matter to it.

Labels of nodes change often, above all while Node Feature Discovery restarts; few of them are any of these facts.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.driver_upgrade import IDLE_VALUES, UPGRADE_SKIP_LABEL, UPGRADE_STATE_LABEL
from api.names import DRIVER_OWNER_LABEL, NVIDIA_PRESENT_LABEL, OPERANDS_LABEL
from api.vendor import NFD_PREFIX
from kube.event_source import EventSource
from operands.nvidia.label_change import has_gpu
from operands.nvidia.node_software import (
    HostSoftware,
    gets_operands,
    recorded_software,
    why_unsupported,
)
from reconciler.pool.index_changes import index_changes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.names import NodeName
    from pool.index.figures import IndexFigures
    from pool.model import NodeFacts
    from reconciler.controller_spec import ControllerContext

_TRUE: Final = "true"


@final
@dataclass(frozen=True, slots=True)
class _GpuNode:
    software: HostSoftware
    owner: str
    is_upgrading: bool
    labels_are_removed: bool


@final
class GpuNodes:
    """Facts of the nodes with a GPU, read from the index."""

    def __init__(self, index: "IndexFigures") -> None:
        self._index = index
        self._current: dict[NodeName, _GpuNode] = {}
        self.changes: EventSource[NodeName] = EventSource()
        """Nodes of which a fact of this class changed."""

    def all(self) -> "list[NodeFacts]":
        """Return all nodes, also those without a GPU."""
        return list(self._index.nodes.values())

    def labels_by_node(self) -> "dict[str, Mapping[str, str]]":
        """Return the labels of nodes with a GPU, by name."""
        return {
            node.name: node.labels
            for node in self._index.nodes.values()
            if node.labels.get(NVIDIA_PRESENT_LABEL) == _TRUE
        }

    def labels_by_new_node(self) -> "dict[str, Mapping[str, str]]":
        """Return the labels of nodes with a GPU that have none of a ClusterPolicy yet, by name."""
        return {
            node.name: node.labels
            for node in self._index.nodes.values()
            if NVIDIA_PRESENT_LABEL not in node.labels and has_gpu(node.labels)
        }

    def unsupported(self) -> dict[str, str]:
        """Return the nodes with a GPU of a system to which nothing is brought, and why, by name."""
        return {
            name: why
            for name, labels in self.labels_by_node().items()
            if labels.get(OPERANDS_LABEL) != "false" and (why := why_unsupported(labels))
        }

    def has_nfd_labels(self) -> bool:
        """Say whether a node has a label of Node Feature Discovery."""
        return any(
            key.startswith(NFD_PREFIX) for node in self._index.nodes.values() for key in node.labels
        )

    def node_changed(self, name: "NodeName") -> None:
        """Publish the node if one of the facts changed."""
        before = self._current.get(name)
        node = self._index.nodes.get(name)
        after = None
        if node is not None and (
            node.labels.get(NVIDIA_PRESENT_LABEL) == _TRUE or node.deploy_labels
        ):
            after = _GpuNode(
                software=recorded_software(node.labels),
                owner=node.labels.get(DRIVER_OWNER_LABEL, ""),
                is_upgrading=is_upgrading(node.labels),
                labels_are_removed=not node.deploy_labels,
            )
        if after == before:
            return
        if after is None:
            del self._current[name]
        else:
            self._current[name] = after
        self.changes.publish(name)


def is_upgrading(labels: "Mapping[str, str]") -> bool:
    """Say whether the driver of a node is being upgraded, or is to be, or could not be."""
    is_skipped = labels.get(UPGRADE_SKIP_LABEL) == _TRUE
    return not is_skipped and labels.get(UPGRADE_STATE_LABEL, "") not in IDLE_VALUES


def software_groups(labels_by_node: "Mapping[str, Mapping[str, str]]") -> tuple[HostSoftware, ...]:
    """Return the distinct software of the nodes that get operands, sorted."""
    found = {recorded_software(item) for item in labels_by_node.values() if gets_operands(item)}
    return tuple(sorted(found))


def gpu_nodes(context: "ControllerContext") -> GpuNodes:
    found = GpuNodes(context.index)
    context.follow(context.shared(index_changes).nodes, found.node_changed)
    return found
