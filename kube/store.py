"""Stores of watched objects, filled by informers; each publishes the keys of changes.

A reconciler reads whole objects here and is triggered by keys, never by events. Objects are frozen, and an
equal object is no change; `metadata.resourceVersion` is part of the comparison.
"""

from operator import ne
from typing import TYPE_CHECKING, Generic, TypeVar, final

from kube.batches import steps
from kube.event_source import EventSource
from kube.unread_objects import last_read_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from kube.sink import KubeObject
    from kube.unread_objects import UnreadObject

T = TypeVar("T", bound="KubeObject")
K = TypeVar("K", bound=str)
G = TypeVar("G")
Item = TypeVar("Item")


@final
class Store(Generic[T]):
    """Objects of a cluster-scoped kind by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, T] = {}
        """Read it, don't keep it."""
        self.changes: EventSource[str] = EventSource()
        """Names of objects."""
        self.unread: frozenset[str] = frozenset()
        """Names of objects that exist and of which no state is known."""

    def last_read(self, unread: "UnreadObject") -> T | None:
        return last_read_state(self.by_name.get(unread.name), unread)

    def replace_unread(self, unread: "Collection[UnreadObject]") -> None:
        """Take over the unread objects; those that came or went are changes."""
        before, self.unread = self.unread, frozenset(item.name for item in unread)
        for name in sorted(before ^ self.unread):
            self.changes.publish(name)

    def replace_all(self, items: "Sequence[T]") -> None:
        """Take over a full list; objects that are not in it are removed."""
        names = {item.metadata.name for item in items}
        for name in sorted(self.by_name.keys() - names):
            del self.by_name[name]
            self.changes.publish(name)
        for item in items:
            self.upsert(item)

    def upsert(self, item: T) -> None:
        name = item.metadata.name
        if self.by_name.get(name) != item:
            self.by_name[name] = item
            self.changes.publish(name)

    def discard(self, item: T) -> None:
        if self.by_name.pop(item.metadata.name, None) is not None:
            self.changes.publish(item.metadata.name)


@final
class IndexedStore(Generic[K, G, Item]):
    """Items by key and by group, as client-go's Indexer; publishes the groups of items that changed.

    An item that moves to another group is a change of both. An equal item is no change.
    """

    def __init__(
        self,
        key: "Callable[[Item], K]",
        group: "Callable[[Item], G]",
        *,
        is_change: "Callable[[Item, Item], bool]" = ne,
        prepare: "Callable[[Item], Item] | None" = None,
        identify: "Callable[[UnreadObject], tuple[K, G]] | None" = None,
    ) -> None:
        """Start empty.

        Args:
            key: returns what identifies an item.
            group: returns the group of an item, which is what reconcilers ask for.
            is_change: decides whether a different item of the same group is published.
            prepare: returns the item to keep, equal to the one that came.
            identify: returns key and group of an object that could not be read; without it no such object is kept
                over a list.
        """
        self._identify = identify
        self._key = key
        self._group = group
        self._is_change = is_change
        self._prepare = prepare
        self._by_key: dict[K, Item] = {}
        self._by_group: dict[G, dict[K, Item]] = {}
        self._unread_groups: dict[K, G] = {}
        self.unread: frozenset[K] = frozenset()
        """Keys of objects that exist and of which no state is known."""
        self.changes: EventSource[G] = EventSource()

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: K) -> Item | None:
        return self._by_key.get(key)

    def keys(self) -> "AbstractSet[K]":
        """Return a live view."""
        return self._by_key.keys()

    def groups(self) -> "AbstractSet[G]":
        """Return a live view of the groups that have an item."""
        return self._by_group.keys()

    def of(self, group: G) -> "Mapping[K, Item]":
        """Return the items of a group by key: read it, don't keep it."""
        return self._by_group.get(group, {})

    def replace_all(self, items: "Sequence[Item]") -> None:
        """Take over a full list; items that are not in it are removed."""
        for _ in self.replace_in_steps(items):
            pass

    def replace_in_steps(self, items: "Sequence[Item]") -> "Iterator[None]":
        """Take over a full list in steps; removals come first."""
        keys = {self._key(item) for item in items}
        for gone in steps(sorted(self._by_key.keys() - keys)):
            for key in gone:
                self.remove(key)
            yield
        for entry in steps(items):
            for item in entry:
                self.upsert(item)
            yield

    def last_read(self, unread: "UnreadObject") -> Item | None:
        if self._identify is None:
            return None
        return last_read_state(self._by_key.get(self._identify(unread)[0]), unread)

    def replace_unread(self, unread: "Collection[UnreadObject]") -> None:
        """Take over the unread objects; the groups of those that came or went are published."""
        if self._identify is None:
            return
        groups = dict(map(self._identify, unread))
        before, self.unread = self._unread_groups, frozenset(groups)
        self._unread_groups = groups
        for key in before.keys() ^ groups.keys():
            self.changes.publish(before[key] if key in before else groups[key])

    def upsert(self, item: Item) -> None:
        key, group = self._key(item), self._group(item)
        before = self._by_key.get(key)
        if before == item:
            return
        if before is not None and self._group(before) != group:
            self.remove(key)
            before = None
        if self._prepare is not None:
            item = self._prepare(item)
        self._by_key[key] = item
        self._by_group.setdefault(group, {})[key] = item
        if before is None or self._is_change(before, item):
            self.changes.publish(group)

    def discard(self, item: Item) -> None:
        self.remove(self._key(item))

    def remove(self, key: K) -> None:
        item = self._by_key.pop(key, None)
        if item is None:
            return
        group = self._group(item)
        siblings = self._by_group[group]
        del siblings[key]
        if not siblings:
            del self._by_group[group]
        self.changes.publish(group)
