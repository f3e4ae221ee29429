"""A fake kubelet with device plugin for many nodes: registers nodes, runs and ends pods.

Allocatable is set at registration. A pod runs from its binding until it is deleted or finished: its volumes are mounted,
its init containers succeed one after the other, then its containers start; its volumes are unmounted when they have
ended. A container that ends with an error is started again, a volume that is not ready is tried again.
"""

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import structlog

from api.foreign.core import Pod
from api.well_known_labels import HOSTNAME_LABEL, OS_LABEL
from kube.errors import KubeError, NotFound
from kube.informer import Informer
from kube.resources import EVENTS, NODES, PODS
from simulator.node.container_runtime import ContainerFailedError, InstantRuntime
from simulator.node.pod_volumes import NoDrivers, VolumeNotReadyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from api.clock import Clock
    from kube.client import KubeClient
    from simulator.node.container_runtime import ContainerRuntime
    from simulator.node.pod_volumes import PodVolumes

START_S: Final = 0.05
RETRY_S: Final = 0.5
"""Seconds until a container that has failed is started again, for which a real kubelet begins with 10 s; and a volume
mounted again, for which it begins with 0.5 s."""
FAILED_MOUNT: Final = "FailedMount"

Json = dict[str, Any]

_log = structlog.get_logger()


async def register_node(
    client: "KubeClient",
    name: str,
    allocatable: "Mapping[str, int]",
    *,
    labels: "Mapping[str, str] | None" = None,
    system: "Mapping[str, str] | None" = None,
) -> None:
    """Create a Ready node with these extended resources; `system` is its `nodeInfo`, where it matters."""
    resources = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    resources |= {resource: str(count) for resource, count in allocatable.items()}
    await client.create(
        NODES,
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    HOSTNAME_LABEL: name,
                    OS_LABEL: "linux",
                    **(labels or {}),
                },
            },
        },
    )
    status = {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        **({"nodeInfo": dict(system)} if system else {}),
    }
    await client.merge_patch(NODES, {"status": status}, name=name, subresource="status")
    # What the node lifecycle controller does once a node is Ready: admission tainted it as not ready.
    await client.merge_patch(NODES, {"spec": {"taints": None}}, name=name)


@final
class FakeKubelet:
    """Runs the pods of all nodes."""

    def __init__(
        self,
        client: "KubeClient",
        clock: "Clock",
        runtime: "ContainerRuntime | None" = None,
        *,
        volumes: "PodVolumes | None" = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._runtime = runtime or InstantRuntime()
        self._volumes = volumes or NoDrivers()
        self._work: asyncio.Queue[Pod] = asyncio.Queue()
        # every change of a bound pod; unbounded, since a cluster in memory is small
        self._starts: dict[str, asyncio.Task[None] | None] = {}
        # uid -> the task that starts its containers, or did
        self._passed: defaultdict[str, dict[str, str]] = defaultdict(dict)
        # uid -> init containers that have succeeded, and when

    async def run(self) -> NoReturn:
        informer = Informer(self._client, PODS, Pod, sink=self, clock=self._clock)
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run(), name="kubelet/pods")
            while True:
                pod = await self._work.get()
                group.create_task(self._sync(pod), name=f"kubelet/{pod.metadata.name}")
        raise AssertionError("a task group of endless tasks ended")

    async def finish(self, pod: Pod) -> None:
        """Let the containers of a pod exit successfully, once they have started."""
        start = self._starts.setdefault(pod.metadata.uid, None)
        if start is not None:
            await asyncio.wait([start])
        await self._write(pod, {"phase": "Succeeded", "conditions": _ready("False")})
        await self._unmount(pod)

    def restart(self, pod: Pod) -> None:
        """Let the containers of a running pod end, and start them again; its init containers do not run again."""
        self._stop(pod)
        self._work.put_nowait(pod)

    def replace_all(self, items: "Sequence[Pod]") -> None:
        for item in items:
            self.upsert(item)

    def upsert(self, item: Pod) -> None:
        """Run a bound pod, and end a deleted one."""
        if item.spec.node_name:
            self._work.put_nowait(item)

    def discard(self, item: Pod) -> None:
        self._stop(item)
        self._passed.pop(item.metadata.uid, None)

    def _stop(self, pod: Pod) -> None:
        task = self._starts.pop(pod.metadata.uid, None)
        if task is not None:
            task.cancel()

    async def _sync(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        try:
            if pod.metadata.deletion_timestamp is not None:
                self._stop(pod)
                await self._end(pod)
            elif uid not in self._starts and not pod.is_terminal:
                self._starts[uid] = asyncio.current_task()
                await self._start(pod)
        except NotFound:
            return
        except KubeError as error:
            _log.warning("pod not synced", pod=pod.metadata.name, error=str(error))

    async def _end(self, pod: Pod) -> None:
        await self._unmount(pod)
        meta = pod.metadata
        await self._client.delete(
            PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace_period_s=0
        )

    async def _start(self, pod: Pod) -> None:
        """Return once all containers run."""
        uid = pod.metadata.uid
        await self._mount(pod)
        inits = [container.name for container in pod.spec.init_containers or ()]
        for name in inits:
            if name not in self._passed[uid]:
                await self._start_container(pod, name)
                self._passed[uid][name] = self._now()
                await self._write(pod, {"initContainerStatuses": self._of_inits(pod)})
        names = [container.name for container in pod.spec.containers or ()]
        for name in names:
            await self._start_container(pod, name)
        status = {"phase": "Running", "conditions": _ready("True")}
        statuses = _statuses(names, up={name: {} for name in names})
        await self._write(pod, status | {"containerStatuses": statuses})

    async def _mount(self, pod: Pod) -> None:
        """Return once the pod's volumes are mounted; what keeps them from it is shown by Events meanwhile."""
        reported = ""
        while True:
            try:
                await self._volumes.mount(pod)
            except VolumeNotReadyError as error:
                if reported != str(error):
                    reported = str(error)
                    await self._warn(pod, reported)
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _unmount(self, pod: Pod) -> None:
        while True:
            try:
                await self._volumes.unmount(pod)
            except VolumeNotReadyError as error:
                _log.warning("volume not unmounted", pod=pod.metadata.name, error=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _warn(self, pod: Pod, note: str) -> None:
        """Record kubelet's Event about a volume."""
        meta = pod.metadata
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"generateName": f"{meta.name}-", "namespace": meta.namespace},
            "type": "Warning",
            "reason": FAILED_MOUNT,
            "action": "Mounting",
            "note": note,
            "regarding": {
                "apiVersion": PODS.api_version,
                "kind": PODS.kind,
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
            },
            "reportingController": "kubelet",
            "reportingInstance": pod.spec.node_name,
            "eventTime": self._clock.utc_now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        await self._client.create(EVENTS, body, namespace=meta.namespace)

    async def _start_container(self, pod: Pod, name: str) -> None:
        """Return once the container is up; its failures are shown meanwhile."""
        reported = ""
        while True:
            await asyncio.sleep(START_S)
            try:
                await self._runtime.start(pod, name)
            except ContainerFailedError as error:
                if reported != str(error):
                    reported = str(error)
                    await self._write(pod, self._failed(pod, name, reported))
                await asyncio.sleep(RETRY_S)
            else:
                return

    def _failed(self, pod: Pod, name: str, message: str) -> Json:
        ended = {name: message}
        names = [container.name for container in pod.spec.containers or ()]
        if name in names:
            return {
                "phase": "Running",
                "conditions": _ready("False"),
                "containerStatuses": _statuses(names, up={}, ended=ended),
            }
        return {
            "conditions": _ready("False"),
            "initContainerStatuses": self._of_inits(pod, ended=ended),
        }

    def _of_inits(self, pod: Pod, *, ended: "Mapping[str, str] | None" = None) -> list[Json]:
        names = [container.name for container in pod.spec.init_containers or ()]
        passed = {
            name: {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": time}}
            for name, time in self._passed[pod.metadata.uid].items()
        }
        return _statuses(names, up=passed, ended=ended)

    def _now(self) -> str:
        return self._clock.utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _write(self, pod: Pod, status: Json) -> None:
        meta = pod.metadata
        await self._client.merge_patch(
            PODS,
            {"status": status},
            name=meta.name,
            namespace=meta.namespace,
            subresource="status",
        )


def _ready(status: str) -> list[Json]:
    return [{"type": "Ready", "status": status}]


def _statuses(
    names: "Iterable[str]", *, up: "Mapping[str, Json]", ended: "Mapping[str, str] | None" = None
) -> list[Json]:
    """Return the statuses of containers, of which some are up, each with its state if it has one, or have ended with a message."""
    messages = ended or {}
    return [
        {"name": name, "ready": name in up}
        | ({"state": up[name]} if up.get(name) else {})
        | (
            {"lastState": {"terminated": {"exitCode": 1, "message": messages[name]}}}
            if name in messages
            else {}
        )
        for name in names
    ]
