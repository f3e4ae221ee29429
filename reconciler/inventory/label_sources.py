"""Labels of a node as the inventory may believe them: without those by which this control plane itself says that a GPU is there."""

from typing import TYPE_CHECKING

from api.names import NVIDIA_PRESENT_LABEL
from inventory.discovery.presence import labels_of_sources
from operands.nvidia.deploy_record import is_recorded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pool.model import NodeFacts


def source_labels(node: "NodeFacts") -> "Mapping[str, str]":
    """Return the labels of the sources of the node's inventory."""
    return labels_of_sources(
        node.labels,
        is_ours=node.owns_present_label,
        is_nvidias_ours=is_recorded(node.deploy_labels, NVIDIA_PRESENT_LABEL),
    )
