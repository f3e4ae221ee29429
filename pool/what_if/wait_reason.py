"""The reason of a wait, from the figures of the nodes."""

from typing import TYPE_CHECKING, Final

from pool.refusal import NodeReason
from pool.what_if.explanation import UnitWaitReason
from pool.what_if.node_figures import refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pool.refusal import NodeRefusal
    from pool.what_if.explanation import NodeExplanation

_TOO_LARGE: Final = frozenset(
    {
        NodeReason.NODE_TOO_SMALL,
        NodeReason.CANNOT_ALIGN,
        NodeReason.TOO_FEW_DEVICES,
        NodeReason.KUBELET_REJECTS,
    }
)
_BY_CACHES: Final = frozenset({NodeReason.CACHE_FITS_NO_DEVICE, NodeReason.CACHE_FITS_TOO_FEW})
_BY_RULES: Final = frozenset(
    {
        NodeReason.NOT_ALIGNED,
        NodeReason.NO_DEVICE_WITH_ROOM,
        NodeReason.KUBELET_WOULD_REJECT,
        NodeReason.KUBELET_CHOOSES,
    }
)
_CLOSED: Final = frozenset(
    {
        NodeReason.NODE_LEAVING,
        NodeReason.NODE_STARTING,
        NodeReason.DRIVER_UPGRADE,
        NodeReason.UNACCOUNTED_PODS,
    }
)


def wait_reason(figures: "Sequence[NodeExplanation]", units: int) -> UnitWaitReason:
    """Return the reason of a pod whose pool is open; the first that holds, in the order of the branches."""
    if any(figure.takes_pod for figure in figures):
        return UnitWaitReason.UNITS_AVAILABLE
    judged = list(refused(figures))
    if not judged:
        return UnitWaitReason.NODES_EXCLUDED if figures else UnitWaitReason.UNITS_EXHAUSTED
    return _reason_of_refusals(judged, units)


def _reason_of_refusals(
    judged: "Sequence[tuple[NodeExplanation, NodeRefusal]]", units: int
) -> UnitWaitReason:
    reasons = {refusal.reason for _, refusal in judged}
    if reasons & _BY_CACHES and reasons <= _BY_CACHES | _TOO_LARGE:
        return UnitWaitReason.CACHES_FIT_NO_DEVICE
    if reasons <= _TOO_LARGE:
        return UnitWaitReason.POD_TOO_LARGE
    if reasons & _BY_RULES:
        return UnitWaitReason.UNITS_NOT_ALIGNED
    if any(refusal.reason in _CLOSED and item.withheld >= units for item, refusal in judged):
        return UnitWaitReason.NODES_CLOSED
    if sum(item.free for item, _ in judged) >= units:
        return UnitWaitReason.UNITS_FRAGMENTED
    return UnitWaitReason.UNITS_EXHAUSTED
