"""Kernel caches: their states, their images at admission, and their stores on the nodes."""

from typing import TYPE_CHECKING, Final

from api.kinds.gkmcache import CacheConditionType
from dashboards.expressions import (
    count_by,
    increase,
    max_by,
    min_by,
    or_zero,
    quantile,
    rate,
    select,
    sum_by,
)
from dashboards.layout import Board, PanelRow
from dashboards.panels import PanelUnit, Query, graph, number, rows, with_runbook
from telemetry import agent_metrics, kernel_cache_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Counter, Histogram

_CACHES: Final = max_by(select(kernel_cache_metrics.CACHES), "state")
_ERROR: Final = CacheConditionType.ERROR.value
_DISK: Final = select(agent_metrics.CACHE_DISK_BYTES)
_QUOTA: Final = select(agent_metrics.CACHE_DISK_QUOTA_BYTES)
_OUTDATED: Final = select(kernel_cache_metrics.OUTDATED_SINCE)


def _by_outcome(counter: "Counter") -> Query:
    return Query(sum_by(rate(select(counter)), "outcome"), "{{outcome}}")


def _percentiles(histogram: "Histogram") -> "Iterator[Query]":
    for share, name in ((0.5, "median"), (0.9, "p90"), (0.99, "p99")):
        yield Query(quantile(share, histogram), name)


_OVERVIEW: Final = PanelRow(
    "Overview",
    (
        number("Caches", "GKMCaches and ClusterGKMCaches.", sum_by(_CACHES)),
        number(
            "Caches in error",
            "The condition of each says on which nodes, and why.",
            or_zero(sum_by(max_by(select(kernel_cache_metrics.CACHES, state=_ERROR), "state"))),
            is_fault=True,
        ),
        number(
            "Pods with a cache",
            "They have a cache mounted.",
            sum_by(select(agent_metrics.CACHE_PODS)),
        ),
        with_runbook(
            number(
                "Outdated in use",
                "Caches of which pods use a former image: they take the new one when they start again.",
                or_zero(count_by(max_by(_OUTDATED, "cache"))),
            ),
            "GPUKernelCacheOutdated",
        ),
        with_runbook(
            number(
                "Refused images",
                "Refusals of admission in the chosen time.",
                or_zero(
                    sum_by(increase(select(kernel_cache_metrics.VERIFICATIONS, outcome="refused")))
                ),
                is_fault=True,
            ),
            "GPUKernelCacheRefused",
        ),
        with_runbook(
            number(
                "Fullest node",
                "Largest share of the quota that caches take on a node.",
                f"max({_DISK} / ({_QUOTA} > 0))",
                unit=PanelUnit.SHARE,
            ),
            "GPUKernelCacheDiskFull",
        ),
    ),
)

_STATES: Final = PanelRow(
    "Caches",
    (
        graph(
            "Caches by state",
            "Error before Outdated, Running, Extracted and Pending: the first that a node reports is the cache's.",
            Query(_CACHES, "{{state}}"),
            is_stacked=True,
        ),
        graph(
            "Images at admission",
            "verified, unsigned (accepted), warned (accepted by mode Warn), refused, failed (no answer).",
            _by_outcome(kernel_cache_metrics.VERIFICATIONS),
            unit=PanelUnit.PER_SECOND,
        ),
        rows(
            "Former images in use",
            "Time since the cache names another image than some pods use.",
            Query(f"time() - {min_by(_OUTDATED, 'cache')}", "Since", PanelUnit.SECONDS),
        ),
    ),
)

_STORES: Final = PanelRow(
    "Stores on nodes",
    (
        graph(
            "Disk in use",
            "Of all nodes: bytes that extracted caches take.",
            Query(sum_by(_DISK), "in use"),
            unit=PanelUnit.BYTES,
        ),
        graph(
            "Extracted digests",
            "Of all nodes; one that several caches name counts once on a node.",
            Query(sum_by(select(agent_metrics.CACHE_CONTENTS)), "digests"),
        ),
        graph(
            "Pulled",
            "Bytes of layers that registries sent.",
            Query(sum_by(rate(select(agent_metrics.CACHE_PULLED_BYTES))), "bytes"),
            unit=PanelUnit.BYTES_PER_SECOND,
        ),
        with_runbook(
            graph(
                "Extractions",
                "Attempts to pull and extract an image: extracted, failed, cancelled.",
                _by_outcome(agent_metrics.CACHE_EXTRACTIONS),
                unit=PanelUnit.PER_SECOND,
            ),
            "GPUKernelCacheExtractionFails",
        ),
        graph(
            "Time until a cache can be mounted",
            "From the start of a pull that succeeded.",
            *_percentiles(agent_metrics.CACHE_EXTRACTION_DURATION),
            unit=PanelUnit.SECONDS,
        ),
        graph(
            "Time of a pull",
            "In which the registry sent the layer as a whole.",
            *_percentiles(agent_metrics.CACHE_PULL_DURATION),
            unit=PanelUnit.SECONDS,
        ),
    ),
)

_PODS: Final = PanelRow(
    "Pods",
    (
        graph(
            "Mounts",
            "kubelet's requests: mounted, not_ready (kubelet asks again), refused, failed.",
            _by_outcome(agent_metrics.CACHE_MOUNTS),
            unit=PanelUnit.PER_SECOND,
        ).span(12),
        graph(
            "Warm and cold starts",
            "Volumes that were mounted at kubelet's first request, and those that had to wait.",
            Query(sum_by(rate(select(agent_metrics.CACHE_STARTS)), "warmth"), "{{warmth}}"),
            unit=PanelUnit.PER_SECOND,
            is_stacked=True,
        ).span(12),
    ),
)

CACHE_BOARD: Final = Board(
    uid="gpu-kernel-caches",
    title="GPU / Kernel caches",
    description="Kernel caches: states, images at admission, stores on nodes, and starts of pods.",
    rows=(_OVERVIEW, _STATES, _STORES, _PODS),
)
