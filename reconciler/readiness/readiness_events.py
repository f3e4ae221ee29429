"""Events of a node's software: one each time that a part of it is found missing."""

from typing import TYPE_CHECKING, Final

from kube.event_recorder import ObjectReference
from kube.resources import GPU_NODE_INVENTORIES
from telemetry.conditions import InventoryCondition, NodeSoftware
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.meta import Condition
    from kube.event_recorder import EventRecorder

ACTION: Final = "Judge"
_REASONS: Final = {
    InventoryCondition.DRIVER_MISSING.value: EventReason.DRIVER_MISSING,
    InventoryCondition.TOOLKIT_MISSING.value: EventReason.TOOLKIT_MISSING,
    InventoryCondition.GFD_READY.value: EventReason.FEATURE_DISCOVERY_MISSING,
    InventoryCondition.MONITORING_MISSING.value: EventReason.MONITORING_MISSING,
}


def record_missing(
    recorder: "EventRecorder",
    inventory: "GPUNodeInventory",
    *,
    shown: "Iterable[Condition]",
    written: "Iterable[Condition]",
) -> None:
    """Record each part that was just written as not ready, and was not shown so before."""
    before = {item.type for item in shown if _is_missing(item)}
    for item in written:
        if _is_missing(item) and item.type in _REASONS and item.type not in before:
            recorder.warning(
                ObjectReference.to(GPU_NODE_INVENTORIES, inventory.metadata),
                _REASONS[item.type],
                item.message,
                action=ACTION,
            )


def _is_missing(condition: "Condition") -> bool:
    return condition.reason == NodeSoftware.NOT_READY.value
