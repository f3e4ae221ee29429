"""Nodes that carry the id of a request, from the device index."""

import datetime as dt
from typing import TYPE_CHECKING, Final

from api.names import AGENT_NOT_READY_TAINT, SCALE_REQUEST_LABEL
from api.status_conditions import find_condition
from api.text import truncate
from autoscaling.request_ids import is_id_of
from autoscaling.scaling_model import RequestedNode, RequestId
from telemetry.conditions import InventoryCondition

if TYPE_CHECKING:
    from pool.index.figures import IndexFigures
    from pool.model import NodeFacts, PoolFacts
    from reconciler.informer_stores import InformerStores

UNKNOWN_TIME: Final = dt.datetime.max.replace(tzinfo=dt.UTC)
"""Creation of a Node, of which the index knows nothing: later than any look, so that no deadline is counted from it."""


def requested_nodes(
    stores: "InformerStores", pool: "PoolFacts"
) -> "dict[RequestId, RequestedNode]":
    """Return the nodes of the pool's requests; of two with one id the one that is handed over, else the first by name."""
    found: dict[RequestId, RequestedNode] = {}
    labelled = (item for item in stores.index.nodes.values() if SCALE_REQUEST_LABEL in item.labels)
    for facts in sorted(labelled, key=lambda item: item.name):
        node = requested_node(stores, pool, facts)
        if node is None or not is_id_of(pool, node.request):
            continue
        other = found.get(node.request)
        if other is None or (other.has_startup_taint and not node.has_startup_taint):
            found[node.request] = node
    return found


def requested_node(
    stores: "InformerStores", pool: "PoolFacts", node: "NodeFacts"
) -> RequestedNode | None:
    """Return what a pool has on a node with the id of a request; None for another node."""
    request = node.labels.get(SCALE_REQUEST_LABEL)
    if not request:
        return None
    indexed, allocatable = units_on(stores.index, pool, node)
    figures = stores.index.state(pool.name).node(node.name)
    return RequestedNode(
        name=node.name,
        request=RequestId(request),
        created=UNKNOWN_TIME,
        is_ready=node.is_ready,
        is_leaving=node.is_leaving,
        has_startup_taint=any(taint.key == AGENT_NOT_READY_TAINT for taint in node.taints),
        indexed_units=indexed,
        allocatable_units=allocatable,
        reserved_units=figures.reserved if figures is not None else 0,
        reported_units=figures.total if figures is not None else 0,
        labels=node.labels,
        obstacle=_obstacle(stores, node),
    )


def _obstacle(stores: "InformerStores", node: "NodeFacts") -> str:
    inventory = stores.inventories.by_name.get(node.name)
    conditions = inventory.status.conditions if inventory is not None else None
    condition = find_condition(conditions, InventoryCondition.READY_FOR_POOLING)
    if condition is None or condition.status != "False":
        return ""
    return truncate(condition.message)


def units_on(index: "IndexFigures", pool: "PoolFacts", node: "NodeFacts") -> tuple[int, int]:
    """Return the units of the pool's healthy devices on a node, and those that kubelet allocates there.

    kubelet allocates no units of a device that its plugin calls unhealthy: they are not waited for.
    """
    figures = index.state(pool.name).node(node.name)
    indexed = figures.total - figures.unusable if figures is not None else 0
    return indexed, dict(node.pool_units).get(pool.resource, 0)
