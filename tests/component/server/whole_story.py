"""Everything that our server asks of an API server, in half a minute of virtual time.

From an empty cluster to pods that are bound, held, expired, woken, nominated and bound around us, with
the lead lost and taken again; scheduler and kubelet are doubles that come again when they are refused.
"""

import asyncio
import base64
import functools
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from api.annotations import decode_devices
from api.core import Pod
from api.names import DEVICES_ANNOTATION, POOL_NODE_LABEL_PREFIX, WOKEN_ANNOTATION
from certs.tls import client_context
from kube.errors import AlreadyExists, KubeError, NotFound
from kube.resources import (
    EVENTS,
    GPU_CONTROL_PLANE_TERMS,
    GPU_DEVICES,
    GPU_POOLS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NODES,
    PODS,
    SECRETS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
)
from manifests import constants
from simulator.apiserver.faults import Breakage, Fault
from simulator.apiserver.requestlog import Request
from simulator.extender import ExtenderClient
from simulator.kubelet import KubeletDouble, register_node
from simulator.scheduler import SchedulerDouble
from tests.support.loop_clock import ServerClock
from tests.support.metric_samples import shown
from tests.support.reviews import a_device_object, a_pod_object, a_pool_object
from tests.support.running_server import (
    SERVER_USER,
    Cluster,
    RunningServer,
    a_cluster,
    a_server,
)

WITHIN_S: Final = 120.0
"""Of virtual time; no backoff is longer."""
TTL_S: Final = 5
CROWD: Final = 40
"""So many waiting pods that the tail of the queue is nominated."""
SERVED: Final = ("s0", "s1")
"""Pods that kube-scheduler has bound."""

Json = dict[str, Any]


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it holds; a KubeError is no."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            with suppress(KubeError):
                if await holds():
                    return
            await asyncio.sleep(0.1)


@dataclass
class Story:
    """What operators, users and strangers do; they come again while they are refused."""

    cluster: Cluster
    server: RunningServer

    def __post_init__(self) -> None:
        self._client = self.cluster.client

    async def create(self, resource: Resource, body: Json) -> None:
        async def is_created() -> bool:
            with suppress(AlreadyExists):
                await self._client.create(resource, body)
            return True

        await eventually(is_created)

    async def add_node(self) -> None:
        """Three whole cards, and one of 64 slices that no kubelet offers: its pods never fit."""
        await register_node(self._client, "n1", {"gpu.deckhouse.io/whole": 3})
        for name, pool in (("w0", "whole"), ("w1", "whole"), ("w2", "whole"), ("sliced", "slow")):
            status = {"uuid": f"GPU-{name}", "inventoryID": name, "poolRef": {"name": pool}}
            card = a_device_object(None, metadata={"name": name}, status=status)
            await self._client.create(GPU_DEVICES, card)
            await self._client.merge_patch(
                GPU_DEVICES, {"status": card["status"]}, name=name, subresource="status"
            )

    async def add_pool(self, name: str, **allocation: Any) -> None:
        spec = {"allocation": allocation, "reservation": {"ttl": f"{TTL_S}s"}}
        await self.create(GPU_POOLS, {**a_pool_object(name, **spec), "metadata": {"name": name}})

    async def add_pod(self, name: str, pool: str, scheduler: str = "default-scheduler") -> None:
        body = a_pod_object(1, pool, name, spec={"schedulerName": scheduler})
        body["metadata"] = {"name": name, "namespace": "default"}
        await self.create(PODS, body)

    async def remove_pod(self, name: str) -> None:
        with suppress(NotFound):
            await self._client.delete(PODS, name, namespace="default", grace_period_s=0)

    async def is_bound(self, *names: str) -> bool:
        return all([(await self.cluster.stored_pod(name)).spec.node_name for name in names])

    async def is_woken(self, name: str) -> bool:
        metadata = (await self.cluster.stored_pod(name)).metadata
        return metadata.annotation(WOKEN_ANNOTATION) is not None

    async def is_anybody_nominated(self) -> bool:
        pods = (await self._client.list_(PODS, Json)).items
        return any(pod.get("status", {}).get("nominatedNodeName") for pod in pods)

    async def has_event(self, reason: str, *, count: int = 1) -> bool:
        events = (await self._client.list_(EVENTS, Json)).items
        counts = [
            event.get("series", {}).get("count", 1) for event in events if event["reason"] == reason
        ]
        return max(counts, default=0) >= count

    async def steal_node(self, name: str) -> None:
        """Bind a pod around everybody."""
        target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        body = {"metadata": {"name": name}, "target": target}
        await self._client.create(PODS, body, namespace="default", name=name, subresource="binding")

    async def bind(self, name: str) -> bool:
        """Ask for a bind as kube-scheduler does; say whether it is bound."""
        uid = (await self.cluster.stored_pod(name)).metadata.uid
        fields = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": "n1"}
        await self.server.call("POST", constants.BIND_PATH, msgspec.json.encode(fields))
        return await self.is_bound(name)

    async def is_sent(self, name: str) -> bool:
        """Ask for a bind; say whether the Binding has left the server, which may refuse at first."""
        await self.bind(name)
        return bool(self.cluster.api.requests.writes(user=SERVER_USER, path=f"/{name}/binding"))

    async def is_looked_at(self) -> bool:
        """Say whether the pod in doubt was read, more often than reads fail."""
        return list(map(kind_of, requests_of_ours(self.cluster))).count("GET pods") > 3

    async def spoil_secret(self) -> None:
        """Take kube-scheduler's certificate away."""
        await self._client.merge_patch(
            SECRETS,
            {"data": {"scheduler.crt": None}},
            name=constants.SERVING_SECRET,
            namespace=constants.DEFAULT_NAMESPACE,
        )

    async def has_whole_secret(self) -> bool:
        bundle = await self.cluster.bundle()
        return bool(bundle.client.certificate_pem)

    async def term(self) -> int:
        term = await self._client.get(GPU_CONTROL_PLANE_TERMS, Json, constants.LEASE_NAME)
        return int(term["spec"]["number"])

    async def has_term_after(self, number: int) -> bool:
        return await self.term() > number

    async def state(self) -> Json:
        """Return what is there now, of all that our server decides or writes."""
        pods = (await self._client.list_(PODS, Pod)).items
        pools = (await self._client.list_(GPU_POOLS, Json)).items
        devices = (await self._client.list_(GPU_DEVICES, Json)).items
        labels = (await self._client.get(NODES, Json, "n1"))["metadata"]["labels"]
        units = list(itertools.chain.from_iterable(map(_units_of, pods)))
        authority = (await self.cluster.bundle()).trust_pem
        checks = await self.server.checks()
        return {
            "bound": {pod.metadata.name for pod in pods if pod.spec.node_name},
            "with devices": {pod.metadata.name for pod in pods if _units_of(pod)},
            "is any unit given twice": len(units) > len(set(units)),
            "pools": {pool["metadata"]["name"]: pool["status"]["capacity"] for pool in pools},
            "units": {one["metadata"]["name"]: one["status"]["units"] for one in devices},
            "labels": {label for label in labels if label.startswith(POOL_NODE_LABEL_PREFIX)},
            "holds": sum(shown("gpu_reservations").values()),
            "are CAs injected": {ca == authority for ca in await self._ca_bundles()},
            "is all ready": bool(checks) and all(checks.values()),
        }

    async def comes_to(self, wanted: Json) -> None:
        """Wait until the state is as wanted; the failure shows both."""

        async def is_so() -> bool:
            return await self.state() == wanted

        try:
            await eventually(is_so)
        except TimeoutError:
            assert await self.state() == wanted

    async def _ca_bundles(self) -> list[bytes]:
        found: list[bytes] = []
        for resource, name in (
            (MUTATING_WEBHOOK_CONFIGURATIONS, constants.MUTATING_CONFIGURATION),
            (VALIDATING_WEBHOOK_CONFIGURATIONS, constants.VALIDATING_CONFIGURATION),
        ):
            configuration = await self._client.get(resource, Json, name)
            bundles = [hook["clientConfig"]["caBundle"] for hook in configuration["webhooks"]]
            found += [base64.b64decode(bundle) for bundle in bundles]
        return found


def _units_of(pod: Pod) -> list[str]:
    devices = decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) or {}
    return list(itertools.chain(*devices.values()))


async def pods_wait(story: Story) -> None:
    """Many, which are nominated, and then one whose hold expires, twice."""
    names = [f"c{number}" for number in range(CROWD)]
    for name in names:
        await story.add_pod(name, "slow")
    await eventually(story.is_anybody_nominated)
    for name in names:
        await story.remove_pod(name)
    for count in (1, 2):
        await story.add_pod("late", "slow")
        await eventually(functools.partial(story.has_event, "GPUReservationExpired", count=count))
        await eventually(lambda: story.is_woken("late"))
        await story.remove_pod("late")


async def pods_come_and_the_lead_goes(story: Story) -> None:
    """Bound as they should be, with a lost answer, and by a stranger; certificate and lead are lost."""
    for name in SERVED:
        await story.add_pod(name, "whole")
    await eventually(lambda: story.is_bound(*SERVED))
    await story.add_pod("lost", "whole", "nobody")
    await eventually(lambda: story.is_sent("lost"))
    await eventually(story.is_looked_at)
    await eventually(lambda: story.bind("lost"))
    await story.add_pod("stolen", "slow")
    await story.steal_node("stolen")
    await eventually(lambda: story.has_event("GPUPodUnaccounted"))
    await story.spoil_secret()
    await eventually(story.has_whole_secret)
    before = await story.term()
    await story.cluster.give_lease_to("somebody else")
    await eventually(functools.partial(story.has_term_after, before))
    await story.server.until_ready()


@asynccontextmanager
async def a_story(folder: Path, *faults: Fault) -> AsyncIterator[Story]:
    """A cluster with two pools, a server, kube-scheduler and a kubelet; these requests fail.

    In every story the first Binding of the pod `lost` is cut off: it is read what became of it.
    """
    clock = ServerClock()
    async with a_cluster(folder) as cluster:
        await cluster.install()
        cluster.api.faults.reset_before("POST", "/lost/binding$")
        for fault in faults:
            cluster.api.faults.add(fault)
        running = a_server(
            cluster,
            clock=clock,
            leadership={},
            tls={"ip_addresses": ["127.0.0.1"], "check_every_s": 2.0},
        )
        async with running as server, asyncio.TaskGroup() as group:
            story = Story(cluster, server)
            await story.add_node()
            await server.until_ready()
            await story.add_pool("whole", mode="Exclusive")
            await story.add_pool("slow", mode="TimeSlice", slicesPerDevice=64)
            bundle = await cluster.bundle()
            url = f"{server.url}{constants.EXTENDER_PREFIX}"
            async with ExtenderClient(
                url, client_context(bundle.trust_pem, bundle.client)
            ) as extender:
                doubles = [
                    group.create_task(SchedulerDouble(cluster.client, extender, clock).run()),
                    group.create_task(KubeletDouble(cluster.client, clock).run()),
                ]
                yield story
                for double in doubles:
                    double.cancel()


# --- what the server asks for -------------------------------------------------------------------------


def kind_of(request: Request) -> str:
    """Return verb and resource, `WATCH pods` or `PATCH gpupools/status`; what is one of a kind has its name."""
    resource, name, subresource = _parts_of(request.path)
    verb = request.method
    if verb == "GET" and not name:
        is_watch = "watch=" in request.query
        verb = "WATCH" if is_watch else "LIST"
        resource += " that are bound" if "fieldSelector=" in request.query else ""
    if resource == "secrets" and name:
        resource += f" {name}"
    return f"{verb} {resource}" + (f"/{subresource}" if subresource else "")


def _parts_of(path: str) -> tuple[str, str, str]:
    parts = path.strip("/").split("/")
    rest = parts[3:] if parts[0] == "apis" else parts[2:]
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    resource, name, subresource, *_ = *rest, "", ""
    return resource, name, subresource


def requests_of_ours(cluster: Cluster) -> list[Request]:
    """Return every request that our server made so far."""
    return [one for one in cluster.api.requests if one.user == SERVER_USER]


def breaking(kind: str, breakage: Breakage, *, nth: int = 1, times: int = 1) -> Fault:
    """Return what lets the nth request of a kind fail, and those behind it."""
    verb, _, rest = kind.partition(" ")
    resource, _, subresource = rest.partition("/")
    resource, _, name = resource.partition(" ")
    query = ""
    if verb in {"LIST", "WATCH"}:
        query = {"WATCH": "watch=", "LIST": "^(?!.*(watch|fieldSelector)=)"}[verb]
        query = "fieldSelector=" if name else query
        path = f"/{resource}$"
    elif verb == "POST" and not subresource:
        path = f"/{resource}$"
    else:
        path = f"/{resource}/{name or '[^/]+'}{'/' if subresource else ''}{subresource}$"
    return Fault(
        breakage=breakage,
        method="GET" if verb in {"LIST", "WATCH"} else verb,
        path=re.compile(path),
        query=re.compile(query),
        user=SERVER_USER,
        nth=nth,
        times=times,
    )
