"""A copy of a cluster on which pods can be tried, read through the plugin's source."""

import dataclasses
from typing import TYPE_CHECKING, Any

from api.clock import Instant
from cli.simulation.cluster_objects import LISTED, ClusterObjects
from cli.simulation.snapshot import take_snapshot
from kubectl_gpu.cluster_lists import read_list
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.dumped.dump_source import DumpSource
from kubectl_gpu.errors import ForbiddenError, NotFoundError, UnreadableError
from kubectl_gpu.waiting.pool_reading import ONLY_POOLS

if TYPE_CHECKING:
    from collections.abc import Collection

    from cli.simulation.cluster_objects import ListedKind
    from cli.simulation.snapshot import Snapshot
    from kubectl_gpu.cluster_source import ReadableSource


def copy_of(source: "ReadableSource", *, cordoned: "Collection[str]" = ()) -> "Snapshot":
    """Read a cluster, and return its copy as if further nodes were cordoned.

    Raises:
        UnreadableError: pools or devices cannot be read, or there is no node of a name.
    """
    found = ClusterObjects(origin=source.origin)
    for kind in LISTED:
        _read(source, kind, found)
    if isinstance(source, DumpSource):
        found.are_pods_whole = False
        found.gaps.append(ONLY_POOLS)
    _cordon(found, cordoned)
    return take_snapshot(found, Instant(0.0, source.now()))


def _read(source: "ReadableSource", kind: "ListedKind", found: ClusterObjects) -> None:
    def keep(item: Any) -> object | None:  # noqa: ANN401  # of the kind's own type
        return kind.project(item)

    plural = kind.resource.plural
    try:
        listed = read_list(source, ListQuery(kind.resource), kind.item_type, keep=keep)
    except (ForbiddenError, NotFoundError) as error:
        if kind.is_needed:
            raise
        if kind.is_optional and isinstance(error, NotFoundError):
            return
        found.gaps.append(f"{error}: {kind.without}")
        return
    found.of(kind).extend(listed.items)
    if listed.undecodable:
        found.gaps.append(f"{listed.undecodable} {plural} cannot be decoded and are left out")


def _cordon(found: ClusterObjects, names: "Collection[str]") -> None:
    """Cordon nodes of the copy.

    Raises:
        UnreadableError: a node is not among those that were read.
    """
    missing = set(names) - {node.name for node in found.nodes}
    if missing:
        raise UnreadableError(
            f"there is no node {', '.join(sorted(missing))}, or nodes may not be listed;"
            " `kubectl gpu nodes` shows their names"
        )
    found.nodes = [
        dataclasses.replace(node, is_cordoned=True) if node.name in names else node
        for node in found.nodes
    ]
