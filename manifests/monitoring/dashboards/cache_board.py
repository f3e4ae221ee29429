"""Kernel caches: their states, their images at admission, and their stores on the nodes."""

from typing import Final

from manifests.monitoring.dashboards.board import (
    Dashboard,
    DashboardPanel,
    PanelRow,
    PanelUnit,
    Query,
    Shape,
    number_panel,
)

_CACHES: Final = "max by (state) (gpu_kernel_cache_caches)"


def _by_outcome(counter: str) -> tuple[Query, ...]:
    return (Query(f"sum by (outcome) (rate({counter}[$__rate_interval]))", "{{outcome}}"),)


def _percentiles(histogram: str) -> tuple[Query, ...]:
    rate = f"sum by (le) (rate({histogram}_bucket[$__rate_interval]))"
    return tuple(
        Query(f"histogram_quantile({share}, {rate})", name)
        for share, name in ((0.5, "median"), (0.9, "p90"), (0.99, "p99"))
    )


_OVERVIEW: Final = PanelRow(
    "Overview",
    (
        number_panel("Caches", "GKMCaches and ClusterGKMCaches.", f"sum({_CACHES})"),
        number_panel(
            "Caches in error",
            "The condition of each says on which nodes, and why.",
            'sum(max by (state) (gpu_kernel_cache_caches{state="Error"})) or vector(0)',
            is_fault=True,
        ),
        number_panel(
            "Pods with a cache", "They have a cache mounted.", "sum(gpu_kernel_cache_pods)"
        ),
        number_panel(
            "Outdated in use",
            "Caches of which pods use a former image: they take the new one when they start again.",
            "count(max by (cache) (gpu_kernel_cache_outdated_since_seconds)) or vector(0)",
        ),
        number_panel(
            "Refused images",
            "Refusals of admission in the chosen time.",
            'sum(increase(gpu_kernel_cache_verifications_total{outcome="refused"}[$__range]))'
            " or vector(0)",
            is_fault=True,
        ),
        number_panel(
            "Fullest node",
            "Largest share of the quota that caches take on a node.",
            "max(gpu_kernel_cache_disk_bytes / (gpu_kernel_cache_disk_quota_bytes > 0))",
            unit=PanelUnit.SHARE,
        ),
    ),
)

_STATES: Final = PanelRow(
    "Caches",
    (
        DashboardPanel(
            title="Caches by state",
            description="Error before Outdated, Running, Extracted and Pending: the first that a node reports is the cache's.",
            queries=(Query(_CACHES, "{{state}}"),),
            is_stacked=True,
        ),
        DashboardPanel(
            title="Images at admission",
            description="verified, unsigned (accepted), warned (accepted by mode Warn), refused, failed (no answer).",
            queries=_by_outcome("gpu_kernel_cache_verifications_total"),
            unit=PanelUnit.PER_SECOND,
        ),
        DashboardPanel(
            title="Former images in use",
            description="Time since the cache names another image than some pods use.",
            queries=(
                Query(
                    "time() - min by (cache) (gpu_kernel_cache_outdated_since_seconds)",
                    "Since",
                    PanelUnit.SECONDS,
                ),
            ),
            shape=Shape.TABLE,
        ),
    ),
)

_STORES: Final = PanelRow(
    "Stores on nodes",
    (
        DashboardPanel(
            title="Disk in use",
            description="Of all nodes: bytes that extracted caches take.",
            queries=(Query("sum(gpu_kernel_cache_disk_bytes)", "in use"),),
            unit=PanelUnit.BYTES,
        ),
        DashboardPanel(
            title="Extracted digests",
            description="Of all nodes; one that several caches name counts once on a node.",
            queries=(Query("sum(gpu_kernel_cache_contents)", "digests"),),
        ),
        DashboardPanel(
            title="Pulled",
            description="Bytes of layers that registries sent.",
            queries=(
                Query("sum(rate(gpu_kernel_cache_pull_bytes_total[$__rate_interval]))", "bytes"),
            ),
            unit=PanelUnit.BYTES_PER_SECOND,
        ),
        DashboardPanel(
            title="Extractions",
            description="Attempts to pull and extract an image: extracted, failed, cancelled.",
            queries=_by_outcome("gpu_kernel_cache_extractions_total"),
            unit=PanelUnit.PER_SECOND,
        ),
        DashboardPanel(
            title="Time until a cache can be mounted",
            description="From the start of a pull that succeeded.",
            queries=_percentiles("gpu_kernel_cache_extraction_seconds"),
            unit=PanelUnit.SECONDS,
        ),
        DashboardPanel(
            title="Time of a pull",
            description="In which the registry sent the layer as a whole.",
            queries=_percentiles("gpu_kernel_cache_pull_seconds"),
            unit=PanelUnit.SECONDS,
        ),
    ),
)

_PODS: Final = PanelRow(
    "Pods",
    (
        DashboardPanel(
            title="Mounts",
            description="kubelet's requests: mounted, not_ready (kubelet asks again), refused, failed.",
            queries=_by_outcome("gpu_kernel_cache_mounts_total"),
            unit=PanelUnit.PER_SECOND,
            width=12,
        ),
        DashboardPanel(
            title="Warm and cold starts",
            description="Volumes that were mounted at kubelet's first request, and those that had to wait.",
            queries=(
                Query(
                    "sum by (warmth) (rate(gpu_kernel_cache_starts_total[$__rate_interval]))",
                    "{{warmth}}",
                ),
            ),
            unit=PanelUnit.PER_SECOND,
            width=12,
            is_stacked=True,
        ),
    ),
)

CACHE_BOARD: Final = Dashboard(
    "gpu-kernel-caches",
    "GPU / Kernel caches",
    "Kernel caches: states, images at admission, stores on nodes, and starts of pods.",
    (),
    (_OVERVIEW, _STATES, _STORES, _PODS),
)
