"""Checks of pools, and of the nodes, devices and pods that belong to them."""

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, Final

from api.annotations import decode_devices
from api.names import DEVICES_ANNOTATION
from api.status_conditions import find_condition, parse_time
from api.text import listed
from autoscaling.node_daemons import STARTUP_TAINT, kept_away
from kubectl_gpu.check.checked_cluster import has_amd_device
from kubectl_gpu.check.findings import fault, good, of_object, warning
from kubectl_gpu.check.installation import unread
from pool.demand import units_by_resource
from telemetry.conditions import DeviceCondition
from telemetry.object_faults import device_fault, node_fault, pool_fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.foreign.core import Node, Pod, Taint
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from kubectl_gpu.check.checked_cluster import CheckedCluster
    from kubectl_gpu.check.findings import CheckFinding

POOLS: Final = "pools"
NODES: Final = "nodes"
DEVICES: Final = "devices"
PODS: Final = "pods"
_WAITS: Final = dt.timedelta(seconds=30)
"""Pods that wait for less are on their way."""


def check_pools(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    """Yield a row for each pool."""
    if cluster.pools is None:
        yield unread(cluster, POOLS, "gpupools")
        return
    if not cluster.pools:
        yield warning((POOLS, POOLS), "there is none", cure="gpu-control-plane render examples")
    for pool in sorted(cluster.pools, key=lambda item: item.name):
        yield _pool(pool)
        text, cure = kept_away(pool.name, cluster.node_daemons or (), _taints(cluster, pool))
        if text:
            yield warning((POOLS, f"nodes of GPUPool {pool.name}"), text, cure=cure)


def _taints(cluster: "CheckedCluster", pool: "GPUPool") -> "Iterator[Taint]":
    """Yield the taints with which a node of the pool waits for its devices."""
    yield from pool.taints
    scaling = pool.spec.autoscaling
    if scaling is None:
        return
    yield STARTUP_TAINT
    names = {shape.node_pool or pool.name for shape in scaling.shapes or ()}
    for node_pool in cluster.node_pools or ():
        if node_pool.metadata.name in names:
            yield from node_pool.spec.template.spec.taints or ()


def _pool(pool: "GPUPool") -> "CheckFinding":
    subject = f"GPUPool {pool.name}"
    found = pool_fault(pool)
    if found is not None:
        return of_object((POOLS, subject), found)
    capacity = pool.status.capacity
    return good((POOLS, subject), f"{capacity.available} of {capacity.total} units are free")


def check_nodes(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    """Yield rows for nodes at fault, and one for the others."""
    if cluster.nodes is None:
        yield unread(cluster, NODES, "nodes")
    else:
        yield from check_vendors(cluster.nodes)
    if cluster.inventories is None:
        yield unread(cluster, NODES, "gpunodeinventories")
        return
    findings = [
        of_object((NODES, f"node {inventory.metadata.name}"), found)
        for inventory in sorted(cluster.inventories, key=lambda item: item.metadata.name)
        if (found := node_fault(inventory)) is not None
    ]
    yield from findings
    healthy = len(cluster.inventories) - len(findings)
    if healthy:
        yield good((NODES, f"{healthy} with devices"), "software and agent are ready")
    if not cluster.inventories:
        yield warning(
            (NODES, "nodes with devices"),
            "there is none",
            cure="docs/operations.md#which-nodes-have-the-node-agent",
        )


def check_vendors(nodes: "list[Node]") -> "Iterator[CheckFinding]":
    """Yield a row where nodes have devices that no pool can have."""
    found = sorted(node.metadata.name for node in nodes if has_amd_device(node))
    if found:
        yield warning(
            (NODES, "AMD's devices"),
            f"nodes {listed(found, 3)} have some, and AMD is not supported: no GPUDevice, pool or kernel cache of this"
            " control plane is for them",
            cure="leave them to AMD's GPU Operator, which serves amd.com/gpu",
        )


def check_devices(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    """Yield rows for devices at fault, for those in no pool, and one for the others."""
    if cluster.devices is None:
        yield unread(cluster, DEVICES, "gpudevices")
        return
    faults = 0
    unassigned: Counter[str] = Counter()
    for device in sorted(cluster.devices, key=lambda item: item.name):
        found = device_fault(device)
        if found is not None:
            faults += 1
            yield of_object((DEVICES, f"GPUDevice {device.name}"), found)
        elif device.status.pool_ref is None and device.status.managed and not device.is_ignored:
            unassigned[_reason_of(device)] += 1
    for reason, count in sorted(unassigned.items()):
        yield warning((DEVICES, f"{count} in no pool"), reason, cure="kubectl get gdev -o wide")
    healthy = len(cluster.devices) - faults - unassigned.total()
    if healthy:
        yield good((DEVICES, f"{healthy} devices"), "none of them is faulted")


def _reason_of(device: "GPUDevice") -> str:
    assigned = find_condition(device.status.conditions, DeviceCondition.ASSIGNED)
    return assigned.reason if assigned is not None else "no controller has looked at them yet"


def check_pods(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    """Yield rows for pods that wait, and for those whose units are unknown."""
    if cluster.pods is None:
        yield unread(cluster, PODS, "pods")
        return
    count = 0
    reported = {
        entry.uid
        for inventory in cluster.inventories or ()
        for entry in inventory.status.allocations or ()
    }
    for pod in sorted(cluster.pods, key=lambda item: (item.metadata.namespace, item.metadata.name)):
        if pod.has_ended:
            continue
        count += 1
        found = _bound(pod, reported) if pod.spec.node_name else _pending(pod, cluster.now)
        if found is not None:
            yield found
    if count:
        yield good((PODS, f"{count} of pools"), "every other one has its units")


def _bound(pod: "Pod", reported: set[str]) -> "CheckFinding | None":
    """Return the row of a pod that neither its annotation nor kubelet's report gives units."""
    meta = pod.metadata
    if decode_devices(meta.annotation(DEVICES_ANNOTATION)) is not None or meta.uid in reported:
        return None
    return fault(
        (PODS, f"pod {meta.namespace}/{meta.name}"),
        f"its units on node {pod.spec.node_name} are unknown, so that node takes no further pod that"
        f" asks for {listed(units_by_resource(pod.spec))}",
        cure=f"kubectl -n {meta.namespace} delete pod {meta.name}",
    )


def _pending(pod: "Pod", now: dt.datetime) -> "CheckFinding | None":
    meta = pod.metadata
    created = parse_time(meta.creation_timestamp or "")
    if created is None or abs(now - created) <= _WAITS:
        return None
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    text = f"waits for {listed(units_by_resource(pod.spec))} since {meta.creation_timestamp}"
    return warning(
        (PODS, f"pod {meta.namespace}/{meta.name}"),
        f"{text}; gates: {listed(gates)}" if gates else text,
        cure=f"kubectl gpu why -n {meta.namespace} {meta.name}",
    )
