"""Pods that request units: what they request, what they use, and the nodes that come for them."""

from typing import Final

from dashboards.device_expressions import (
    RESOURCES,
    of_pods,
    requested_units,
    with_resource,
)
from dashboards.expressions import (
    RATE_INTERVAL,
    Vector,
    avg_by,
    combined,
    count_by,
    highest,
    increase,
    matching,
    max_by,
    or_zero,
    quantile,
    select,
    sum_by,
)
from dashboards.foreign_series import (
    CONTAINER_REQUESTS,
    FB_USED,
    GPU_TEMP,
    GPU_UTIL,
    POD_PHASE,
    POWER_USAGE,
)
from dashboards.layout import Board, Choice, PanelRow
from dashboards.panels import PanelUnit, Query, graph, number, rows, with_runbook
from telemetry import metrics

_POD: Final = ("namespace", "pod", "resource")
_REQUESTED: Final = requested_units(
    select(CONTAINER_REQUESTS, namespace=matching("$namespace"), resource=matching("$resource"))
)
_OF_POOLS: Final = select(CONTAINER_REQUESTS, resource=RESOURCES)
_ALL_POOLS: Final = "Of all pools and namespaces."
_IDLE: Final = "below 5 % in the last 30 minutes"


def _used(values: Vector) -> Vector:
    """Return values of pods and devices with the resource, of the pods that are chosen."""
    return with_resource(of_pods(values), _REQUESTED)


_UTILISATION: Final = _used(select(GPU_UTIL))
_MEMORY: Final = _used(select(FB_USED))
_BUSIEST: Final = max_by(_used(highest(select(GPU_UTIL), "30m")), *_POD)
_IDLE_PODS: Final = combined(f"({_BUSIEST} < 5)", *_POD)
_PENDING: Final = combined(
    f"({_REQUESTED} * on (namespace, pod) group_left ()"
    f" ({max_by(select(POD_PHASE, phase='Pending'), 'namespace', 'pod')} == 1))",
    *_POD,
)

_OVERVIEW: Final = PanelRow(
    "Overview",
    (
        number(
            "Pods",
            "Pods that request units and have not ended.",
            or_zero(count_by(_REQUESTED)),
        ),
        number("Units requested", "By these pods.", or_zero(sum_by(_REQUESTED))),
        number(
            "Pending pods",
            "Pods that request units and do not run yet.",
            or_zero(count_by(_PENDING)),
        ),
        number(
            "Longest wait",
            f"Age of the oldest pending pod that holds no unit and has no gate of others. {_ALL_POOLS}",
            max_by(select(metrics.PODS_LONGEST_WAIT)),
            unit=PanelUnit.SECONDS,
        ),
        number(
            "Idle pods",
            f"Pods with devices whose utilisation stayed {_IDLE}.",
            or_zero(count_by(_IDLE_PODS)),
        ),
        number(
            "Units of idle pods",
            f"Units that pods request whose devices stayed {_IDLE}.",
            or_zero(f"sum({_REQUESTED} and on (namespace, pod) {_IDLE_PODS})"),
        ),
    ),
)

_NAMESPACES: Final = PanelRow(
    "Namespaces",
    (
        graph(
            "Units requested by namespace",
            "By pods that have not ended.",
            Query(sum_by(_REQUESTED, "namespace"), "{{namespace}}"),
            is_stacked=True,
        ),
        graph(
            "Utilisation by namespace",
            "Mean of the devices that the pods have.",
            Query(avg_by(_UTILISATION, "namespace"), "{{namespace}}"),
            unit=PanelUnit.PERCENT,
        ),
        graph(
            "Memory in use by namespace",
            "A device that several pods share counts for each of them.",
            Query(sum_by(_MEMORY, "namespace"), "{{namespace}}"),
            unit=PanelUnit.MEBIBYTES,
            is_stacked=True,
        ),
        rows(
            "Namespaces and pools",
            "What pods request and what their devices do.",
            Query(count_by(_REQUESTED, "namespace", "resource"), "Pods"),
            Query(sum_by(_REQUESTED, "namespace", "resource"), "Units"),
            Query(avg_by(_UTILISATION, "namespace", "resource"), "Utilisation", PanelUnit.PERCENT),
            Query(sum_by(_MEMORY, "namespace", "resource"), "Memory", PanelUnit.MEBIBYTES),
        ).span(24),
    ),
)

_PODS: Final = PanelRow(
    "Pods",
    (
        rows(
            "Pods and their devices",
            "Use of the devices that each pod has, beside the units that it requests.",
            Query(sum_by(_REQUESTED, *_POD), "Units"),
            Query(avg_by(_UTILISATION, *_POD), "Utilisation", PanelUnit.PERCENT),
            Query(sum_by(_MEMORY, *_POD), "Memory", PanelUnit.MEBIBYTES),
            Query(sum_by(_used(select(POWER_USAGE)), *_POD), "Power", PanelUnit.WATTS),
            Query(max_by(_used(select(GPU_TEMP)), *_POD), "Temperature", PanelUnit.CELSIUS),
        ).span(24),
        graph(
            "Utilisation by pod",
            "Mean of the pod's devices; the twenty highest.",
            Query(f"topk(20, {avg_by(_UTILISATION, 'namespace', 'pod')})", "{{namespace}}/{{pod}}"),
            unit=PanelUnit.PERCENT,
        ).span(12),
        graph(
            "Memory in use by pod",
            "Of the pod's devices; the twenty highest.",
            Query(f"topk(20, {sum_by(_MEMORY, 'namespace', 'pod')})", "{{namespace}}/{{pod}}"),
            unit=PanelUnit.MEBIBYTES,
        ).span(12),
        rows(
            "Which pods are idle",
            f"Highest utilisation of pods whose devices stayed {_IDLE}.",
            Query(_IDLE_PODS, "Highest", PanelUnit.PERCENT),
        ).span(12),
        rows(
            "Which pods are pending",
            "Units that pods request which do not run yet; events of each pod say why.",
            Query(_PENDING, "Units"),
        ).span(12),
    ),
)

_AUTOSCALING: Final = PanelRow(
    "Nodes on their way",
    (
        graph(
            "Requests for nodes",
            f"That are not over, by phase. {_ALL_POOLS}",
            Query(sum_by(select(metrics.SCALE_REQUESTS), "pool", "phase"), "{{pool}} {{phase}}"),
            is_stacked=True,
        ).span(12),
        with_runbook(
            graph(
                "Pods that no node comes for",
                f"By the reason that none is asked for. {_ALL_POOLS}",
                Query(
                    sum_by(select(metrics.SCALE_WAITING_PODS), "pool", "reason"),
                    "{{pool}} {{reason}}",
                ),
                is_stacked=True,
            ).span(12),
            "GPUScalingBlocked",
        ),
        with_runbook(
            graph(
                "Time until a node has devices",
                f"Median and 95th percentile from the request on. {_ALL_POOLS}",
                Query(quantile(0.5, metrics.NODE_CLAIM_PROVISION, "pool"), "{{pool}} p50"),
                Query(quantile(0.95, metrics.NODE_CLAIM_PROVISION, "pool"), "{{pool}} p95"),
                unit=PanelUnit.SECONDS,
            ).span(12),
            "GPUScaleUpSlow",
        ),
        with_runbook(
            graph(
                "Failed requests by reason",
                f"Requests for which no node came. {_ALL_POOLS}",
                Query(
                    sum_by(
                        increase(select(metrics.SCALE_FAILURES), RATE_INTERVAL), "pool", "reason"
                    ),
                    "{{pool}} {{reason}}",
                ),
            ).span(12),
            "GPUNodeRequestsFail",
        ),
    ),
)

WORKLOAD_BOARD: Final = Board(
    uid="gpu-workloads",
    title="GPU / Workloads",
    description="Pods that request units of pools: requests, use of the devices, idle holders, and nodes that come for"
    " them. Needs kube-state-metrics; for the use of devices dcgm-exporter, or metrics of devices from the node agents.",
    choices=(
        Choice("namespace", "Namespace", _OF_POOLS),
        Choice("resource", "Resource", _OF_POOLS, RESOURCES.value),
    ),
    rows=(_OVERVIEW, _NAMESPACES, _PODS, _AUTOSCALING),
)
