"""Presence: whether any source says that a node has a device, so that the node agent has to run there.

Any single source suffices, and none of them has to know the device's address: labels of NFD, of our
NodeFeatureRule and of NVIDIA's components, and the device lists in NodeFeatures. A node agent that went silent
said so with its last words, which stay.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from api.names import NVIDIA_PRESENT_LABEL, PRESENT_LABEL
from inventory.discovery.labels import report_device

if TYPE_CHECKING:
    from inventory.discovery.sources import FeatureReport


def has_device(labels: Mapping[str, str], features: "Sequence[FeatureReport]") -> bool:
    """Whether the labels of the sources, or a NodeFeature, say that the node has a device."""
    return (
        report_device(labels)
        or any(feature.is_on_bus for feature in features)
        or any(
            listed is not None and (listed.devices or not listed.is_complete)
            for feature in features
            for listed in (feature.agent, feature.instances)
        )
    )


def labels_of_sources(
    labels: Mapping[str, str], *, is_ours: bool, is_nvidias_ours: bool = False
) -> Mapping[str, str]:
    """Return a node's labels without those of presence that this control plane set: they are no source.

    Args:
        labels: of the node.
        is_ours: whether it set `PRESENT_LABEL`.
        is_nvidias_ours: whether it set `NVIDIA_PRESENT_LABEL`, for the operands of a ClusterPolicy.
    """
    ours = (PRESENT_LABEL,) if is_ours else ()
    if is_nvidias_ours:
        ours = (*ours, NVIDIA_PRESENT_LABEL)
    return {key: value for key, value in labels.items() if key not in ours} if ours else labels
