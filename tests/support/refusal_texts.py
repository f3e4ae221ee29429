"""Texts of refusals of nodes, with names in the place of figures."""

from collections.abc import Collection
from typing import Any

from api.names import PoolName
from pool.refusal import CacheIncompatibility, NodeReason, NodeRefusal
from telemetry.reasons import node_refusal_text


def node_text(reason: NodeReason, zero: Collection[str] = ()) -> str:
    """Return the text of kube-scheduler's Event, whose figures print their own names in capitals, or are 0."""
    figures: dict[str, Any] = {name: name.upper() for name in NodeRefusal.__struct_fields__}
    figures |= dict.fromkeys(zero, 0)
    figures |= {
        "reason": reason,
        "incompatibility": CacheIncompatibility("kernel cache CACHE fits", "WHY"),
    }
    return node_refusal_text(NodeRefusal(**figures), PoolName("NAME"))
