"""A fake kubelet with device plugin for many nodes: registers nodes, runs and ends pods.

Allocatable is set at registration. A pod runs from its binding until it is deleted or finished.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog

from api.foreign.core import Pod
from kube.errors import KubeError, NotFound
from kube.informer import Informer
from kube.resources import NODES, PODS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.clock import Clock
    from kube.client import KubeClient

START_S: Final = 0.05

_log = structlog.get_logger()


async def register_node(
    client: "KubeClient",
    name: str,
    allocatable: "Mapping[str, int]",
    *,
    labels: "Mapping[str, str] | None" = None,
) -> None:
    """Create a Ready node with these extended resources."""
    resources = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    resources |= {resource: str(count) for resource, count in allocatable.items()}
    await client.create(
        NODES,
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            },
        },
    )
    status = {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    await client.merge_patch(NODES, {"status": status}, name=name, subresource="status")
    # What the node lifecycle controller does once a node is Ready: admission tainted it as not ready.
    await client.merge_patch(NODES, {"spec": {"taints": None}}, name=name)


@final
class FakeKubelet:
    """Runs the pods of all nodes."""

    def __init__(self, client: "KubeClient", clock: "Clock") -> None:
        self._client = client
        self._clock = clock
        self._work: asyncio.Queue[Pod] = asyncio.Queue()
        # every change of a bound pod; unbounded, since a cluster in memory is small
        self._running: set[str] = set()

    async def run(self) -> NoReturn:
        informer = Informer(self._client, PODS, Pod, sink=self, clock=self._clock)
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run(), name="kubelet/pods")
            while True:
                pod = await self._work.get()
                group.create_task(self._sync(pod), name=f"kubelet/{pod.metadata.name}")
        raise AssertionError("a task group of endless tasks ended")

    async def finish(self, pod: Pod) -> None:
        """Let the containers of a running pod exit successfully."""
        await self._set_phase(pod, "Succeeded")

    def replace_all(self, items: "Sequence[Pod]") -> None:
        for item in items:
            self.upsert(item)

    def upsert(self, item: Pod) -> None:
        """Run a bound pod, and end a deleted one."""
        if item.spec.node_name:
            self._work.put_nowait(item)

    def discard(self, item: Pod) -> None:
        self._running.discard(item.metadata.uid)

    async def _sync(self, pod: Pod) -> None:
        try:
            if pod.metadata.deletion_timestamp is not None:
                await self._end(pod)
            elif pod.metadata.uid not in self._running and not pod.is_terminal:
                self._running.add(pod.metadata.uid)
                await self._start(pod)
        except NotFound:
            return
        except KubeError as error:
            _log.warning("pod not synced", pod=pod.metadata.name, error=str(error))

    async def _end(self, pod: Pod) -> None:
        meta = pod.metadata
        await self._client.delete(
            PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace_period_s=0
        )

    async def _start(self, pod: Pod) -> None:
        await asyncio.sleep(START_S)
        await self._set_phase(pod, "Running")

    async def _set_phase(self, pod: Pod, phase: str) -> None:
        meta = pod.metadata
        ready = "True" if phase == "Running" else "False"
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
        await self._client.merge_patch(
            PODS,
            {"status": status},
            name=meta.name,
            namespace=meta.namespace,
            subresource="status",
        )
