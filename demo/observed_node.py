"""What the API server shows of a node on its way to readiness, and of the software that makes it ready."""

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from agent.detection.report import detector_feature_name
from api.foreign.core import Node
from api.foreign.nodefeature import NodeFeature
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.names import PRESENT_LABEL, PRESENT_LABEL_MANAGER
from demo.node_programs import VALIDATOR
from inventory.discovery.labels import COUNT_LABEL
from kube.errors import NotFound
from kube.resources import GPU_NODE_INVENTORIES, NODE_FEATURES, NODES, PODS
from manifests.constants import DEFAULT_NAMESPACE
from telemetry.conditions import InventoryCondition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from api.meta import Condition
    from demo.cluster import DemoCluster

_CONDITION_OF: Final = {
    "validator": InventoryCondition.READY_FOR_POOLING,
    "gfd": InventoryCondition.GFD_READY,
}
"""The condition that turns False with an operand, and says since when."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedNode:
    """A node at one moment."""

    detected: int = 0
    """Devices by the detector's NodeFeature."""
    is_labelled: bool = False
    """Whether the server has labelled the node."""
    devices: int = 0
    """GPUDevices."""
    passed: frozenset[str] = frozenset()
    """Init containers of the validator's pod that have succeeded."""
    inventory: GPUNodeInventory
    """An empty one where there is none."""


async def view_of(cluster: "DemoCluster", node: str) -> ObservedNode:
    """Read everything about a node; what is not there yet is empty."""
    found = await cluster.client.get(NODES, Node, node)
    devices = (await cluster.devices()).values()
    return ObservedNode(
        detected=await _detected(cluster, node),
        is_labelled=found.metadata.owns_label(PRESENT_LABEL_MANAGER, PRESENT_LABEL),
        devices=sum(1 for device in devices if device.status.node_name == node),
        passed=frozenset(await _passed(cluster, node)),
        inventory=await inventory_of(cluster, node),
    )


async def inventory_of(cluster: "DemoCluster", node: str) -> GPUNodeInventory:
    """Return the node's inventory; an empty one where there is none."""
    try:
        return await cluster.client.get(GPU_NODE_INVENTORIES, GPUNodeInventory, node)
    except NotFound:
        return GPUNodeInventory()


def conditions_of(inventory: GPUNodeInventory) -> "dict[str, Condition]":
    return {condition.type: condition for condition in inventory.status.conditions or ()}


def is_condition(inventory: GPUNodeInventory, type_: InventoryCondition, status: str) -> bool:
    """Return whether the inventory shows the condition with this status."""
    found = conditions_of(inventory).get(type_.value)
    return found is not None and found.status == status


def operand_rows(inventories: "Iterable[GPUNodeInventory]") -> "list[Sequence[str]]":
    """Return node, operand and readiness of every operand, and since when one is not ready."""
    rows: list[Sequence[str]] = [("NODE", "OPERAND", "READY", "SINCE")]
    for inventory in sorted(inventories, key=lambda item: item.metadata.name):
        conditions = conditions_of(inventory)
        for operand in inventory.status.operands or ():
            condition = conditions.get(_CONDITION_OF[operand.name].value)
            since = "" if operand.ready or condition is None else _clock_time(condition)
            ready = "True" if operand.ready else "False"
            rows.append((inventory.metadata.name, operand.name, ready, since))
    return rows


async def _detected(cluster: "DemoCluster", node: str) -> int:
    try:
        feature = await cluster.client.get(
            NODE_FEATURES,
            NodeFeature,
            detector_feature_name(node),
            namespace=DEFAULT_NAMESPACE,
        )
    except NotFound:
        return 0
    return int((feature.spec.labels or {}).get(COUNT_LABEL, "0"))


async def _passed(cluster: "DemoCluster", node: str) -> list[str]:
    name = f"{VALIDATOR}-{node}"
    try:
        pod = await cluster.client.get(PODS, dict[str, Any], name, namespace=DEFAULT_NAMESPACE)
    except NotFound:
        return []
    statuses = pod["status"].get("initContainerStatuses", ())
    return [status["name"] for status in statuses if status["ready"]]


def _clock_time(condition: "Condition") -> str:
    return f"{dt.datetime.fromisoformat(condition.last_transition_time):%H:%M:%S} UTC"
