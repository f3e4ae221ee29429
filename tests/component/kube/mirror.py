"""An informer on pods, and a sink that shows its calls."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from api.foreign.core import Pod
from kube.client import KubeClient
from kube.informer import Informer, Selection
from kube.resources import PODS
from kube.sink import Sink
from telemetry.metrics import REGISTRY
from tests.support.canned_api import event
from tests.support.loop_clock import LoopClock


def a_pod(name: str, version: int, phase: str = "Pending") -> dict[str, object]:
    return {
        "metadata": {"name": name, "namespace": "a", "resourceVersion": str(version)},
        "status": {"phase": phase},
    }


def a_bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


class Mirror:
    """A sink that keeps its state: name -> phase, and every call by its name."""

    def __init__(self) -> None:
        self.pods: dict[str, str] = {}
        self.calls: list[str] = []

    def replace_all(self, items: Sequence[Pod]) -> None:
        self.calls.append("replace_all")
        self.pods = {pod.metadata.name: pod.status.phase for pod in items}

    def upsert(self, item: Pod) -> None:
        self.calls.append("upsert")
        self.pods[item.metadata.name] = item.status.phase

    def discard(self, item: Pod) -> None:
        self.calls.append("discard")
        self.pods.pop(item.metadata.name, None)


def an_informer(
    client: KubeClient, clock: LoopClock, sink: Sink[Pod], selection: Selection | None = None
) -> Informer[Pod]:
    return Informer(
        client,
        PODS,
        Pod,
        sink=sink,
        clock=clock,
        selection=selection or Selection(),
        rng=random.Random(1),
    )


@asynccontextmanager
async def running(informer: Informer[Pod]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(informer.run())
        yield
        task.cancel()


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"resource": "pods", **labels}) or 0.0
