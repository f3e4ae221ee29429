"""Server-side apply: merge a configuration into an object, by owner.

Fields of the configuration become the applier's. Fields that it applied before and now leaves out
are removed unless another manager owns them. A field that another manager set to another value is a
conflict, unless forced.

A map that is still applied, or has another owner, and loses its last member becomes null. The schema of a custom
resource refuses that, unless the map is nullable or has a default; a built-in kind reads null as left out.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from simulator.apiserver.apply.ownership import Manager, Ownership
from simulator.apiserver.errors import StatusError
from simulator.apiserver.schema import fields
from simulator.apiserver.schema import list_types as shapes
from simulator.apiserver.schema.fields import Path

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, MutableSequence

Json = dict[str, Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """One apply request."""

    config: Json
    manager: Manager
    forced: bool
    shape: "Mapping[str, Any]"
    now: str


def apply(application: Application, live: Json, owners: Ownership) -> tuple[Json, Ownership]:
    """Return the merged object and its ownership; `live` is not changed.

    Raises:
        StatusError: 409, other managers set fields of the configuration to other values.
    """
    manager, shape = application.manager, application.shape
    requested = fields.ownable(application.config)
    applied = frozenset(fields.leaves(requested, shape)) if requested else frozenset[Path]()
    merged = _merge(live, requested, shape)
    assert isinstance(merged, dict)

    changed = fields.Difference(fields.ownable(live), fields.ownable(merged), shape).changed
    conflicts = [
        (share.manager, path)
        for share in owners.others(manager)
        for path in sorted(changed & share.paths)
    ]
    if conflicts and not application.forced:
        raise _conflict_fault(conflicts)

    owners_after = owners.without({path for _, path in conflicts}, keep=manager)
    kept: set[Path] = set()
    for paths in (applied, *(share.paths for share in owners_after.others(manager))):
        for path in paths:
            # A keyed item stays as long as anything in it has an owner, and so does a map that was empty before.
            kept.update(path[:length] for length in range(1, len(path) + 1))
    for path in sorted(owners.of(manager) - applied):
        if path not in kept:
            _remove(merged, path, shape, kept=kept)
    return merged, owners_after.with_share(manager, applied, application.now)


def without_nulls(value: Json) -> Json:
    """Return a copy in which no field is null, at any depth."""
    return {key: _strip(item) for key, item in value.items() if item is not None}


def _strip(value: object) -> object:
    if isinstance(value, dict):
        return without_nulls(value)
    if isinstance(value, list):
        return [_strip(item) for item in value]
    return value


def _merge(live: object, requested: object, shape: "Mapping[str, Any]") -> object:
    if isinstance(live, dict) and isinstance(requested, dict) and shapes.is_granular_map(shape):
        merged = dict(live)
        for key, value in requested.items():
            merged[key] = _merge(live.get(key), value, shapes.child(shape, key))
        return merged
    if isinstance(live, list) and isinstance(requested, list):
        if keys := shapes.list_keys(shape):
            return _merge_keyed(live, requested, keys, item_shape=shapes.item(shape))
        if shapes.is_set(shape):
            return live + [entry for entry in requested if entry not in live]
    return requested


def _merge_keyed(
    live: list[Any], requested: list[Any], keys: tuple[str, ...], *, item_shape: "Mapping[str, Any]"
) -> list[Any]:
    merged = {fields.item_element(item, keys, item_shape): item for item in live}
    for item in requested:
        element = fields.item_element(item, keys, item_shape)
        merged[element] = _merge(merged.get(element), item, item_shape)
    return list(merged.values())


def _remove(
    container: Json, path: Path, shape: "Mapping[str, Any]", *, kept: "Collection[Path]"
) -> None:
    """Remove the value at the path, in place in `container`, with maps and lists that become empty.

    An empty one that is kept becomes null. The containers on the way are copied first, because the live object shares them.
    """
    parent: Json | MutableSequence[Any] = container
    trail: list[tuple[Json | MutableSequence[Any], str | int]] = []
    for depth, element in enumerate(path, 1):
        at = _position(parent, element, shape)
        if at is None:
            return
        trail.append((parent, at))
        shape = _inner_shape(shape, element)
        inner = parent[at]  # type: ignore[index]  # `at` is a key of a map or an index of a list
        if isinstance(inner, dict | list) and depth < len(path):
            inner = parent[at] = inner.copy()  # type: ignore[index]
        parent = inner
    holder, at = trail.pop()
    del holder[at]  # type: ignore[arg-type]
    while not holder and trail and path[: len(trail)] not in kept:
        holder, at = trail.pop()
        del holder[at]  # type: ignore[arg-type]
    if not holder and trail:
        holder, at = trail.pop()
        holder[at] = None  # type: ignore[index]


def _position(parent: object, element: str, shape: "Mapping[str, Any]") -> str | int | None:
    if isinstance(parent, dict):
        key = element[2:]
        return key if element.startswith("f:") and key in parent else None
    if not isinstance(parent, list):
        return None
    keys, item_shape = shapes.list_keys(shape), shapes.item(shape)
    for index, entry in enumerate(parent):
        found = (
            fields.item_element(entry, keys, item_shape) if keys else fields.member_element(entry)
        )
        if found == element:
            return index
    return None


def _inner_shape(shape: "Mapping[str, Any]", element: str) -> "Mapping[str, Any]":
    return shapes.child(shape, element[2:]) if element.startswith("f:") else shapes.item(shape)


def _conflict_fault(conflicts: list[tuple[Manager, Path]]) -> StatusError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {manager}",
            "field": fields.show(path),
        }
        for manager, path in conflicts
    ]
    if len(conflicts) == 1:
        text = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        paths_by_manager: dict[str, list[str]] = {}
        for manager, path in conflicts:
            paths_by_manager.setdefault(str(manager), []).append(fields.show(path))
        groups = [
            f"conflicts with {manager}:" + "".join(f"\n- {path}" for path in paths)
            for manager, paths in sorted(paths_by_manager.items())
        ]
        text = f"{len(conflicts)} conflicts: " + "\n".join(groups)
    return StatusError(409, "Conflict", f"Apply failed with {text}", details={"causes": causes})
