"""Pods that wait at an API server in memory, and the controller that explains why."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from api.annotations import encode_devices
from api.names import (
    DEVICES_ANNOTATION,
    RESOURCE_PREFIX,
    UNITS_CONDITION,
    UnitId,
)
from kernelcache.cache_index import CacheIndex
from kube.resources import PODS
from reconciler.controller_spec import ControllerContext
from reconciler.informer_stores import InformerStores
from reconciler.pod import wait_explanation
from reconciler.pod.explanation_queue import AFTER_S
from reconciler.pod.shared_explanations import SharedExplanations
from telemetry.metrics import REGISTRY
from tests.component.reconciler.cluster import Cluster
from tests.support.controllers import a_context
from tests.support.loop_clock import ServerClock

Json = dict[str, Any]
SOON_S = AFTER_S + 3 * wait_explanation.PERIOD_S
RESOURCE = f"{RESOURCE_PREFIX}whole"
STATUS = "/status$"
NEVER_S = 1e6
ExplainedBy = Callable[[SharedExplanations], wait_explanation.PodExplainer]


def context_of(cluster: Cluster) -> ControllerContext:
    return a_context(
        stores=InformerStores(cluster.allocation_state, cluster.catalog, CacheIndex()),
        client=cluster.client,
        recorder=cluster.recorder,
        clock=ServerClock(),
    )


def explanation_of(cluster: Cluster, explained_by: ExplainedBy) -> wait_explanation.WaitExplanation:
    context = context_of(cluster)

    def explainer() -> wait_explanation.PodExplainer:
        return explained_by(SharedExplanations(context.reader, context.index, context.now))

    return wait_explanation.WaitExplanation(context, explainer)


@asynccontextmanager
async def a_leader(
    cluster: Cluster, *, sees_every_s: float = 2.0, explained_by: ExplainedBy = lambda one: one
) -> AsyncIterator[wait_explanation.WaitExplanation]:
    """Explain, and see the world now and then."""
    explanation = explanation_of(cluster, explained_by)

    async def watch() -> NoReturn:
        while True:
            await asyncio.sleep(sees_every_s)
            await cluster.observe()
            explanation.note_change(RESOURCE)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(explanation.run()), group.create_task(watch())]
        yield explanation
        for task in tasks:
            task.cancel()


async def add_pod(
    cluster: Cluster, name: str = "p", *, pool: str = "whole", units: int = 3, **spec: Any
) -> None:
    """Add a pod that wants more units than the node has, unless it wants fewer."""
    limits = {f"{RESOURCE_PREFIX}{pool}": str(units)}
    container = {"name": "c0", "image": "cuda", "resources": {"limits": limits}}
    metadata = {"name": name, "namespace": "default"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    await cluster.client.create(PODS, {**body, "spec": {"containers": [container], **spec}})
    await cluster.observe()
    cluster.api.requests.clear()


async def condition(cluster: Cluster, name: str = "p") -> Json | None:
    pod = await cluster.client.get(PODS, Json, name, namespace="default")
    found = [
        item for item in pod["status"].get("conditions", ()) if item["type"] == UNITS_CONDITION
    ]
    assert len(found) <= 1
    return found[0] if found else None


async def said(cluster: Cluster, name: str = "p") -> tuple[str, str] | None:
    found = await condition(cluster, name)
    return None if found is None else (found["status"], found["reason"])


def patches(cluster: Cluster) -> list[str]:
    return [path.split("/")[-2] for method, path in cluster.writes() if method == "PATCH"]


def failures() -> float:
    labels = {"task": "pod.explanation"}
    return REGISTRY.get_sample_value("gpu_task_failures_total", labels) or 0


async def bind(cluster: Cluster, name: str, *units: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "target": target}
    devices = encode_devices({"c0": tuple(map(UnitId, units))})
    metadata = {
        "name": name,
        "namespace": "default",
        "annotations": {DEVICES_ANNOTATION: devices},
    }
    await cluster.client.create(
        PODS,
        {**binding, "metadata": metadata},
        namespace="default",
        name=name,
        subresource="binding",
    )


async def add_bound_pod(cluster: Cluster, name: str, unit: str) -> None:
    await add_pod(cluster, name, units=1)
    await bind(cluster, name, unit)
    await cluster.observe()
    cluster.api.requests.clear()
