"""The double itself: it reads by informers, and takes each signal, NodeClaim and NodePool one step further at a time."""

import asyncio
import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, final

import msgspec
import structlog

from api.foreign.core import Node, Pod
from api.foreign.karpenter import (
    DISRUPTED_TAINT,
    DO_NOT_DISRUPT_ANNOTATION,
    INITIALIZED,
    INITIALIZED_LABEL,
    LAUNCHED,
    NODE_POOL_LABEL,
    REGISTERED,
    REGISTERED_LABEL,
    NodeClaim,
    NodePool,
)
from api.meta import Condition
from api.names import SCALE_REQUEST_LABEL
from api.quantity import parse_duration_s, parse_milli
from api.status_conditions import format_time
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.informer import Informer
from kube.resources import NODE_CLAIMS, NODE_POOLS, NODES, PODS
from kube.store import IndexedStore, Store
from simulator.karpenter.scripted_claim import (
    TERMINATION_FINALIZER,
    asks_for_node,
    claim_of,
    instance_of,
    node_of,
    registration_of,
    with_taint,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from collections.abc import Set as AbstractSet

    from api.clock import Clock
    from kube.client import KubeClient

Json = dict[str, Any]

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KarpenterTimes:
    """Times in seconds, about those of Karpenter and of a fast cloud."""

    batch_s: float = 1.0
    """Seconds from a signal to its NodeClaim."""
    retry_s: float = 10.0
    """Seconds from the end of a NodeClaim to the next one for its signal."""
    launch_s: float = 0.2
    registration_s: float = 0.5
    """Seconds from launch to the Node."""
    validation_s: float = 20.0
    """An empty node stays so long beyond `consolidateAfter`."""
    termination_s: float = 0.2
    poll_s: float = 0.25
    """Seconds between two passes while time alone may make something due."""


@final
class FakeKarpenter:
    """Karpenter with a cloud of its own. A second one after it, as after a restart, forgets what is in no object."""

    def __init__(
        self,
        client: "KubeClient",
        clock: "Clock",
        *,
        times: KarpenterTimes | None = None,
        without_capacity: "AbstractSet[str]" = frozenset(),
    ) -> None:
        """Take the NodePools that nothing is launched for; they are read again at each launch."""
        self._client = client
        self._clock = clock
        self._times = times or KarpenterTimes()
        self._without_capacity = without_capacity
        self._pods: IndexedStore[str, str, Pod] = IndexedStore(
            lambda pod: pod.metadata.uid, lambda pod: pod.spec.node_name
        )
        self._nodes: Store[Node] = Store()
        self._claims: Store[NodeClaim] = Store()
        self._node_pools: Store[NodePool] = Store()
        self._changed = asyncio.Event()
        self._since: dict[tuple[str, str], float] = {}
        # what lasts, and of which uid -> since when
        self._ended: dict[str, float] = {}
        # request -> when its last NodeClaim ended

    async def run(self) -> NoReturn:
        client, clock = self._client, self._clock
        informers: tuple[Informer[Any], ...] = (
            Informer(client, PODS, Pod, sink=self._pods, clock=clock),
            Informer(client, NODES, Node, sink=self._nodes, clock=clock),
            Informer(client, NODE_CLAIMS, NodeClaim, sink=self._claims, clock=clock),
            Informer(client, NODE_POOLS, NodePool, sink=self._node_pools, clock=clock),
        )
        for store in (self._pods, self._nodes, self._claims, self._node_pools):
            store.changes.subscribe(lambda _key: self._changed.set())
        async with asyncio.TaskGroup() as group:
            for informer in informers:
                group.create_task(informer.run(), name="karpenter/informer")
            for informer in informers:
                await informer.synced.wait()
            while True:
                self._changed.clear()
                await self._act()
                await self._wait()
        raise AssertionError("a task group of endless tasks ended")

    async def _act(self) -> None:
        for pool in list(self._node_pools.by_name.values()):
            await _attempt(self._report(pool))
        for signal in self._signals():
            await _attempt(self._provision(signal))
        for claim in list(self._claims.by_name.values()):
            await _attempt(self._advance(claim))

    async def _wait(self) -> None:
        """Wait for a change; for a moment only where time may make something due."""
        is_due = bool(self._claims.by_name or self._signals())
        try:
            async with asyncio.timeout(self._times.poll_s if is_due else None):
                await self._changed.wait()
        except TimeoutError:
            return

    def _signals(self) -> list[Pod]:
        return [pod for pod in self._pods.of("").values() if asks_for_node(pod)]

    def _has_lasted(self, subject: str, uid: str, seconds: float) -> bool:
        """Say whether so long has passed since this was asked for the first time."""
        now = self._clock.monotonic()
        return now - self._since.setdefault((subject, uid), now) >= seconds

    async def _provision(self, signal: Pod) -> None:
        """Create the NodeClaim of a signal's request: under one name, until that one has ended."""
        selector, now = signal.spec.node_selector or {}, self._clock.monotonic()
        request = selector[SCALE_REQUEST_LABEL]
        pool = self._node_pools.by_name.get(selector[NODE_POOL_LABEL])
        has_claim = any(
            item.metadata.label(SCALE_REQUEST_LABEL) == request
            for item in self._claims.by_name.values()
        )
        ended = self._ended.get(request, -self._times.retry_s)
        is_due = self._has_lasted("signal", signal.metadata.uid, self._times.batch_s)
        if pool is None or has_claim or not is_due or now - ended < self._times.retry_s:
            return
        digest = hashlib.sha256(f"{request}/{ended}".encode()).hexdigest()
        body = claim_of(f"{pool.metadata.name}-{digest[:8]}", signal, pool)
        if body is None:
            self._ended[request] = now
            _log.warning("no instance type serves a signal", signal=signal.metadata.name)
            return
        await self._client.create(NODE_CLAIMS, body)

    async def _advance(self, claim: NodeClaim) -> None:
        name, node = claim.metadata.name, self._nodes.by_name.get(claim.metadata.name)
        pool = self._node_pools.by_name.get(claim.metadata.label(NODE_POOL_LABEL) or "")
        is_node_lost = node is None or node.metadata.deletion_timestamp is not None
        if claim.metadata.deletion_timestamp is not None:
            await self._terminate(claim, node)
        elif pool is None or (_has(claim, REGISTERED) and is_node_lost):
            await self._client.delete(NODE_CLAIMS, name, uid=claim.metadata.uid)
        elif not _has(claim, LAUNCHED):
            await self._launch(claim)
        elif not _has(claim, REGISTERED):
            await self._register(claim, node)
        elif node is not None and not _has(claim, INITIALIZED):
            await self._initialize(claim, node)
        elif node is not None and self._is_disruptable(claim, node, pool):
            await self._client.merge_patch(NODES, with_taint(node, DISRUPTED_TAINT), name=name)
            await self._client.delete(NODE_CLAIMS, name, uid=claim.metadata.uid)

    async def _launch(self, claim: NodeClaim) -> None:
        meta = claim.metadata
        if not self._has_lasted("launch", meta.uid, self._times.launch_s):
            return
        if meta.label(NODE_POOL_LABEL) in self._without_capacity:
            await self._client.delete(NODE_CLAIMS, meta.name, uid=meta.uid)
            return
        labels, type_ = instance_of(claim)
        await self._client.merge_patch(
            NODE_CLAIMS, {"metadata": {"labels": labels}}, name=meta.name
        )
        resources = dict(type_.resources)
        status = {
            "providerID": f"fake://{meta.name}",
            "capacity": resources,
            "allocatable": resources,
        }
        await self._patch_status(claim, {LAUNCHED: ("True", LAUNCHED)}, status)

    async def _register(self, claim: NodeClaim, node: Node | None) -> None:
        name = claim.metadata.name
        if node is None:
            if self._has_lasted("registration", claim.metadata.uid, self._times.registration_s):
                await self._client.create(NODES, node_of(claim))
        elif not node.metadata.label(REGISTERED_LABEL):
            # kubelet knows nothing of a device plugin's resources before the plugin has registered
            resources = (claim.status.allocatable or {}).items()
            own = {key: amount for key, amount in resources if "/" not in key}
            status = {"status": {"capacity": own, "allocatable": own}}
            await self._client.merge_patch(NODES, status, name=name, subresource="status")
            await self._client.merge_patch(NODES, registration_of(claim, node), name=name)
        else:
            awaiting = {REGISTERED: ("True", REGISTERED), INITIALIZED: ("Unknown", "NodeNotReady")}
            await self._patch_status(claim, awaiting, {"nodeName": name})

    async def _initialize(self, claim: NodeClaim, node: Node) -> None:
        startup = {taint.key for taint in claim.spec.startup_taints or ()}
        if not node.is_ready:
            return
        if any(taint.key in startup for taint in node.spec.taints or ()):
            await self._patch_status(claim, {INITIALIZED: ("Unknown", "StartupTaintsExist")})
            return
        label = {"metadata": {"labels": {INITIALIZED_LABEL: "true"}}}
        await self._client.merge_patch(NODES, label, name=node.metadata.name)
        initialized = {INITIALIZED: ("True", INITIALIZED), "Ready": ("True", "Ready")}
        await self._patch_status(claim, initialized)

    def _is_disruptable(self, claim: NodeClaim, node: Node, pool: NodePool) -> bool:
        try:
            after_s = parse_duration_s(pool.spec.disruption.consolidate_after)
        except ValueError:
            return False  # Never
        if node.metadata.annotation(DO_NOT_DISRUPT_ANNOTATION) == "true" or any(
            pod.metadata.deletion_timestamp is None for pod in self._pods_on(node)
        ):
            self._since.pop(("empty", claim.metadata.uid), None)
            return False
        seconds = after_s + self._times.validation_s
        return self._has_lasted("empty", claim.metadata.uid, seconds)

    def _pods_on(self, node: Node) -> list[Pod]:
        """Return the pods that do not come and go with the node."""
        return [
            pod
            for pod in self._pods.of(node.metadata.name).values()
            if not pod.is_terminal
            and not any(
                owner.kind in {"DaemonSet", "Node"} for owner in pod.metadata.owner_references or ()
            )
        ]

    async def _terminate(self, claim: NodeClaim, node: Node | None) -> None:
        """Taint and delete the Node, evict its pods, end the instance, let the NodeClaim go."""
        freed: Json = {"metadata": {"finalizers": None}}
        if node is None:
            request = claim.metadata.label(SCALE_REQUEST_LABEL) or ""
            self._ended[request] = self._clock.monotonic()
            await self._client.merge_patch(NODE_CLAIMS, freed, name=claim.metadata.name)
            return
        meta = node.metadata
        if meta.deletion_timestamp is None:
            await self._client.merge_patch(NODES, with_taint(node, DISRUPTED_TAINT), name=meta.name)
            await self._client.delete(NODES, meta.name, uid=meta.uid)
            return
        pods = self._pods_on(node)
        for pod in (item.metadata for item in pods if item.metadata.deletion_timestamp is None):
            await self._client.delete(PODS, pod.name, namespace=pod.namespace, uid=pod.uid)
        if not pods and self._has_lasted("termination", meta.uid, self._times.termination_s):
            others = [item for item in meta.finalizers or () if item != TERMINATION_FINALIZER]
            freed = {"metadata": {"finalizers": others}}
            await self._client.merge_patch(NODES, freed, name=meta.name)

    async def _report(self, pool: NodePool) -> None:
        """Write a NodePool's condition and resources, where they change."""
        name, current = pool.metadata.name, pool.status.resources or {}
        claims = [
            item
            for item in self._claims.by_name.values()
            if item.metadata.label(NODE_POOL_LABEL) == name
        ]
        used = Counter({"nodes": 1000 * len(claims)})
        for claim in claims:
            for resource, amount in (claim.status.allocatable or {}).items():
                used[resource] += parse_milli(str(amount))
        status: Json = {
            "resources": {
                key: f"{used[key]}m"
                for key in {*used, *current}
                if key not in current or parse_milli(str(current[key])) != used[key]
            }
        }
        if not pool.status.conditions:
            ready = Condition(type="Ready", status="True", reason="Ready")
            status["conditions"] = [msgspec.to_builtins(ready)]
        if status["resources"] or "conditions" in status:
            body = {"status": status}
            await self._client.merge_patch(NODE_POOLS, body, name=name, subresource="status")

    async def _patch_status(
        self, claim: NodeClaim, changes: dict[str, tuple[Any, str]], status: Json | None = None
    ) -> None:
        """Write conditions by their type, as status and reason; nothing where all are shown."""
        current = {item.type: item for item in claim.status.conditions or ()}
        now = format_time(self._clock.utc_now())
        changed = {
            type_: Condition(type=type_, status=value, reason=reason, last_transition_time=now)
            for type_, (value, reason) in changes.items()
            if type_ not in current
            or (current[type_].status, current[type_].reason) != (value, reason)
        }
        if changed:
            conditions = msgspec.to_builtins(list({**current, **changed}.values()))
            body = {"status": {"conditions": conditions, **(status or {})}}
            name = claim.metadata.name
            await self._client.merge_patch(NODE_CLAIMS, body, name=name, subresource="status")


def _has(claim: NodeClaim, type_: str) -> bool:
    return any(
        (item.type, item.status) == (type_, "True") for item in claim.status.conditions or ()
    )


async def _attempt(step: "Awaitable[None]") -> None:
    try:
        await step
    except (NotFound, AlreadyExists, Conflict):
        return  # what was seen is not the latest any more
    except KubeError as error:
        _log.warning("karpenter could not write", error=str(error))
