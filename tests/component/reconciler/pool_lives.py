"""A pool that is changed and deleted, with pods that run on its devices."""

from typing import Any

from api.annotations import encode_devices
from api.names import DEVICES_ANNOTATION, RESOURCE_PREFIX, PoolName, UnitId
from kube.resources import GPU_POOLS, POD_DISRUPTION_BUDGETS, PODS
from tests.component.reconciler.cluster import Cluster

Json = dict[str, Any]

WHOLE = PoolName("whole")
SLICES: Json = {"allocation": {"mode": "TimeSlice", "slicesPerDevice": 4}}
EXCLUSIVE: Json = {"allocation": {"mode": "Exclusive", "slicesPerDevice": None}}
STATUS = ("PATCH", "/apis/gpu.deckhouse.io/v1alpha1/gpupools/whole/status")
POOL = ("PATCH", "/apis/gpu.deckhouse.io/v1alpha1/gpupools/whole")


async def run_pass(cluster: Cluster, *, times: int = 1) -> float | None:
    """Reconcile, and let the watch catch up."""
    again: float | None = None
    for _ in range(times):
        again = await cluster.pool_life.reconcile(WHOLE)
        await cluster.observe()
    return again


async def until_stable(cluster: Cluster) -> None:
    """A pool whose finalizer and allocation are written."""
    await run_pass(cluster, times=2)
    cluster.writes()
    cluster.events()


async def change(cluster: Cluster, **spec: Any) -> None:
    await cluster.client.merge_patch(GPU_POOLS, {"spec": spec}, name="whole")
    await cluster.observe()


async def pool(cluster: Cluster) -> Json:
    return await cluster.client.get(GPU_POOLS, dict[str, Any], "whole")


async def allocation(cluster: Cluster) -> Json | None:
    found: Json | None = (await pool(cluster)).get("status", {}).get("allocation")
    return found


async def maintenance(cluster: Cluster) -> Json:
    conditions = (await pool(cluster))["status"]["conditions"]
    (found,) = [condition for condition in conditions if condition["type"] == "Maintenance"]
    return dict(found)


async def finalizers(cluster: Cluster) -> list[str]:
    found: list[str] = (await pool(cluster))["metadata"].get("finalizers", [])
    return found


async def run_pod(cluster: Cluster, name: str, *units: str, uid: str = "") -> None:
    """A pod that runs on these units, as it was bound."""
    limits = {f"{RESOURCE_PREFIX}whole": str(len(units))}
    devices = encode_devices({"c0": tuple(map(UnitId, units))})
    await cluster.client.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": {"app": name},
                "annotations": {DEVICES_ANNOTATION: devices},
            },
            "spec": {
                "nodeName": "n1",
                "containers": [{"name": "c0", "image": "cuda", "resources": {"limits": limits}}],
            },
        },
    )
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await cluster.client.merge_patch(
        PODS, {"status": ready}, name=name, namespace="default", subresource="status"
    )
    await cluster.observe()


async def end_pod(cluster: Cluster, name: str) -> None:
    await cluster.client.delete(PODS, name, namespace="default", grace_period_s=0)
    await cluster.observe()


async def running(cluster: Cluster) -> list[str]:
    """Return the pods that nobody has deleted."""
    pods = await cluster.client.list_(PODS, dict[str, Any])
    return sorted(
        item["metadata"]["name"]
        for item in pods.items
        if "deletionTimestamp" not in item["metadata"]
    )


async def protect(cluster: Cluster, name: str, *, allowed: int = 0) -> None:
    """A budget for a pod, as its controller has counted it."""
    meta = {"name": name, "namespace": "default"}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": meta,
        "spec": spec,
    }
    await cluster.client.create(POD_DISRUPTION_BUDGETS, body)
    await allow(cluster, name, allowed)


async def allow(cluster: Cluster, name: str, allowed: int) -> None:
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
    }
    await cluster.client.merge_patch(
        POD_DISRUPTION_BUDGETS,
        {"status": status},
        name=name,
        namespace="default",
        subresource="status",
    )
