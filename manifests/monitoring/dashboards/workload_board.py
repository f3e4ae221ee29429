"""Pods that request units: what they request, what they use, and who waits."""

from typing import Final

from manifests.monitoring.dashboards import device_series as series
from manifests.monitoring.dashboards.board import (
    Dashboard,
    DashboardPanel,
    PanelRow,
    PanelUnit,
    Query,
    Shape,
    Variable,
    number_panel,
)

_CHOSEN: Final = 'namespace=~"$namespace", resource=~"$resource"'
_REQUESTED: Final = series.requested_units(_CHOSEN)
_ALL_POOLS: Final = "Of all pools and namespaces."
_IDLE: Final = "below 5 % in the last 30 minutes"


def _used(values: str) -> str:
    """Return values of pods and devices with the resource, of the pods that are chosen."""
    return f"({series.with_resource(values, _REQUESTED)})"


_UTILISATION: Final = _used(series.of_pods(series.dcgm("GPU_UTIL")))
_MEMORY: Final = _used(series.of_pods(series.dcgm("FB_USED")))
_BUSIEST: Final = _used(series.of_pods(f"max_over_time({series.dcgm('GPU_UTIL')}[30m])"))
_IDLE_PODS: Final = f"(max by (namespace, pod, resource) ({_BUSIEST}) < 5)"
_PENDING: Final = (
    f"{_REQUESTED} * on (namespace, pod) group_left ()"
    ' (max by (namespace, pod) (kube_pod_status_phase{phase="Pending"}) == 1)'
)

_OVERVIEW: Final = PanelRow(
    "Overview",
    (
        number_panel(
            "Pods",
            "Pods that request units and have not ended.",
            f"count({_REQUESTED}) or vector(0)",
        ),
        number_panel("Units requested", "By these pods.", f"sum({_REQUESTED}) or vector(0)"),
        number_panel(
            "Pending pods",
            "Pods that request units and do not run yet.",
            f"count({_PENDING}) or vector(0)",
        ),
        number_panel(
            "Longest wait",
            f"Age of the oldest pending pod that holds no unit and has no gate of others. {_ALL_POOLS}",
            "max(gpu_pods_longest_wait_seconds)",
            unit=PanelUnit.SECONDS,
        ),
        number_panel(
            "Idle pods",
            f"Pods with devices whose utilisation stayed {_IDLE}.",
            f"count({_IDLE_PODS}) or vector(0)",
        ),
        number_panel(
            "Units of idle pods",
            f"Units that pods request whose devices stayed {_IDLE}.",
            f"sum({_REQUESTED} and on (namespace, pod) {_IDLE_PODS}) or vector(0)",
        ),
    ),
)

_NAMESPACES: Final = PanelRow(
    "Namespaces",
    (
        DashboardPanel(
            title="Units requested by namespace",
            description="By pods that have not ended.",
            queries=(Query(f"sum by (namespace) ({_REQUESTED})", "{{namespace}}"),),
            is_stacked=True,
        ),
        DashboardPanel(
            title="Utilisation by namespace",
            description="Mean of the devices that the pods have.",
            queries=(Query(f"avg by (namespace) ({_UTILISATION})", "{{namespace}}"),),
            unit=PanelUnit.PERCENT,
        ),
        DashboardPanel(
            title="Memory in use by namespace",
            description="A device that several pods share counts for each of them.",
            queries=(Query(f"sum by (namespace) ({_MEMORY})", "{{namespace}}"),),
            unit=PanelUnit.MEBIBYTES,
            is_stacked=True,
        ),
        DashboardPanel(
            title="Namespaces and pools",
            description="What pods request and what their devices do.",
            queries=(
                Query(f"count by (namespace, resource) ({_REQUESTED})", "Pods"),
                Query(f"sum by (namespace, resource) ({_REQUESTED})", "Units"),
                Query(
                    f"avg by (namespace, resource) ({_UTILISATION})",
                    "Utilisation",
                    PanelUnit.PERCENT,
                ),
                Query(f"sum by (namespace, resource) ({_MEMORY})", "Memory", PanelUnit.MEBIBYTES),
            ),
            shape=Shape.TABLE,
            width=24,
        ),
    ),
)

_PODS: Final = PanelRow(
    "Pods",
    (
        DashboardPanel(
            title="Pods and their devices",
            description="Use of the devices that each pod has, beside the units that it requests.",
            queries=(
                Query(f"sum by (namespace, pod, resource) ({_REQUESTED})", "Units"),
                Query(
                    f"avg by (namespace, pod, resource) ({_UTILISATION})",
                    "Utilisation",
                    PanelUnit.PERCENT,
                ),
                Query(
                    f"sum by (namespace, pod, resource) ({_MEMORY})", "Memory", PanelUnit.MEBIBYTES
                ),
                Query(
                    f"sum by (namespace, pod, resource) ({_used(series.of_pods(series.dcgm('POWER_USAGE')))})",
                    "Power",
                    PanelUnit.WATTS,
                ),
                Query(
                    f"max by (namespace, pod, resource) ({_used(series.of_pods(series.dcgm('GPU_TEMP')))})",
                    "Temperature",
                    PanelUnit.CELSIUS,
                ),
            ),
            shape=Shape.TABLE,
            width=24,
        ),
        DashboardPanel(
            title="Utilisation by pod",
            description="Mean of the pod's devices; the twenty highest.",
            queries=(
                Query(
                    f"topk(20, avg by (namespace, pod) ({_UTILISATION}))", "{{namespace}}/{{pod}}"
                ),
            ),
            unit=PanelUnit.PERCENT,
            width=12,
        ),
        DashboardPanel(
            title="Memory in use by pod",
            description="Of the pod's devices; the twenty highest.",
            queries=(
                Query(f"topk(20, sum by (namespace, pod) ({_MEMORY}))", "{{namespace}}/{{pod}}"),
            ),
            unit=PanelUnit.MEBIBYTES,
            width=12,
        ),
        DashboardPanel(
            title="Which pods are idle",
            description=f"Highest utilisation of pods whose devices stayed {_IDLE}.",
            queries=(Query(_IDLE_PODS, "Highest", PanelUnit.PERCENT),),
            shape=Shape.TABLE,
            width=12,
        ),
        DashboardPanel(
            title="Which pods are pending",
            description="Units that pods request which do not run yet; events of each pod say why.",
            queries=(Query(_PENDING, "Units"),),
            shape=Shape.TABLE,
            width=12,
        ),
    ),
)


def _wait(quantile: float) -> str:
    rate = "sum by (pool, le) (rate(gpupool_wait_seconds_bucket[$__rate_interval]))"
    return f"histogram_quantile({quantile}, {rate})"


_WAITING: Final = PanelRow(
    "Waiting",
    (
        DashboardPanel(
            title="Time from creation to binding",
            description=f"Median and 95th percentile of pods that were bound. {_ALL_POOLS}",
            queries=(
                Query(_wait(0.5), "{{pool}} p50"),
                Query(_wait(0.95), "{{pool}} p95"),
            ),
            unit=PanelUnit.SECONDS,
        ),
        DashboardPanel(
            title="Longest wait by pool",
            description="Age of the oldest pending pod that holds no unit and has no gate of others.",
            queries=(Query("max by (pool) (gpu_pods_longest_wait_seconds)", "{{pool}}"),),
            unit=PanelUnit.SECONDS,
        ),
        DashboardPanel(
            title="Refusals by reason",
            description=f"Pods, pools and devices that admission refused. {_ALL_POOLS}",
            queries=(
                Query("sum by (reason) (rate(gpu_refusals_total[$__rate_interval]))", "{{reason}}"),
            ),
            unit=PanelUnit.PER_SECOND,
        ),
    ),
)


def _node_time(quantile: float) -> str:
    rate = "sum by (pool, le) (rate(gpu_nodeclaim_provision_duration_seconds_bucket[$__rate_interval]))"
    return f"histogram_quantile({quantile}, {rate})"


_AUTOSCALING: Final = PanelRow(
    "Autoscaling",
    (
        DashboardPanel(
            title="Requests for nodes",
            description=f"That are not over, by phase. {_ALL_POOLS}",
            queries=(
                Query("sum by (pool, phase) (gpu_scale_requests_active)", "{{pool}} {{phase}}"),
            ),
            is_stacked=True,
        ),
        DashboardPanel(
            title="Pods that no node comes for",
            description=f"By the reason that none is asked for. {_ALL_POOLS}",
            queries=(
                Query("sum by (pool, reason) (gpu_scale_waiting_pods)", "{{pool}} {{reason}}"),
            ),
            is_stacked=True,
        ),
        DashboardPanel(
            title="Time until a node has devices",
            description=f"Median and 95th percentile from the request on. {_ALL_POOLS}",
            queries=(
                Query(_node_time(0.5), "{{pool}} p50"),
                Query(_node_time(0.95), "{{pool}} p95"),
            ),
            unit=PanelUnit.SECONDS,
        ),
        DashboardPanel(
            title="Failed requests by reason",
            description=f"Requests for which no node came. {_ALL_POOLS}",
            queries=(
                Query(
                    "sum by (pool, reason) (increase(gpu_scale_failures_total[$__rate_interval]))",
                    "{{pool}} {{reason}}",
                ),
            ),
        ),
        DashboardPanel(
            title="Price of an hour",
            description="Of the pool's devices by state, in the currency of the shapes' prices.",
            queries=(
                Query("sum by (pool, state) (gpu_scale_node_cost_per_hour)", "{{pool}} {{state}}"),
            ),
            is_stacked=True,
        ),
        DashboardPanel(
            title="Rest of the budget",
            description="By period; none for pools without a budget.",
            queries=(
                Query("min by (pool, period) (gpu_scale_budget_remaining)", "{{pool}} {{period}}"),
            ),
        ),
    ),
)

_REQUESTS: Final = f'kube_pod_container_resource_requests{{resource=~"{series.RESOURCES}"}}'

WORKLOAD_BOARD: Final = Dashboard(
    "gpu-workloads",
    "GPU / Workloads",
    "Pods that request units of pools: requests, use of the devices, idle holders, waiting times and nodes that come for them. Needs"
    " kube-state-metrics; for the use of devices dcgm-exporter, or metrics of devices from the node agents.",
    (
        Variable("namespace", "Namespace", _REQUESTS, "namespace"),
        Variable("resource", "Resource", _REQUESTS, "resource"),
    ),
    (_OVERVIEW, _NAMESPACES, _PODS, _WAITING, _AUTOSCALING),
)
