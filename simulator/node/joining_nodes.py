"""What runs on nodes that an autoscaler adds: a kubelet that becomes ready, and an agent that reports the devices.

It follows Nodes that Karpenter has registered. An agent's report comes after a delay, or never; where the pods of
DaemonSets come as in a real cluster, it waits for those that it needs. A Node that goes takes its report with it.
"""

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import structlog

from api.foreign.core import Node, Pod
from api.foreign.karpenter import NODE_POOL_LABEL, REGISTERED_LABEL
from api.well_known_labels import INSTANCE_TYPE_LABEL
from kube.errors import Conflict, KubeError, NotFound
from kube.informer import Informer, Selection
from kube.resources import NODE_FEATURES, NODES, PODS
from simulator.karpenter.instance_types import INSTANCE_TYPES
from simulator.node import nfd
from simulator.node.node_agent import FakeDevice, FakeNodeAgent

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from api.clock import Clock
    from kube.client import KubeClient

HEARTBEAT_S: Final = 30.0
RETRY_S: Final = 0.5
WATCH_S: Final = 1.0
NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBehaviour:
    """What the nodes of a NodePool do."""

    ready_after_s: float = 0.2
    """Seconds from registration to readiness."""
    devices_after_s: float | None = 0.5
    """Seconds from readiness to the agent's report; None: it never comes."""
    product: str = "NVIDIA H200"
    compute_capability: str = "9.0"
    mig_profile: str = ""
    mig_instances: int = 0
    faulted: int = 0
    """Devices that have a fault from the start."""
    labels: "Mapping[str, str]" = field(default_factory=dict)
    """Labels that Node Feature Discovery gives a node once it is ready."""
    node_info: "Mapping[str, str]" = field(default_factory=dict)
    """What kubelet says about the system of a node."""
    pods_before_report: tuple[str, ...] = ()
    """How the names of pods begin that run on a node while its agent reports: the agent's own, and the driver's."""
    beside_report: "Callable[[str, Sequence[FakeDevice]], Coroutine[Any, Any, None]] | None" = None
    """What runs on a node, by its name and devices, as long as its agent reports."""


@final
class JoiningNodes:
    """kubelet's and the agents' part of every Node of Karpenter, or of those that a selector names."""

    def __init__(
        self,
        client: "KubeClient",
        clock: "Clock",
        behaviour: "Mapping[str, NodeBehaviour]",
        *,
        selector: str = f"{NODE_POOL_LABEL},{REGISTERED_LABEL}",
    ) -> None:
        """Take what differs from the default, by NodePool; the mapping is read again for each Node.

        The behaviour of Nodes without a NodePool is that of the empty name.
        """
        self._client = client
        self._clock = clock
        self._behaviour = behaviour
        self._selector = selector
        self._lives: dict[str, asyncio.Task[None]] = {}
        # uid of a Node -> what runs there
        self._group = asyncio.TaskGroup()

    async def run(self) -> NoReturn:
        informer = Informer(
            self._client,
            NODES,
            Node,
            sink=self,
            clock=self._clock,
            selection=Selection(label_selector=self._selector),
        )
        async with self._group as group:
            group.create_task(informer.run(), name="joining nodes/informer")
        raise AssertionError("a task group of endless tasks ended")

    def replace_all(self, items: "Sequence[Node]") -> None:
        for uid in self._lives.keys() - {item.metadata.uid for item in items}:
            self._lives.pop(uid).cancel()
        for item in items:
            self.upsert(item)

    def upsert(self, item: Node) -> None:
        uid = item.metadata.uid
        if uid not in self._lives and item.metadata.deletion_timestamp is None:
            name = f"joining nodes/{item.metadata.name}"
            self._lives[uid] = self._group.create_task(self._live(item), name=name)

    def discard(self, item: Node) -> None:
        life = self._lives.pop(item.metadata.uid, None)
        if life is not None:
            life.cancel()
            name = f"joining nodes/end of {item.metadata.name}"
            self._group.create_task(self._forget(item), name=name)

    async def _live(self, node: Node) -> None:
        behaviour = self._behaviour.get(node.metadata.label(NODE_POOL_LABEL) or "", NodeBehaviour())
        await asyncio.sleep(behaviour.ready_after_s)
        is_there = await self._make_ready(node, behaviour)
        if not is_there or behaviour.devices_after_s is None:
            return
        name, devices = node.metadata.name, devices_of(node, behaviour)
        while True:
            while not await self._runs_pods(name, behaviour, unread=False):  # noqa: ASYNC110  # seen by reading
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(behaviour.devices_after_s)
            async with asyncio.TaskGroup() as group:
                work: list[asyncio.Task[None]] = [
                    group.create_task(self._report(name, devices), name=f"agent/{name}")
                ]
                if behaviour.beside_report is not None:
                    beside = behaviour.beside_report(name, devices)
                    work.append(group.create_task(beside, name=f"beside agent/{name}"))
                while await self._runs_pods(name, behaviour, unread=True):  # noqa: ASYNC110  # likewise
                    await asyncio.sleep(WATCH_S)
                for task in work:
                    task.cancel()

    async def _runs_pods(self, node: str, behaviour: NodeBehaviour, *, unread: bool) -> bool:
        """Say whether the pods run without which the agent does not report; `unread` where they cannot be read."""
        beginnings = behaviour.pods_before_report
        if not beginnings:
            return True
        try:
            selector = f"spec.nodeName={node}"
            listed = await self._client.list_(PODS, Pod, field_selector=selector)
        except KubeError:
            return unread
        names = [pod.metadata.name for pod in listed.items if pod.status.phase == "Running"]
        return all(any(name.startswith(item) for name in names) for item in beginnings)

    async def _report(self, node: str, devices: "Sequence[FakeDevice]") -> NoReturn:
        agent = FakeNodeAgent(self._client, self._clock, node=node, devices=devices)
        while True:
            try:
                await agent.report()
            except KubeError as error:
                _log.warning("agent could not report", error=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                await asyncio.sleep(HEARTBEAT_S)

    async def _make_ready(self, node: Node, behaviour: NodeBehaviour) -> bool:
        """Make the Node Ready; return whether it is still there."""
        while True:
            try:
                await self._set_ready(node.metadata.name, behaviour)
            except NotFound:
                return False
            except (Conflict, KubeError):
                await asyncio.sleep(RETRY_S)
            else:
                return True

    async def _set_ready(self, name: str, behaviour: NodeBehaviour) -> None:
        conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        status = {"status": {"conditions": conditions, "nodeInfo": dict(behaviour.node_info)}}
        await self._client.merge_patch(NODES, status, name=name, subresource="status")
        if behaviour.labels:
            labels = {"metadata": {"labels": dict(behaviour.labels)}}
            await self._client.merge_patch(NODES, labels, name=name)
        # What the node lifecycle controller does then.
        node = await self._client.get(NODES, Node, name)
        current = node.spec.taints or ()
        kept = [
            {"key": item.key, "value": item.value, "effect": item.effect}
            for item in current
            if item.key != NOT_READY_TAINT
        ]
        if len(kept) < len(current):
            version = {"resourceVersion": node.metadata.resource_version}
            body = {"metadata": version, "spec": {"taints": kept}}
            await self._client.merge_patch(NODES, body, name=name)

    async def _forget(self, node: Node) -> None:
        """Delete the agent's report, as the garbage collector of NFD does."""
        name = f"gpu-control-plane-agent-{node.metadata.name}"
        while True:
            try:
                await self._client.delete(NODE_FEATURES, name, namespace=nfd.NAMESPACE)
            except NotFound:
                return
            except KubeError:
                await asyncio.sleep(RETRY_S)


def devices_of(node: Node, behaviour: NodeBehaviour) -> list[FakeDevice]:
    """Return the GPUs that a node's instance type has."""
    type_ = node.metadata.label(INSTANCE_TYPE_LABEL)
    gpus = next((item.gpus for item in INSTANCE_TYPES if item.name == type_), 0)
    return [
        FakeDevice(
            # As long as NVML's, however long the node's name is.
            uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{number}.{node.metadata.name}')}",
            address=f"0000:{0x17 + number:02x}:00.0",
            product=behaviour.product,
            pci_device="2335",
            memory_mib=143771,
            compute_capability=behaviour.compute_capability,
            mig_profile=behaviour.mig_profile,
            mig_instances=behaviour.mig_instances,
            fault="Xid 79" if number < behaviour.faulted else "",
        )
        for number in range(gpus)
    ]


_log = structlog.get_logger()
