"""A node with a kubelet that answers Get, the agent's watch of its pods, and an API server with its inventory."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

from agent.allocations.reporter import AllocationReporter
from agent.errors import KubeletUnavailableError
from agent.kubelet.node_pods import ContainerRequest, NodePod, NodePods
from agent.problems.registry import ProblemRegistry
from api.kinds.gpunodeinventory import ContainerDevices, GPUNodeInventory
from api.kubelet.podresources import ContainerUnits, PodUnits
from api.names import API_VERSION, NodeName, PodUid
from kube.client import KubeClient
from kube.errors import KubeError
from kube.resources import GPU_NODE_INVENTORIES
from manifests.install.crds import build_crds
from pool.model import ContainerRole
from simulator.apiserver.server import InMemoryApiServer
from tests.support.client_of_api import an_api_with_client
from tests.support.loop_clock import LoopClock

WHOLE = "gpu.deckhouse.io/whole"
NODE = NodeName("n1")


def a_node_pod(
    name: str = "p", uid: str = "", *, is_ended: bool = False, **containers: int
) -> NodePod:
    """A pod whose containers ask for so many units; `init_…` and `side_…` tell a container's kind."""
    kinds = {"init": ContainerRole.INIT, "side": ContainerRole.SIDECAR}
    return NodePod(
        uid=PodUid(uid or f"uid-{name}"),
        namespace="default",
        name=name,
        is_ended=is_ended,
        containers=tuple(
            ContainerRequest(item, kinds.get(item[:4], ContainerRole.MAIN), {WHOLE: count})
            for item, count in (containers or {"main": 1}).items()
        ),
        assigned=None,
    )


class KubeletDouble:
    """Answers by name, as PodResources does."""

    def __init__(self) -> None:
        self.answers: dict[str, PodUnits] = {}
        self.asked: list[tuple[float, str]] = []
        self.is_away = False
        self.in_between: Any = None
        """Called while an answer is on its way."""

    async def get(self, namespace: str, name: str) -> PodUnits | None:
        assert namespace == "default"
        self.asked.append((asyncio.get_running_loop().time(), name))
        await asyncio.sleep(0.001)
        if self.is_away:
            raise KubeletUnavailableError("no answer")
        answer = self.answers.get(name)
        if self.in_between is not None:
            self.in_between()
        return answer

    def give(self, pod: str, resource: str = WHOLE, **units: str) -> None:
        containers = (ContainerUnits(c, {resource: tuple(u.split())}) for c, u in units.items())
        self.answers[pod] = PodUnits("default", pod, tuple(containers))

    def counts(self) -> Counter[str]:
        return Counter(name for _, name in self.asked)


class ReportingNode:
    def __init__(self, api: InMemoryApiServer, client: KubeClient) -> None:
        self.api = api
        self.client = client
        self.pods = NodePods()
        self.kubelet = KubeletDouble()
        self.problems = ProblemRegistry()
        self.synced = asyncio.Event()
        self.synced.set()
        self.kubelet_identity = 1
        self.terminated: Callable[[], Collection[PodUid]] = tuple

    def a_reporter(self) -> AllocationReporter:
        return AllocationReporter(
            self.pods,
            self.kubelet,
            self.client,
            synced=self.synced,
            clock=LoopClock(),
            node=NODE,
            problems=self.problems,
            kubelet_identity=lambda: self.kubelet_identity,
            terminated=self.terminated,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[AllocationReporter]:
        reporter = self.a_reporter()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reporter.run())
            yield reporter
            task.cancel()

    async def add_inventory(self) -> None:
        body = {
            "apiVersion": API_VERSION,
            "kind": "GPUNodeInventory",
            "metadata": {"name": NODE},
        }
        await self.client.create(GPU_NODE_INVENTORIES, body)

    async def entries(self) -> list[ContainerDevices]:
        current = await self.client.get(GPU_NODE_INVENTORIES, GPUNodeInventory, NODE)
        return current.status.allocations or []

    async def said(self) -> dict[str, str]:
        """What is reported: container of a pod's uid -> its units."""
        try:
            return {
                f"{entry.uid}/{entry.container}": " ".join(entry.units)
                for entry in await self.entries()
            }
        except KubeError as error:
            return {"error": type(error).__name__}

    def writes(self) -> int:
        """Writes of reports."""
        return sum("agent-allocations" in write.query for write in self.api.requests.writes())


@asynccontextmanager
async def a_reporting_node(*, has_inventory: bool = True) -> AsyncIterator[ReportingNode]:
    async with an_api_with_client(definitions=build_crds()) as (api, client):
        node = ReportingNode(api, client)
        if has_inventory:
            await node.add_inventory()
        yield node
