"""Gauges of nodes and their devices: exported by the leader, removed with the node."""

from collections import Counter
from typing import TYPE_CHECKING, final

from reconciler.inventory.status import is_stale
from telemetry.metrics import (
    DEVICES_STALE,
    INVENTORY_CONDITION,
    INVENTORY_DEVICES,
    INVENTORY_DEVICES_STATE,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.names import NodeName


@final
class InventoryGauges:
    """Sets the gauges of one node at a time."""

    def __init__(self) -> None:
        self._states: dict[NodeName, frozenset[str]] = {}
        # node -> states of which it has a series
        self._conditions: dict[NodeName, frozenset[str]] = {}
        # node -> conditions of which it has a series
        self._stale: dict[NodeName, int] = {}
        # node -> stale devices, where there are any

    def show(
        self,
        node: "NodeName",
        devices: "Sequence[GPUDevice]",
        inventory: "GPUNodeInventory | None",
    ) -> None:
        """Set the gauges of a node; one with neither a device nor an inventory has none."""
        if not devices and inventory is None:
            self.forget(node)
            return
        INVENTORY_DEVICES.labels(node).set(len(devices))
        states = Counter(device.status.state.value for device in devices)
        for state in self._states.get(node, frozenset()) - states.keys():
            INVENTORY_DEVICES_STATE.remove(node, state)
        for state, count in states.items():
            INVENTORY_DEVICES_STATE.labels(node, state).set(count)
        self._states[node] = frozenset(states)
        self._show_conditions(node, inventory)
        self._show_stale(node, sum(is_stale(device) for device in devices))

    def forget(self, node: "NodeName") -> None:
        """Drop the series of a node that is gone."""
        if node not in self._states:
            return
        INVENTORY_DEVICES.remove(node)
        for state in self._states.pop(node):
            INVENTORY_DEVICES_STATE.remove(node, state)
        for condition in self._conditions.pop(node):
            INVENTORY_CONDITION.remove(node, condition)
        self._show_stale(node, 0)

    def forget_all(self) -> None:
        """Remove the series of all nodes."""
        self._states.clear()
        self._conditions.clear()
        self._stale.clear()
        for gauge in (INVENTORY_DEVICES, INVENTORY_DEVICES_STATE, INVENTORY_CONDITION):
            gauge.clear()
        DEVICES_STALE.set(0)

    def _show_conditions(self, node: "NodeName", inventory: "GPUNodeInventory | None") -> None:
        current = inventory.status.conditions if inventory is not None else None
        conditions = {item.type: item.status for item in current or ()}
        for condition in self._conditions.get(node, frozenset()) - conditions.keys():
            INVENTORY_CONDITION.remove(node, condition)
        for condition, status in conditions.items():
            INVENTORY_CONDITION.labels(node, condition).set(status == "True")
        self._conditions[node] = frozenset(conditions)

    def _show_stale(self, node: "NodeName", count: int) -> None:
        """Add the difference: a sum over all nodes at each change of one would cost too much."""
        DEVICES_STALE.inc(count - self._stale.pop(node, 0))
        if count:
            self._stale[node] = count
