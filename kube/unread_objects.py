"""Objects that exist and cannot be read: a field or a value of another version, written before a rollback or by its owner.

Such an object is not absent. Where an earlier state of it is known, the sink keeps that. Where none is, its name is
*unread*: nothing of it may be deleted, released, relabelled, withdrawn or taken over by another object.
"""

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, final, runtime_checkable

import msgspec

from telemetry.metrics import INFORMER_UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Collection

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class UnreadObject(msgspec.Struct, frozen=True, gc=False):
    """What identifies an object that could not be decoded."""

    namespace: str
    name: str
    uid: str
    node: str = ""
    """`spec.nodeName`, which a bound pod has."""
    resource: str = ""
    """`spec.resource.name`, which a GPUPool may have."""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


def last_read_state(found: T | None, unread: UnreadObject) -> T | None:
    """Return the state of the object's name unless it is another object's; one without a UID counts for any."""
    uid = getattr(getattr(found, "metadata", found), "uid", None)
    return found if uid in {None, unread.uid} else None


@runtime_checkable
class KeepingSink(Protocol[T_co]):
    """A sink that keeps what it knows of an object over a list that could not read it."""

    def last_read(self, unread: UnreadObject) -> T_co | None:
        """Return the last known state of the object, if there is one."""


@runtime_checkable
class UnreadSink(KeepingSink[T_co], Protocol[T_co]):
    """A sink that also tells objects of which nothing is known from those that are gone."""

    def replace_unread(self, unread: "Collection[UnreadObject]") -> None:
        """Take these as all objects that exist and of which no state is known."""


@final
class UnreadObjects(Generic[T]):
    """The unreadable objects of one informer, which it adds and drops; the sink knows those without a known state.

    An object is added before the sink is told of a list without it, and dropped after the sink has it, or has
    forgotten it: the sink never takes it for absent between the two.
    """

    def __init__(self, sink: object, resource: str) -> None:
        self._keeper: KeepingSink[T] | None = sink if isinstance(sink, KeepingSink) else None
        self._sink: UnreadSink[T] | None = sink if isinstance(sink, UnreadSink) else None
        self._gauge = INFORMER_UNREADABLE.labels(resource)
        self._by_key: dict[tuple[str, str], UnreadObject] = {}
        self._given: dict[tuple[str, str], UnreadObject] = {}
        # What the sink was given last.

    def __len__(self) -> int:
        return len(self._by_key)

    def add(self, unread: "Collection[UnreadObject]") -> list[T]:
        """Add objects; return the known states of those that have one."""
        if not unread:
            return []
        self._by_key |= {item.key: item for item in unread}
        self._publish()
        if self._keeper is None:
            return []
        last_reads = (self._keeper.last_read(item) for item in unread)
        return [item for item in last_reads if item is not None]

    def drop(self, namespace: str, name: str) -> None:
        """Drop an object that can be read, or is gone."""
        if self._by_key.pop((namespace, name), None) is not None:
            self._publish()

    def keep_only(self, unread: "Collection[UnreadObject]") -> None:
        """Drop all others: they were in the list that the sink has now, or are gone."""
        keys = {item.key for item in unread}
        dropped = [key for key in self._by_key if key not in keys]
        for key in dropped:
            del self._by_key[key]
        if dropped:
            self._publish()

    def _publish(self) -> None:
        self._gauge.set(len(self._by_key))
        if self._sink is None:
            return
        # A name that the sink was given stays given until it can be read: a state that comes later is a read one.
        unknown = {
            key: item
            for key, item in self._by_key.items()
            if key in self._given or self._sink.last_read(item) is None
        }
        if unknown != self._given:
            self._given = unknown
            self._sink.replace_unread(tuple(unknown.values()))
