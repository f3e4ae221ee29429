"""Items of prioritize's reply, one for each node that fits, made once for each score that a node has.

filter and prioritize ask the same of a view: filter which names fit, prioritize what they score, mostly
for the same list. What is looked up is the item itself, so that one pass over the names answers both, and
prioritize only joins what filter found.
"""

from typing import TYPE_CHECKING

from scheduler.codec import encode_priority

if TYPE_CHECKING:
    from api.names import NodeName
    from pool.index.node_view import FitView


def items_of(view: "FitView", names: "list[NodeName]") -> "list[bytes | None]":
    """Return each name's item; None for those that do not fit."""
    if view.stale:
        _renew(view)
    return list(map(view.items.get, names))


def _renew(view: "FitView") -> None:
    """Make the items of the nodes whose score has changed; in order, so that they lie side by side."""
    for name in sorted(view.stale):
        score = view.scores.get(name)
        if score is None:
            view.items.pop(name, None)
        else:
            view.items[name] = encode_priority(name, score)
    view.stale.clear()
