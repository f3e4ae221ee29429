"""CustomResourceDefinitions of the kernel caches' kinds, with the columns of GKM."""

from typing import TYPE_CHECKING, Any, Final

from api.kinds.gkmcache import ClusterGKMCache, GKMCache
from api.kinds.gkmcachenode import ClusterGKMCacheNode, GKMCacheNode
from api.names import GKM_GROUP
from manifests.custom_resource import (
    AGE,
    Column,
    CustomResource,
    build_definitions,
    figure_column,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.meta import Model

_COUNTS: Final = ".status.counts"
_USE_COLUMNS: Final = (
    figure_column("Node-In-Use", f"{_COUNTS}.nodeInUseCnt", "Nodes where pods use the cache."),
    figure_column(
        "Node-Not-In-Use", f"{_COUNTS}.nodeNotInUseCnt", "Nodes that have the cache, unused."
    ),
    figure_column("Node-Error", f"{_COUNTS}.nodeErrorCnt", "Nodes with an error."),
    figure_column("Pod-Running", f"{_COUNTS}.podRunningCnt", "Pods on the present digest."),
    figure_column("Pod-Outdated", f"{_COUNTS}.podOutdatedCnt", "Pods on another digest."),
    figure_column("Pod-Deleting", f"{_COUNTS}.podDeletingCnt", "Pods on a deleted cache."),
)
_CACHE_COLUMNS: Final = (
    AGE,
    # The only condition: one is shown at a time.
    Column(name="Status", path=".status.conditions[0].reason"),
    figure_column("Nodes", f"{_COUNTS}.nodeCnt", "Nodes that have the cache, or are to get it."),
    *_USE_COLUMNS,
    # GKM spells it so, and scripts select columns by name.
    Column(name="Last=Updated", path=".status.lastUpdated", is_wide=True),
)
_NODE_COLUMNS: Final = (Column(name="Node", path=".status.nodeName"), *_USE_COLUMNS)


def _kind(
    model: "type[Model]",
    columns: tuple[Column, ...],
    *,
    is_namespaced: bool,
    short_names: tuple[str, ...] = (),
) -> CustomResource:
    return CustomResource(
        model=model,
        plural=f"{model.__name__.lower()}s",
        columns=columns,
        group=GKM_GROUP,
        is_namespaced=is_namespaced,
        short_names=short_names,
        categories=(),
    )


_KINDS: Final = (
    _kind(GKMCache, _CACHE_COLUMNS, is_namespaced=True),
    _kind(ClusterGKMCache, _CACHE_COLUMNS, is_namespaced=False),
    _kind(GKMCacheNode, _NODE_COLUMNS, is_namespaced=True, short_names=("gkmcn",)),
    _kind(ClusterGKMCacheNode, _NODE_COLUMNS, is_namespaced=False, short_names=("cgkmcn",)),
)


def build_cache_crds(annotations: "Mapping[str, str] | None" = None) -> list[dict[str, Any]]:
    return build_definitions(_KINDS, annotations)
