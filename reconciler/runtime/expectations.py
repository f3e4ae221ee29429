"""Expectations: values that a controller wrote and the watch has not delivered yet.

Comparing with the object as it is shown would write everything a second time, and move the times of
conditions. A write is seen once the watch shows the version that it made, or a later one: another writer's
change may be shown in between. One that is not seen within `SEEN_WITHIN_S`, as of an object that was deleted
right after, is forgotten, which bounds the memory.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from api.meta import compared

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from api.clock import Instant
    from api.meta import ObjectMeta

Key = TypeVar("Key", bound="Hashable")
T = TypeVar("T")

SEEN_WITHIN_S: Final = 30.0
"""A watch that is further behind costs a write that changes nothing."""


@final
@dataclass(frozen=True, slots=True)
class _Write(Generic[T]):
    until: float
    uid: str
    version: str
    value: T
    is_deletion: bool = False
    is_before: bool = False
    """The version is the one that was read; the one that the write made is not known."""

    def is_seen(self, current: "ObjectMeta | None") -> bool:
        if self.is_deletion:
            return current is None or current.uid != self.uid
        if current is None:
            return False
        order = compared(current.resource_version, self.version)
        if order is None:
            return self.is_before or current.uid != self.uid
        return order > 0 if self.is_before else order >= 0


@final
class Expectations(Generic[Key, T]):
    """Values that were written, by key, until the watch shows them."""

    def __init__(
        self, now: "Callable[[], Instant]", *, seen_within_s: float = SEEN_WITHIN_S
    ) -> None:
        self._now = now
        self._seen_within_s = seen_within_s
        self._writes: OrderedDict[Key, _Write[T]] = OrderedDict()
        # oldest first

    def expect(self, key: Key, value: T, written: "ObjectMeta") -> None:
        """Expect the version of the answer to a write, or a later one."""
        self._put(key, _Write(self._deadline(), written.uid, written.resource_version, value))

    def expect_newer(self, key: Key, value: T, than: "ObjectMeta") -> None:
        """Expect a later version than the one that was read: of a write whose answer has none."""
        write = _Write(self._deadline(), than.uid, than.resource_version, value, is_before=True)
        self._put(key, write)

    def expect_deletion(self, key: Key, value: T, uid: str) -> None:
        """Expect that the object of this uid is gone."""
        self._put(key, _Write(self._deadline(), uid, "", value, is_deletion=True))

    def unseen(self, key: Key, current: "ObjectMeta | None") -> T | None:
        """Return the value that was written and is not in the object as it is shown."""
        write = self._writes.get(key)
        if write is None:
            return None
        if self._now().monotonic < write.until and not write.is_seen(current):
            return write.value
        del self._writes[key]
        return None

    def are_seen(self, current: "Callable[[Key], ObjectMeta | None]") -> bool:
        """Say whether the watch shows every write."""
        now = self._now().monotonic
        for key, write in list(self._writes.items()):
            if now >= write.until or write.is_seen(current(key)):
                del self._writes[key]
        return not self._writes

    def _deadline(self) -> float:
        return self._now().monotonic + self._seen_within_s

    def _put(self, key: Key, write: _Write[T]) -> None:
        self._writes.pop(key, None)
        self._writes[key] = write
        now = self._now().monotonic
        while next(iter(self._writes.values())).until <= now:
            self._writes.popitem(last=False)
