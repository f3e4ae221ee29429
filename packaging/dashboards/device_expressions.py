"""Expressions over metrics of devices under DCGM's names, over who holds devices, and over those of kube-state-metrics.

A device that several pods share has a series for each of them, and a MIG instance has its own: `of_devices`
counts each once. Prometheus renames `namespace` and `pod` of a page to `exported_namespace` and `exported_pod`
where the monitor does not have `honorLabels`: `of_pods` takes them where they are.
"""

from typing import Final

from dashboards.expressions import (
    Vector,
    combined,
    matching,
    max_by,
    other_than,
    rate,
    renamed,
    select,
    sum_by,
)
from dashboards.foreign_series import POD_PHASE, ForeignSeries
from telemetry.metrics import DEVICE_INFO

RESOURCES: Final = matching("gpu_deckhouse_io_.+")
"""The pools' resources as kube-state-metrics writes them: `_` for every other sign, so also for `-`."""
NEEDS_DEVICES: Final = "Needs dcgm-exporter, or metrics of devices from the node agents."
ON_NODES: Final = matching("$node")
OF_POOLS: Final = matching("$pool")
OF_PODS: Final = other_than("")
"""A device that no pod has shows an empty pod, or the one that is scraped."""
DEVICE_LEGEND: Final = "{{Hostname}} {{gpu}} {{GPU_I_ID}}"
_DEVICE: Final = ("Hostname", "gpu", "UUID", "GPU_I_ID")


def of_devices(field: ForeignSeries) -> Vector:
    """Return one value a device, or MIG instance, of the nodes that are chosen."""
    return max_by(select(field, Hostname=ON_NODES), *_DEVICE)


def rate_of_devices(field: ForeignSeries) -> Vector:
    return max_by(rate(select(field, Hostname=ON_NODES)), *_DEVICE)


def with_pool(values: Vector) -> Vector:
    """Return values by `UUID` with the pool of each device, of the pools that are chosen.

    Of a UUID that two devices claim one is taken: Prometheus fails on two.
    """
    by_uuid = max_by(renamed(values, "UUID", "uuid"), "uuid")
    pools = max_by(select(DEVICE_INFO, pool=OF_POOLS), "uuid", "pool")
    text = f"({by_uuid} * on (uuid) group_left (pool) topk by (uuid) (1, {pools}))"
    return combined(text, "uuid", "pool")


def of_pods(series: Vector) -> Vector:
    """Return one value a pod and device, or MIG instance, that the pod has."""
    return max_by(own_names(series), "namespace", "pod", "Hostname", "UUID", "GPU_I_ID")


def own_names(series: Vector) -> Vector:
    """Return a vector with the namespace and pod that its page names."""
    named = combined(str(series), *series.labels, "exported_namespace", "exported_pod")
    return renamed(renamed(named, "exported_namespace", "namespace"), "exported_pod", "pod")


def requested_units(requests: Vector) -> Vector:
    """Return the units that each pod requests which has not ended, by namespace, pod and resource."""
    requests = sum_by(requests, "namespace", "pod", "resource")
    alive = max_by(select(POD_PHASE, phase=matching("Pending|Running")), "namespace", "pod")
    return combined(
        f"({requests} * on (namespace, pod) group_left () {alive} > 0)",
        "namespace",
        "pod",
        "resource",
    )


def with_resource(values: Vector, requests: Vector) -> Vector:
    """Return values of pods with the resource that each requests.

    Of a pod of several pools, which admission refuses, one is taken: Prometheus fails on two.
    """
    one_each = f"topk by (namespace, pod) (1, {requests} > bool 0)"
    text = f"({values} * on (namespace, pod) group_left (resource) {one_each})"
    return combined(text, *values.labels, "resource")
