"""Items of prioritize's reply, encoded once for each score that a node has.

filter and prioritize look up the same view, mostly for the same list: filter needs to know which names
fit, prioritize their scores. The item itself is looked up, so one pass over the names answers both.
"""

from typing import TYPE_CHECKING, final
from weakref import WeakKeyDictionary

from scheduler.codec import encode_priority

if TYPE_CHECKING:
    from api.names import NodeName
    from pool.index.node_view import FitView


@final
class EncodedScores:
    """Encoded items by view; a view that the index drops is dropped here with it."""

    def __init__(self) -> None:
        self._by_view: WeakKeyDictionary[FitView, _ViewItems] = WeakKeyDictionary()

    def of(self, view: "FitView", names: "list[NodeName]") -> "list[bytes | None]":
        """Return each name's item; None for names that do not fit."""
        items = self._by_view.get(view)
        if items is None:
            items = self._by_view[view] = _ViewItems(view)
        return items.of(names)


class _ViewItems:
    """Items of one view; it keeps the view's scores and not the view, which may be dropped."""

    __slots__ = ("_items", "_scores", "_stale")

    def __init__(self, view: "FitView") -> None:
        self._scores = view.scores
        self._stale = view.follow_scores()
        self._items: dict[NodeName, bytes] = {}

    def of(self, names: "list[NodeName]") -> "list[bytes | None]":
        if self._stale:
            self._renew()
        return list(map(self._items.get, names))

    def _renew(self) -> None:
        """Encode the items of nodes whose score has changed; in order, so that they lie side by side."""
        for name in sorted(self._stale):
            score = self._scores.get(name)
            if score is None:
                self._items.pop(name, None)
            else:
                self._items[name] = encode_priority(name, score)
        self._stale.clear()
