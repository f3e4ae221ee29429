"""Stories of pools that scale, reported once for Karpenter's double and for Karpenter itself.

A story is a coroutine that plays in a `ScalingCluster`. It names its objects after itself, so that stories share one
cluster, and leaves nothing behind: `ends_clean` is the last thing that each one checks.
"""

import asyncio
import dataclasses
import functools
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from api.annotations import decode_devices
from api.foreign.core import Node, Pod
from api.foreign.karpenter import NodeClaim
from api.kinds.autoscaling import AutoscalingStatus
from api.kinds.gpupool import GPUPool
from api.meta import Model, ObjectMeta
from api.names import (
    AGENT_NOT_READY_TAINT,
    CAPACITY_GATE,
    DEVICES_ANNOTATION,
    PRESENT_LABEL,
    RESOURCE_PREFIX,
    SCALE_REQUEST_LABEL,
    SCALING_POOL_LABEL,
)
from api.well_known_labels import INSTANCE_TYPE_LABEL
from kube.client import KubeClient
from kube.errors import KubeError, NotFound
from kube.resources import EVENTS, GPU_POOLS, NODE_CLAIMS, NODE_POOLS, NODES, PODS
from manifests import constants

Json = dict[str, Any]
T = TypeVar("T")

POOL_LABEL: Final = "stories.example/pool"
"""On the nodes of a NodePool: the pool that their devices are for."""
WITHIN_S: Final = 300.0
"""For facts that come in seconds where the machine has nothing else to do."""
EVERY_S: Final = 0.25
MOST_S: Final = 5.0
"""Between two looks: states of a node on its way last for a second, a quarter of an hour needs fewer looks."""


class ScalingCluster(Protocol):
    """The cluster that a story plays in: API server, our server, Karpenter, scheduler and nodes."""

    client: KubeClient
    """An administrator's."""
    namespace: str
    """Of the stories' pods."""

    def node_class(self, node_pool: str) -> Json:
        """Return group, kind and name of the NodePool's node class; every NodePool may have one of its own."""

    async def set_capacity(self, node_pool: str, *, is_available: bool) -> None:
        """Let launches for a NodePool succeed, or fail for lack of capacity."""

    async def set_nodes(
        self, node_pool: str, *, devices_after_s: float | None, mig_profile: str = ""
    ) -> None:
        """Say how long after its registration a new node of the NodePool tells of its devices; None: never.

        Args:
            node_pool: name of the NodePool.
            devices_after_s: seconds.
            mig_profile: as whose instances its devices are partitioned.
        """

    async def finish(self, name: str) -> None:
        """Let the containers of a running pod end successfully."""

    async def kill_server(self) -> None:
        """End our server without notice, and start another one."""

    async def kill_karpenter(self) -> None:
        """End Karpenter without notice, and start another one."""


@dataclasses.dataclass(frozen=True, repr=False)
class Measurement:
    """What the API server shows of a pool at one time."""

    pool: GPUPool
    pods: Mapping[str, Pod]
    """Of the pool, by name."""
    signals: tuple[Pod, ...]
    claims: tuple[NodeClaim, ...]
    """Of the pool's NodePools."""
    nodes: tuple[Node, ...]

    @property
    def bound(self) -> list[str]:
        return sorted(name for name, pod in self.pods.items() if pod.spec.node_name)

    @property
    def gated(self) -> list[str]:
        return sorted(name for name, pod in self.pods.items() if is_gated(pod))

    @property
    def with_startup_taint(self) -> list[str]:
        return sorted(
            node.metadata.name
            for node in self.nodes
            if any(taint.key == AGENT_NOT_READY_TAINT for taint in node.spec.taints or ())
        )

    @property
    def scaling(self) -> AutoscalingStatus:
        return self.pool.status.autoscaling or AutoscalingStatus()

    @property
    def shapes_of_requests(self) -> list[str]:
        """Shapes of nodes that are on their way, or failed."""
        return sorted(request.shape for request in self.scaling.requests or ())

    @property
    def units(self) -> int:
        return self.pool.status.capacity.total

    def has_condition(self, type_: str, status: str) -> bool:
        return any(
            (condition.type, condition.status) == (type_, status)
            for condition in self.scaling.conditions or ()
        )

    def instance_types(self) -> list[str]:
        return sorted(node.metadata.label(INSTANCE_TYPE_LABEL) or "" for node in self.nodes)

    def __repr__(self) -> str:
        pods = {
            name: pod.spec.node_name or ("gated" if is_gated(pod) else "waits")
            for name, pod in self.pods.items()
        }
        claims = {
            claim.metadata.name: {
                condition.type: f"{condition.status}/{condition.reason}"
                for condition in claim.status.conditions or ()
            }
            for claim in self.claims
        }
        nodes = {
            node.metadata.name: [taint.key for taint in node.spec.taints or ()]
            for node in self.nodes
        }
        signals = [signal.metadata.name for signal in self.signals]
        return (
            f"pods {pods}; signals {signals}; NodeClaims {claims}; Nodes {nodes};"
            f" capacity {self.pool.status.capacity}; autoscaling {self.scaling}"
        )


def is_gated(pod: Pod) -> bool:
    return any(gate.name == CAPACITY_GATE for gate in pod.spec.scheduling_gates or ())


class _Event(Model, frozen=True):
    reason: str = ""
    note: str = ""
    regarding: ObjectMeta = ObjectMeta()


@dataclasses.dataclass
class ScalingPool:
    """A pool of a story with its NodePools."""

    cluster: ScalingCluster
    name: str
    node_pools: list[str] = dataclasses.field(default_factory=list)

    async def measured(self) -> Measurement:
        pool = await self.cluster.client.get(GPU_POOLS, GPUPool, self.name)
        return dataclasses.replace(await self.left(), pool=pool)

    async def left(self) -> Measurement:
        """Return the sight without the GPUPool, which may be gone."""
        client, label = self.cluster.client, f"{POOL_LABEL}={self.name}"
        pods = await client.list_(PODS, Pod, namespace=self.cluster.namespace, label_selector=label)
        signals = await client.list_(
            PODS,
            Pod,
            namespace=constants.DEFAULT_NAMESPACE,
            label_selector=f"{SCALING_POOL_LABEL}={self.name}",
        )
        claims = await client.list_(NODE_CLAIMS, NodeClaim, label_selector=label)
        nodes = await client.list_(NODES, Node, label_selector=label)
        return Measurement(
            pool=GPUPool(),
            pods={item.metadata.name: item for item in pods.items},
            signals=tuple(signals.items),
            claims=tuple(claims.items),
            nodes=tuple(nodes.items),
        )

    async def until_left(
        self, what: str, holds: Callable[[Measurement], bool], *, within_s: float = WITHIN_S
    ) -> None:
        await until(f"pool {self.name}: {what}", self.left, holds, within_s=within_s)

    async def consolidate(self, node_pool: str, after: str) -> None:
        """Change the time after which an empty node of a NodePool goes."""
        body = {"spec": {"disruption": {"consolidateAfter": after}}}
        patch = functools.partial(self.cluster.client.merge_patch, NODE_POOLS, body)
        await insist(functools.partial(patch, name=node_pool))

    async def until(
        self, what: str, holds: Callable[[Measurement], bool], *, within_s: float = WITHIN_S
    ) -> Measurement:
        """Return the first sight that it holds for."""
        return await until(f"pool {self.name}: {what}", self.measured, holds, within_s=within_s)

    async def until_bound(self, *names: str, within_s: float = WITHIN_S) -> Measurement:
        """Wait until these pods are bound, and check that no unit has two of them."""
        measured = await self.until(
            f"pods {', '.join(names)} are bound",
            lambda seen: set(names) <= set(seen.bound),
            within_s=within_s,
        )
        check_units(measured.pods.values())
        return measured

    def node_pool_name(self, name: str) -> str:
        """Return the name of a NodePool of this pool, of five characters.

        Karpenter's kwok provider adds up to 58 to it for the name of a Node, and NFD has that name as the value of a
        label, of at most 63.
        """
        return f"n{hashlib.sha256(f'{self.name}-{name}'.encode()).hexdigest()[:4]}"

    async def create_node_pool(  # fields of a NodePool
        self,
        name: str,
        *types: str,
        consolidate_after: str = "0s",
        limits: Json | None = None,
        weight: int | None = None,
        taints: Sequence[Json] = (),
        **template: Any,
    ) -> str:
        """Create a NodePool of these instance types, as docs/autoscaling.md describes it; return its name."""
        name = self.node_pool_name(name)
        requirements = [
            {"key": SCALE_REQUEST_LABEL, "operator": "Exists"},
            {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": list(types)},
        ]
        spec: Json = {
            "template": {
                "metadata": {"labels": {POOL_LABEL: self.name, PRESENT_LABEL: "true"}},
                "spec": {
                    "nodeClassRef": self.cluster.node_class(name),
                    "requirements": requirements,
                    "startupTaints": [{"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}],
                    "expireAfter": "Never",
                    **({"taints": list(taints)} if taints else {}),
                    **template,
                },
            },
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": consolidate_after,
                "budgets": [{"nodes": "100%"}],
            },
        }
        if limits is not None:
            spec["limits"] = limits
        if weight is not None:
            spec["weight"] = weight
        body = {"metadata": {"name": name}, "spec": spec}
        head = {"apiVersion": NODE_POOLS.api_version, "kind": NODE_POOLS.kind}
        await self.cluster.client.create(NODE_POOLS, head | body)
        self.node_pools.append(name)
        return name

    async def create(
        self,
        shapes: Sequence[Json],
        *,
        allocation: Json | None = None,
        taints: Sequence[Json] = (),
        **autoscaling: Any,
    ) -> None:
        """Create the GPUPool, once the server admits it."""
        spec: Json = {
            "allocation": allocation or {"mode": "Exclusive"},
            "assignment": {"requireAnnotation": False},
            "nodeSelector": {"matchLabels": {POOL_LABEL: self.name}},
            "reservation": {"ttl": "30s"},
            "autoscaling": {"shapes": list(shapes), **autoscaling},
        }
        if taints:
            spec["scheduling"] = {"taints": list(taints)}
        body = {"metadata": {"name": self.name}, "spec": spec}
        head = {"apiVersion": GPU_POOLS.api_version, "kind": GPU_POOLS.kind}
        await insist(lambda: self.cluster.client.create(GPU_POOLS, head | body))
        await self.until("is in effect", lambda seen: seen.pool.status.observed_generation > 0)

    async def create_pod(self, name: str, units: int = 1, **spec: Any) -> None:
        """Create a pod through admission; it may be refused while no server runs, and is tried again."""
        body = self.pod(name, units, **spec)
        await insist(lambda: self.cluster.client.create(PODS, body))

    async def create_pods(self, count: int, units: int = 1, *, prefix: str = "p") -> list[str]:
        """Create pods at once; return their names."""
        names = [f"{self.name}-{prefix}{number}" for number in range(count)]
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self.create_pod(name, units))
        return names

    def pod(self, name: str, units: int = 1, **spec: Any) -> Json:
        limits = {f"{RESOURCE_PREFIX}{self.name}": str(units)}
        container = {"name": "main", "image": "registry.test/work", "resources": {"limits": limits}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.cluster.namespace,
                "labels": {POOL_LABEL: self.name},
            },
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
        }

    async def events(self, reason: str) -> list[str]:
        """Return the notes of the Events of one reason about the pool and its pods."""
        found: list[str] = []
        for namespace in {self.cluster.namespace, "default"}:
            listed = await self.cluster.client.list_(EVENTS, _Event, namespace=namespace)
            found += [
                item.note
                for item in listed.items
                if item.reason == reason and item.regarding.name.startswith(self.name)
            ]
        return found

    async def until_reported(
        self, reason: str, says: str = "", *, within_s: float = WITHIN_S
    ) -> str:
        """Return the note of an Event about the pool or one of its pods."""

        async def notes() -> list[str]:
            return [note for note in await self.events(reason) if says in note]

        found = await until(f"Event {reason} {says}", notes, bool, within_s=within_s)
        return found[0]

    async def patch(self, body: Json) -> None:
        """Change the GPUPool."""
        await insist(
            functools.partial(self.cluster.client.merge_patch, GPU_POOLS, body, name=self.name)
        )

    async def delete_pods(self, *names: str) -> None:
        where = self.cluster.namespace
        for name in names:
            delete = functools.partial(self.cluster.client.delete, PODS, name, namespace=where)
            await insist(functools.partial(delete, grace_period_s=0))

    async def ends_clean(self, *, within_s: float = WITHIN_S) -> None:
        """Delete the pool's pods, and wait until nothing is left of it but pool and NodePools; then delete these."""
        await self.delete_pods(*(await self.left()).pods)
        await self.until_left("nothing is left", has_nothing, within_s=within_s)
        await self.delete()
        await self.delete_node_pools()

    async def delete(self) -> None:
        await insist(functools.partial(self.cluster.client.delete, GPU_POOLS, self.name))

    async def delete_node_pools(self) -> None:
        for name in self.node_pools:
            await insist(functools.partial(self.cluster.client.delete, NODE_POOLS, name))


def has_nothing(measured: Measurement) -> bool:
    return not (measured.pods or measured.signals or measured.claims or measured.nodes)


def shape(name: str, devices: int, *types: str, **more: Any) -> Json:
    """Return a shape of `spec.autoscaling.shapes`; its instance types are told apart within one NodePool."""
    requirements = [{"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": list(types)}]
    return {"name": name, "devices": devices, "requirements": requirements, **more}


async def until(
    what: str,
    read: Callable[[], Awaitable[T]],
    holds: Callable[[T], bool],
    *,
    within_s: float = WITHIN_S,
) -> T:
    """Return the first value that it holds for; the last one, or why there was none, is in the error."""
    last: T | KubeError | None = None
    pause_s = EVERY_S
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    last = found = await read()
                except KubeError as error:
                    last = error
                else:
                    if holds(found):
                        return found
                await asyncio.sleep(pause_s)
                pause_s = min(MOST_S, pause_s * 1.02)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {within_s:g} s; last seen: {last!r}") from None


async def insist(attempt: Callable[[], Awaitable[Any]], *, within_s: float = WITHIN_S) -> None:
    """Try until it succeeds; what is gone already counts as deleted."""

    async def is_done() -> bool:
        try:
            await attempt()
        except NotFound:
            return True
        return True

    await until("a request succeeds", is_done, bool, within_s=within_s)


def check_units(pods: Iterable[Pod]) -> None:
    """Check that no unit belongs to two live pods."""
    holders: dict[str, str] = {}
    for pod in pods:
        devices = decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) or {}
        for unit in {unit for units in devices.values() for unit in units}:
            if pod.is_terminal:
                continue
            assert unit not in holders, f"{unit}: {holders[unit]} and {pod.metadata.name}"
            holders[unit] = pod.metadata.name


Story = Callable[[ScalingCluster], Awaitable[None]]
