"""Expressions over metrics of devices under DCGM's names, and over those of kube-state-metrics.

A device that several pods share has a series for each of them, and a MIG instance has its own: `of_devices`
counts each once. Prometheus renames `namespace` and `pod` of a page to `exported_namespace` and `exported_pod`
where the monitor does not have `honorLabels`: `of_pods` takes them where they are.
"""

from typing import Final

RESOURCES: Final = "gpu_deckhouse_io_.+"
"""The pools' resources as kube-state-metrics writes them: `_` for every other sign, so also for `-`."""
NODES: Final = 'Hostname=~"$node"'
OF_PODS: Final = f'{NODES}, pod!=""'
"""A device that no pod has shows an empty pod, or the one that is scraped."""
DEVICE_LEGEND: Final = "{{Hostname}} {{gpu}} {{GPU_I_ID}}"


def dcgm(field: str, selector: str = "") -> str:
    return f"DCGM_FI_DEV_{field}{{{selector}}}" if selector else f"DCGM_FI_DEV_{field}"


def of_devices(field: str, selector: str = NODES) -> str:
    """Return one value a device, or MIG instance, of the nodes that are chosen."""
    return f"max by (Hostname, gpu, UUID, GPU_I_ID) ({dcgm(field, selector)})"


def rate_of_devices(field: str) -> str:
    series = dcgm(field, NODES)
    return f"max by (Hostname, gpu, UUID, GPU_I_ID) (rate({series}[$__rate_interval]))"


def of_pods(series: str) -> str:
    """Return one value a pod and device, or MIG instance, that the pod has."""
    namespace = f'label_replace({series}, "namespace", "$1", "exported_namespace", "(.+)")'
    pod = f'label_replace({namespace}, "pod", "$1", "exported_pod", "(.+)")'
    return f"max by (namespace, pod, Hostname, UUID, GPU_I_ID) ({pod})"


def requested_units(selector: str = "") -> str:
    """Return the units that each pod requests which has not ended, by namespace, pod and resource."""
    matchers = ", ".join(filter(None, (f'resource=~"{RESOURCES}"', selector)))
    requests = (
        f"sum by (namespace, pod, resource) (kube_pod_container_resource_requests{{{matchers}}})"
    )
    alive = 'max by (namespace, pod) (kube_pod_status_phase{phase=~"Pending|Running"})'
    return f"({requests} * on (namespace, pod) group_left () {alive} > 0)"


def with_resource(values: str, requests: str) -> str:
    """Return values of pods with the resource that each requests.

    Of a pod of several pools, which admission refuses, one is taken: Prometheus fails on two.
    """
    one_each = f"topk by (namespace, pod) (1, {requests} > bool 0)"
    return f"{values} * on (namespace, pod) group_left (resource) {one_each}"
