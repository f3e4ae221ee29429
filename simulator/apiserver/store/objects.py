"""The objects, their versions and the history of changes. Synchronous: every method is atomic.

An object is encoded once, when it is written; responses, lists and watch events reuse the bytes.
Stored bodies are never changed: `Stored.copy` returns a mutable body.
"""

import asyncio
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from simulator.apiserver.apply.ownership import Ownership
from simulator.apiserver.errors import already_exists, stale

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulator.apiserver.resource_types import ResourceType

Json = dict[str, Any]

FIRST_VERSION: Final = 100
"""Versions start here, so that a client can name one that is too old."""

_encoder = msgspec.json.Encoder()
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@final
class Stored:
    """One version of one object."""

    __slots__ = ("body", "encoded", "ownership", "version")

    def __init__(self, body: Json, version: int, ownership: Ownership) -> None:
        """Take over `body`, which has no managedFields, and give it the version."""
        metadata = dict(body["metadata"])
        metadata["resourceVersion"] = str(version)
        self.body: Json = {**body, "metadata": metadata}
        """The object without managedFields; never changed."""
        self.version = version
        self.ownership = ownership
        self.encoded = encode(self.body, ownership)

    @property
    def key(self) -> tuple[str, str]:
        metadata = self.body["metadata"]
        return metadata.get("namespace", ""), metadata["name"]

    def copy(self) -> Json:
        """Return a mutable copy without managedFields."""
        copied = _decode(self.encoded)
        copied["metadata"].pop("managedFields", None)
        return copied


def encode(body: Json, ownership: Ownership) -> bytes:
    """Return the JSON of an object with its managedFields."""
    metadata = dict(body["metadata"])
    if managed := ownership.render():
        metadata["managedFields"] = managed
    # Kind and version come first, so that a list can cut them off.
    return _encoder.encode({"kind": "", "apiVersion": "", **body, "metadata": metadata})


@final
@dataclass(frozen=True, kw_only=True)
class Change:
    """One entry of the history."""

    kind: str
    """ADDED, MODIFIED or DELETED."""
    stored: Stored
    """The object afterwards; of a deleted one the last state, with the version of its deletion."""
    previous: Stored | None

    @property
    def version(self) -> int:
        return self.stored.version

    @cached_property
    def line(self) -> bytes:
        return event_line(self.kind, self.stored.encoded)


def event_line(kind: str, encoded: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + encoded + b"}\n"


@final
class Revision:
    """The version counter that all collections share."""

    def __init__(self) -> None:
        self.current = FIRST_VERSION

    def advance(self) -> int:
        self.current += 1
        return self.current


@final
class History:
    """The last changes of one collection, for watches and for paged lists.

    It keeps between `limit` and twice `limit` changes; older ones are expired.
    """

    def __init__(self, floor: int, limit: int) -> None:
        self.floor = floor
        """Changes after this version are known."""
        self._limit = limit
        self._changes: list[Change] = []
        self._next_change = asyncio.Event()

    def append(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > 2 * self._limit:
            self.forget(keep=self._limit)
        self.wake()

    def forget(self, *, keep: int = 0) -> None:
        """Drop all but the newest changes."""
        dropped = self._changes[: len(self._changes) - keep]
        if dropped:
            self.floor = dropped[-1].version
            del self._changes[: len(dropped)]

    def after(self, version: int) -> list[Change] | None:
        """Return the changes after the version, oldest first, or None if some are expired."""
        if version < self.floor:
            return None
        return self._changes[bisect_right(self._changes, version, key=_version_of) :]

    def restart(self, floor: int) -> None:
        """Start again without any change, as the store was restored."""
        self.floor = floor
        self._changes.clear()

    def wake(self) -> None:
        """Wake all waiting watches."""
        self._next_change.set()
        self._next_change = asyncio.Event()

    @property
    def next_change(self) -> asyncio.Event:
        """An event that the next change sets; take it before reading the changes."""
        return self._next_change


def _version_of(change: Change) -> int:
    return change.version


@final
class Collection:
    """All objects of one kind."""

    def __init__(self, revision: Revision, history_limit: int) -> None:
        self._revision = revision
        # namespace -> name -> object; cluster-scoped objects have the namespace ""
        self._objects: dict[str, dict[str, Stored]] = {}
        self.history = History(revision.current, history_limit)
        self._ordered: tuple[tuple[int, str], list[Stored]] | None = None
        self.version = revision.current
        """Version of the last change of this collection."""

    def get(self, namespace: str, name: str) -> Stored | None:
        return self._objects.get(namespace, {}).get(name)

    def all(self, namespace: str = "") -> "Iterator[Stored]":
        """Yield the objects of a namespace, or of all, in no order."""
        spaces = [self._objects.get(namespace, {})] if namespace else list(self._objects.values())
        for space in spaces:
            yield from list(space.values())

    def add(self, resource: "ResourceType", body: Json, ownership: Ownership) -> Stored:
        """Store a new object.

        Raises:
            StatusError: 409, there is one of that name.
        """
        metadata = body["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        if self.get(namespace, name) is not None:
            raise already_exists(resource, name)
        stored = Stored(body, self._revision.advance(), ownership)
        self._objects.setdefault(namespace, {})[name] = stored
        self._record("ADDED", stored, None)
        return stored

    def replace(
        self, resource: "ResourceType", previous: Stored, body: Json, *, ownership: Ownership
    ) -> Stored:
        """Store a new version of `previous`.

        Raises:
            StatusError: 409, `previous` is not the newest version any more.
        """
        namespace, name = previous.key
        if self.get(namespace, name) is not previous:
            raise stale(resource, name)
        stored = Stored(body, self._revision.advance(), ownership)
        self._objects[namespace][name] = stored
        self._record("MODIFIED", stored, previous)
        return stored

    def remove(self, previous: Stored, body: Json | None = None) -> Stored:
        """Remove the object, with the last state `body` if given; return the last state."""
        namespace, name = previous.key
        del self._objects[namespace][name]
        if not self._objects[namespace]:
            del self._objects[namespace]
        final_body = previous.body if body is None else body
        stored = Stored(final_body, self._revision.advance(), previous.ownership)
        self._record("DELETED", stored, previous)
        return stored

    def snapshot(self) -> "CollectionBackup":
        return self.version, {space: dict(objects) for space, objects in self._objects.items()}

    def restore(self, snapshot: "CollectionBackup") -> None:
        self.version, objects = snapshot
        self._objects = {space: dict(stored) for space, stored in objects.items()}
        self._ordered = None
        self.history.restart(self._revision.current)

    def _record(self, kind: str, stored: Stored, previous: Stored | None) -> None:
        self.version = stored.version
        self.history.append(Change(kind=kind, stored=stored, previous=previous))

    def ordered_at(self, version: int, namespace: str) -> list[Stored] | None:
        """Return the objects at the version, ordered by key, or None if that is expired.

        The last result is cached: pages of a list ask for the same.
        """
        if self.history.after(version) is None:
            return None
        asked = (version, namespace)
        if self._ordered is None or self._ordered[0] != asked:
            state = self.state_at(version, namespace)
            assert state is not None, "its history is known"
            self._ordered = (asked, [state[key] for key in sorted(state)])
        return self._ordered[1]

    def state_at(self, version: int, namespace: str) -> "dict[tuple[str, str], Stored] | None":
        """Return the objects at the version, or None if that is expired."""
        changes = self.history.after(version)
        if changes is None:
            return None
        state = {stored.key: stored for stored in self.all(namespace)}
        for change in reversed(changes):
            if namespace and change.stored.key[0] != namespace:
                continue
            if change.previous is None:
                state.pop(change.stored.key, None)
            else:
                state[change.previous.key] = change.previous
        return state


CollectionBackup = tuple[int, dict[str, dict[str, Stored]]]
"""Version and objects of a collection."""


@final
@dataclass(frozen=True, kw_only=True)
class StoreBackup:
    """All objects at one version, as a backup of etcd has them."""

    version: int
    collections: dict[tuple[str, str], CollectionBackup]


@final
class ObjectStore:
    """All collections, under one version counter."""

    def __init__(self, *, history_limit: int) -> None:
        self.revision = Revision()
        self._history_limit = history_limit
        # (group, plural) -> collection
        self._collections: dict[tuple[str, str], Collection] = {}

    def collection(self, resource: "ResourceType") -> Collection:
        """Return the collection of the resource type, created on first use."""
        found = self._collections.get(resource.storage)
        if found is None:
            found = Collection(self.revision, self._history_limit)
            self._collections[resource.storage] = found
        return found

    def collections(self) -> "list[Collection]":
        return list(self._collections.values())

    def snapshot(self) -> StoreBackup:
        """Return a backup."""
        collections = {key: found.snapshot() for key, found in self._collections.items()}
        return StoreBackup(version=self.revision.current, collections=collections)

    def restore(self, snapshot: StoreBackup) -> None:
        """Go back to a backup: objects and versions. Watches stay open, as from a version that lies in the future."""
        self.revision.current = snapshot.version
        for key, collection in self._collections.items():
            collection.restore(snapshot.collections.get(key, (snapshot.version, {})))
