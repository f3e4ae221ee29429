"""The fake itself: reads by informers, decides at each change and while time alone may make something due, and writes."""

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import structlog

from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.informer import Informer
from kube.resources import EVENTS, NODE_CLAIMS, NODE_POOLS, NODES, PODS
from kube.store import Store
from simulator.karpenter.instance_types import INSTANCE_TYPES
from simulator.karpenter.karpenter_decision import decide, has_work
from simulator.karpenter.karpenter_settings import CloudFaults, KarpenterTimes
from simulator.karpenter.karpenter_writes import Report, Write
from simulator.karpenter.observed_cluster import (
    ClusterSight,
    Look,
    Memory,
    SeenClaim,
    SeenNode,
    SeenNodePool,
    SeenPod,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.clock import Clock
    from kube.client import KubeClient
    from simulator.karpenter.instance_types import InstanceType
    from simulator.karpenter.karpenter_writes import Action

COMPONENT: Final = "karpenter"

_log = structlog.get_logger()


@final
class _Pods:
    """Pods of all namespaces by uid."""

    def __init__(self, changed: asyncio.Event) -> None:
        self.by_uid: dict[str, SeenPod] = {}
        self._changed = changed

    def replace_all(self, items: "Sequence[SeenPod]") -> None:
        self.by_uid = {item.metadata.uid: item for item in items}
        self._changed.set()

    def upsert(self, item: SeenPod) -> None:
        self.by_uid[item.metadata.uid] = item
        self._changed.set()

    def discard(self, item: SeenPod) -> None:
        self.by_uid.pop(item.metadata.uid, None)
        self._changed.set()


@final
class FakeKarpenter:
    """Karpenter with a cloud of its own. A second one after it, as after a restart, forgets what is in no object."""

    def __init__(
        self,
        client: "KubeClient",
        clock: "Clock",
        *,
        types: "Sequence[InstanceType]" = INSTANCE_TYPES,
        times: KarpenterTimes | None = None,
        faults: CloudFaults | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._types = {type_.name: type_ for type_ in types}
        self._times = times or KarpenterTimes()
        self._faults = faults or CloudFaults()
        self._changed = asyncio.Event()
        self._pods = _Pods(self._changed)
        self._nodes: Store[SeenNode] = Store()
        self._claims: Store[SeenClaim] = Store()
        self._node_pools: Store[SeenNodePool] = Store()
        self._memory = Memory()

    async def run(self) -> NoReturn:
        client, clock = self._client, self._clock
        informers: tuple[Informer[Any], ...] = (
            Informer(client, PODS, SeenPod, sink=self._pods, clock=clock),
            Informer(client, NODES, SeenNode, sink=self._nodes, clock=clock),
            Informer(client, NODE_CLAIMS, SeenClaim, sink=self._claims, clock=clock),
            Informer(client, NODE_POOLS, SeenNodePool, sink=self._node_pools, clock=clock),
        )
        for store in (self._nodes, self._claims, self._node_pools):
            store.changes.subscribe(lambda _name: self._changed.set())
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

    def _look(self) -> Look:
        sight = ClusterSight(
            pods=dict(self._pods.by_uid),
            nodes=dict(self._nodes.by_name),
            claims=dict(self._claims.by_name),
            node_pools=dict(self._node_pools.by_name),
            types=self._types,
        )
        return Look(
            sight=sight,
            memory=self._memory,
            now=self._clock.utc_now(),
            times=self._times,
            faults=self._faults,
        )

    async def _act(self) -> None:
        for action in decide(self._look()):
            try:
                await self._carry_out(action)
            except (NotFound, AlreadyExists, Conflict):
                continue  # what was seen is not the latest any more
            except KubeError as error:
                _log.warning("karpenter could not write", error=str(error))

    async def _wait(self) -> None:
        """Wait for a change; for a moment only where time may make something due."""
        is_due = has_work(self._look())
        try:
            async with asyncio.timeout(self._times.look_s if is_due else None):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _carry_out(self, action: "Action") -> None:
        match action:
            case Report():
                await self._tell(action)
            case Write(verb="create"):
                await self._client.create(action.resource, action.body or {})
            case Write(verb="patch"):
                await self._client.merge_patch(
                    action.resource,
                    action.body or {},
                    name=action.name,
                    namespace=action.namespace,
                    subresource=action.subresource,
                )
            case Write():
                await self._client.delete(
                    action.resource, action.name, namespace=action.namespace, uid=action.uid
                )

    async def _tell(self, report: Report) -> None:
        now, meta = self._clock.utc_now(), report.regarding
        namespace = meta.namespace or "default"
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": f"{meta.name}.{secrets.token_hex(8)}", "namespace": namespace},
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": COMPONENT,
            "reportingInstance": COMPONENT,
            "action": report.reason,
            "reason": report.reason,
            "type": report.type,
            "note": report.note[:1024],
            "regarding": {
                "apiVersion": report.resource.api_version,
                "kind": report.resource.kind,
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
            },
        }
        await self._client.create(EVENTS, body)
