"""Field paths as in `managedFields`: the leaves of an object, and differences between two objects.

A path is a tuple of elements: `f:<name>` for a field, `k:{…}` for an item of a keyed list, `v:…`
for a member of a set. Only leaves and keyed items are paths; a list without keys is one leaf, and an
empty set or list of keyed items has no path.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, final

import msgspec

from simulator.apiserver.schema import list_types as shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]
Path = tuple[str, ...]

_OWNED_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")


def ownable(body: Json) -> Json:
    """Return the part of an object whose fields can have owners."""
    part = {key: value for key, value in body.items() if key not in {"kind", "apiVersion"}}
    metadata = body.get("metadata") or {}
    part["metadata"] = {key: metadata[key] for key in _OWNED_METADATA if metadata.get(key)}
    if not part["metadata"]:
        del part["metadata"]
    return part


def item_element(item: object, keys: tuple[str, ...], item_shape: "Mapping[str, Any]") -> str:
    """Return the path element of a keyed list's item; absent keys get the schema's default."""
    fields = item if isinstance(item, dict) else {}
    values = [fields.get(key, shapes.child(item_shape, key).get("default")) for key in keys]
    try:
        return _key_element(keys, *values)
    except TypeError:
        # A key that is no scalar cannot be looked up; validation refuses it later.
        return _key_element.__wrapped__(keys, *values)


@lru_cache(maxsize=4096, typed=True)
def _key_element(keys: tuple[str, ...], *values: object) -> str:
    found = zip(keys, values, strict=True)
    present = {key: value for key, value in sorted(found) if value is not None}
    return "k:" + msgspec.json.encode(present).decode()


def member_element(member: object) -> str:
    return "v:" + msgspec.json.encode(member).decode()


def leaves(value: object, shape: "Mapping[str, Any]", path: Path = ()) -> list[Path]:
    """Return the path of every leaf and of every keyed item."""
    found: list[Path] = []
    _collect(value, shape, path, found=found)
    return found


def _collect(value: object, shape: "Mapping[str, Any]", path: Path, *, found: list[Path]) -> None:
    # Runs for every write: a list that grows costs half of what nested generators do.
    if value and isinstance(value, dict) and shapes.is_granular_map(shape):
        for key, entry in value.items():
            at = (*path, "f:" + key)
            if isinstance(entry, dict | list):
                _collect(entry, shapes.child(shape, key), at, found=found)
            else:
                found.append(at)
    elif isinstance(value, list) and (keys := shapes.list_keys(shape)):
        item_shape = shapes.item(shape)
        for entry in value:
            at = (*path, item_element(entry, keys, item_shape))
            found.append(at)
            _collect(entry, item_shape, at, found=found)
    elif isinstance(value, list) and shapes.is_set(shape):
        found += [(*path, member_element(entry)) for entry in value]
    else:
        found.append(path)


@final
class Difference:
    """The leaves in which two objects differ."""

    def __init__(self, old: object, new: object, shape: "Mapping[str, Any]") -> None:
        self.changed: set[Path] = set()
        """Leaves of the new object that are new or have another value."""
        self.removed: set[Path] = set()
        """Leaves of the old object that are gone."""
        self._compare(old, new, shape, path=())

    def _compare(self, old: object, new: object, shape: "Mapping[str, Any]", *, path: Path) -> None:
        if old == new:
            return
        if isinstance(old, dict) and isinstance(new, dict) and shapes.is_granular_map(shape):
            named_old = {
                "f:" + key: (value, shapes.child(shape, key)) for key, value in old.items()
            }
            named_new = {
                "f:" + key: (value, shapes.child(shape, key)) for key, value in new.items()
            }
            self._compare_parts(named_old, named_new, path)
        elif isinstance(old, list) and isinstance(new, list) and (keys := shapes.list_keys(shape)):
            item_shape = shapes.item(shape)
            keyed_old = {item_element(i, keys, item_shape): (i, item_shape) for i in old}
            keyed_new = {item_element(i, keys, item_shape): (i, item_shape) for i in new}
            self._compare_parts(keyed_old, keyed_new, path, items=True)
        elif isinstance(old, list) and isinstance(new, list) and shapes.is_set(shape):
            members_old = {(*path, member_element(entry)) for entry in old}
            members_new = {(*path, member_element(entry)) for entry in new}
            self.changed |= members_new - members_old
            self.removed |= members_old - members_new
        else:
            after = set(leaves(new, shape, path))
            self.changed |= after
            self.removed |= set(leaves(old, shape, path)) - after

    def _compare_parts(
        self,
        old: "Mapping[str, tuple[object, Mapping[str, Any]]]",
        new: "Mapping[str, tuple[object, Mapping[str, Any]]]",
        path: Path,
        *,
        items: bool = False,
    ) -> None:
        for element, (value, shape) in new.items():
            at = (*path, element)
            if element in old:
                self._compare(old[element][0], value, shape, path=at)
                continue
            if items:
                self.changed.add(at)
            self.changed.update(leaves(value, shape, at))
        for element, (value, shape) in old.items():
            if element not in new:
                at = (*path, element)
                if items:
                    self.removed.add(at)
                self.removed.update(leaves(value, shape, at))


@lru_cache(maxsize=1024)
def path_text(paths: frozenset[Path]) -> msgspec.Raw:
    """Return the paths as the JSON of `fieldsV1`, in the order of names.

    Cached, because pods of one controller have the same fields.
    """
    root: Json = {}
    for path in paths:
        node = root
        for element in path:
            node = node.setdefault(element, {})
        if path and path[-1].startswith("k:"):
            node["."] = {}
    return msgspec.Raw(msgspec.json.encode(root, order="sorted"))


def show(path: Path) -> str:
    """Return the path in the form of messages: `.status.conditions[type="Ready"].status`."""
    quoted = ""
    for element in path:
        kind, text = element[:2], element[2:]
        if kind == "f:":
            quoted += "." + text
        elif kind == "k:":
            keys = msgspec.json.decode(text)
            quoted += (
                "["
                + ",".join(f"{k}={msgspec.json.encode(v).decode()}" for k, v in keys.items())
                + "]"
            )
        else:
            quoted += f"[={text}]"
    return quoted
