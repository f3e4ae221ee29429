"""Kubernetes objects from YAML and JSON files: single ones, streams, and lists as `kubectl get -o yaml` writes them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from api.field_errors import UNDECODABLE
from api.text import truncate
from cli.simulation.cluster_objects import LISTED, ClusterObjects
from cli.simulation.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cli.simulation.cluster_objects import ListedKind

Object = dict[str, Any]

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_FAULTS: Final = 3
"""Undecodable objects that are named; further ones are counted."""
_NEEDED_IN_FILES: Final = ("pods", "nodes")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # C where PyYAML has it
    """Reads times as the texts that they are in Kubernetes' objects."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_cluster(paths: "Sequence[Path]") -> ClusterObjects:
    """Read a cluster's objects from files, and from the YAML and JSON files of directories.

    Objects of kinds that a snapshot does not need are ignored.

    Raises:
        BadInputError: a file cannot be read, or there is no pool or no device.
    """
    found = ClusterObjects(origin=", ".join(map(str, paths)))
    readers = {(kind.resource.api_version, kind.resource.kind): kind for kind in LISTED}
    decoders = {kind: msgspec.json.Decoder(kind.item_type) for kind in LISTED}
    faults: list[str] = []
    for file in _files(paths):
        for position, item in enumerate(read_objects(file), start=1):
            kind = readers.get((str(item.get("apiVersion")), str(item.get("kind"))))
            if kind is None:
                continue
            try:
                projected = kind.project(decoders[kind].decode(msgspec.json.encode(item)))
            except Exception as error:  # noqa: BLE001  # the per-object boundary: counted, and said
                faults.append(f"{file}: object {position}, {_named(item)}: {error}")
                continue
            if projected is not None:
                found.of(kind).append(projected)
    _note_faults(found, faults)
    for kind in LISTED:
        _note_missing(found, kind)
    return found


def read_objects(file: Path) -> "Iterator[Object]":
    """Yield the objects of a file; those of a list one by one.

    Raises:
        BadInputError: it cannot be read, or is not YAML.
    """
    for document in _documents(file):
        if document is None:
            continue
        if not isinstance(document, dict) or "kind" not in document:
            raise BadInputError(f"{file} is no file of Kubernetes objects: they have a kind")
        items = document.get("items")
        if isinstance(items, list) and str(document["kind"]).endswith("List"):
            yield from _of_list(document, items)
        else:
            yield document


def _of_list(document: Object, items: "list[Any]") -> "Iterator[Object]":
    """Yield the items; those of a typed list, as the API server answers it, lack their kind."""
    kind = str(document["kind"]).removesuffix("List")
    for item in items:
        if isinstance(item, dict):
            yield {"apiVersion": document.get("apiVersion"), "kind": kind, **item}


def _documents(file: Path) -> "list[Any]":
    try:
        content = file.read_bytes()
        if content.lstrip()[:1] == b"{":
            return [msgspec.json.decode(content)]
        return list(yaml.load_all(content, Loader=_Loader))  # a safe loader
    except OSError as error:
        raise BadInputError(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, *UNDECODABLE) as error:
        error_text = " ".join(str(error).split())
        raise BadInputError(f"{file} is neither YAML nor JSON: {truncate(error_text)}") from error


def _files(paths: "Sequence[Path]") -> "Iterator[Path]":
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        files = sorted(item for item in path.rglob("*") if item.suffix in _SUFFIXES)
        if not files:
            raise BadInputError(f"directory {path} has no file *.yaml, *.yml or *.json")
        yield from files


def _named(item: Object) -> str:
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{item.get('kind')} {name or 'without a name'}"


def _note_faults(found: ClusterObjects, faults: "list[str]") -> None:
    found.gaps += [
        f"skipped, as it cannot be decoded: {truncate(fault)}" for fault in faults[:_FAULTS]
    ]
    if len(faults) > _FAULTS:
        found.gaps.append(
            f"{len(faults) - _FAULTS} further objects cannot be decoded and are skipped"
        )


def _note_missing(found: ClusterObjects, kind: "ListedKind") -> None:
    if found.of(kind):
        return
    if kind.is_needed:
        raise BadInputError(
            f"{found.origin}: there is no {kind.resource.kind}, and a simulation needs them;"
            f" `kubectl get {kind.resource.plural} -o yaml` writes such a file"
        )
    if kind.resource.plural in _NEEDED_IN_FILES:
        found.gaps.append(f"the files have no {kind.resource.kind}: {kind.without}")
