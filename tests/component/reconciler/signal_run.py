"""Signal pods at an API server in memory, as one process writes them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from autoscaling.scaling_model import SignalFacts
from kube.client import KubeClient
from kube.resources import PODS
from manifests.constants import DEFAULT_NAMESPACE
from reconciler.scaling.backends.signal_pods import SignalPods
from reconciler.sinks import scale_signal
from simulator.apiserver.server import InMemoryApiServer
from tests.support.builders import at
from tests.support.client_of_api import a_client, an_api_with_client
from tests.support.loop_clock import LoopClock

Json = dict[str, Any]


@dataclass
class SignalRun:
    api: InMemoryApiServer
    admin: KubeClient
    """Sees the world without faults in its way."""
    signals: SignalPods

    async def pods(self) -> list[Json]:
        found = await self.admin.list_(PODS, Json, namespace=DEFAULT_NAMESPACE)
        return found.items

    async def facts(self) -> list[SignalFacts]:
        found = await self.admin.list_as(
            PODS,
            scale_signal.SignalPod,
            scale_signal.observe_signal,
            namespace=DEFAULT_NAMESPACE,
            label_selector=scale_signal.LABEL_SELECTOR,
        )
        return found.items


@asynccontextmanager
async def a_signal_run() -> AsyncIterator[SignalRun]:
    clock = LoopClock()
    async with (
        an_api_with_client(namespace=DEFAULT_NAMESPACE) as (api, admin),
        # Of its own: its first request has to connect, which suspends most.
        a_client(api, clock) as client,
    ):
        signals = SignalPods(
            client,
            namespace=DEFAULT_NAMESPACE,
            image="registry.example.com/gpu-control-plane:1.0",
            now=lambda: at(clock.monotonic()),
        )
        yield SignalRun(api, admin, signals)
