"""Thousands of pods from creation to deletion, beside nodes, devices and pools that come and go.

The watch events go straight to the sinks of a process; the API server and the controllers that write are left out.
"""

import asyncio
import gc
import random
import sys
from collections import Counter, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from admission.context import AdmissionContext
from admission.webhooks import mutate_pod
from api.clock import Instant
from api.foreign.core import Pod
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import GPUPool
from api.names import NodeName
from kernelcache.cache_index import CacheIndex
from pool.allocation_state import AllocationState
from pool.catalog import Catalog
from pool.facts import pod_facts
from reconciler.assignment.pool_conflicts import Conflicts
from reconciler.informer_stores import InformerStores
from reconciler.sinks.device import observe_device
from reconciler.sinks.node import NodeSink
from reconciler.sinks.pod import PodSink
from reconciler.sinks.pool import PoolSink
from scheduler.context import RECENT_PODS, ExtenderContext
from scheduler.extender import bind, filter_nodes, prioritize
from server.leadership.bound_pods import BoundPods
from server.reservations.ids import ReservationIds
from telemetry.metrics import REGISTRY
from tests.support.builders import a_node, at
from tests.support.hand_made import a_device
from tests.support.reviews import Reply, a_pod_object, a_pool_object, a_review
from tests.support.scheduling import FakeBinder

if TYPE_CHECKING:
    from kube.client import KubeClient

Json = dict[str, Any]

PRODUCT: Final = frozenset(
    {"admission", "api", "certs", "inventory", "kube", "pool", "reconciler", "scheduler", "server"}
    | {"telemetry", "manifests"}
)
LIVES_OF_A_NODE: Final = 10
LIVES_OF_A_POOL: Final = 50
DEVICES: Final = 4
BOUNDS: Final = {
    "RecentPods._demand_by_uid": RECENT_PODS,
    "ReservationLedger._deadlines": 4096 + 4 * 10,
}
"""What is full at so many by design, however long the process lives."""


class Replica:
    """The caches of one process; a leader also decides, and takes the index changes."""

    def __init__(self, *, leads: bool) -> None:
        self.leads = leads
        self.allocation_state, self.catalog = AllocationState(), Catalog()
        self.stores = InformerStores(self.allocation_state, self.catalog, CacheIndex())
        self.pools = PoolSink(self.allocation_state.index, self.catalog)
        self.nodes = NodeSink(self.allocation_state.index)
        client: KubeClient = None  # type: ignore[assignment]  # nothing is read
        self.pods = BoundPods(client, PodSink(self.allocation_state, self.now))
        self.conflicts = Conflicts()
        self.seconds = 0.0
        self.binder = FakeBinder()
        new_id = ReservationIds()
        self.scheduling = ExtenderContext(
            index=self.allocation_state.index,
            reader=self.allocation_state.reader,
            allocation_state=self.allocation_state,
            binder=self.binder,
            new_id=new_id,
            now=self.now,
            is_ready=lambda: True,
        )
        self.admission = AdmissionContext(
            index=self.allocation_state.index,
            reader=self.allocation_state.reader,
            allocation_state=self.allocation_state,
            catalog=self.catalog,
            scheduler_name="gpu-scheduler",
            new_id=new_id,
            now=self.now,
            is_ready=lambda: True,
            sign=lambda _: "seal",
        )

    def now(self) -> Instant:
        return at(self.seconds)

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds
        self.allocation_state.expire(self.now())
        if self.leads:
            self.allocation_state.index.changes.take()


class PodLifecycles:
    """A leader and a standby of one cluster that changes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.leader, self.standby = Replica(leads=True), Replica(leads=False)
        self.replicas = (self.leader, self.standby)
        self.count = self.bound = 0
        self.add_pool("whole")
        for node in ("n1", "n2"):
            self.add_node(node, "whole")

    def add_pool(self, pool: str) -> None:
        item = msgspec.convert(a_pool_object(pool), GPUPool)
        for replica in self.replicas:
            replica.pools.upsert(item)

    def add_node(self, node: str, pool: str) -> None:
        for replica in self.replicas:
            replica.nodes.upsert(a_node(node, labels={"zone": node}))
            for gpu in range(DEVICES):
                device = msgspec.convert(a_device(node, gpu, pool), GPUDevice)
                replica.stores.device_sink.upsert(observe_device(device))
        self.leader.conflicts.replace(NodeName(node), {})

    def remove_node(self, node: str, pool: str) -> None:
        for replica in self.replicas:
            for gpu in range(DEVICES):
                device = msgspec.convert(a_device(node, gpu, pool), GPUDevice)
                replica.stores.device_sink.discard(observe_device(device))
            replica.nodes.discard(a_node(node))
        self.leader.conflicts.discard(NodeName(node))

    def remove_pool(self, pool: str) -> None:
        for replica in self.replicas:
            replica.pools.discard(msgspec.convert(a_pool_object(pool), GPUPool))

    def live(self, many: int) -> None:
        """Run so many pods from creation to deletion; nodes and pools come and go with them."""
        for _ in range(many):
            at_pool, at_node = self.count % LIVES_OF_A_POOL, self.count % LIVES_OF_A_NODE
            pool, node = f"pool-{self.count - at_pool}", f"node-{self.count - at_node}"
            home = "whole" if at_pool < LIVES_OF_A_POOL / 2 else pool
            if at_pool == 0:
                self.add_pool(pool)
            if at_node == 0:
                self.add_node(node, home)
            self._one(self.count)
            if at_node == LIVES_OF_A_NODE - 1:
                self.remove_node(node, home)
            if at_pool == LIVES_OF_A_POOL - 1:
                self.remove_pool(pool)
            self.count += 1

    def until_stable(self) -> None:
        """Let every deadline pass."""
        for replica in self.replicas:
            replica.pass_time(700)
        gc.collect()

    def _one(self, number: int) -> None:
        kind, name = number % 8, f"p{number}"
        for replica in self.replicas:
            replica.pass_time(self.rng.uniform(0, 1))
        body = a_pod_object(self.rng.randint(1, DEVICES), name=name)
        reply = Reply(mutate_pod(a_review(body), self.leader.admission))
        if kind == 0 or not reply.allowed:
            return  # refused after us, and never stored
        stored = reply.applied_to(body)
        stored["metadata"] |= {"uid": f"uid-{number}"}
        self._show(stored)
        if kind > 1:
            stored = self._schedule(stored)
        if kind % 2:
            self._show({**stored, "status": {"phase": "Failed"}})
        facts = pod_facts(msgspec.convert(stored, Pod))
        assert facts is not None
        for replica in self.replicas:
            replica.pods.discard(facts)

    def _show(self, stored: Json) -> None:
        facts = pod_facts(msgspec.convert(stored, Pod))
        assert facts is not None
        for replica in self.replicas:
            replica.pods.upsert(facts)

    def _schedule(self, stored: Json) -> Json:
        meta, context, binder = stored["metadata"], self.leader.scheduling, self.leader.binder
        names = [item.name for item in self.leader.allocation_state.index.nodes.values()]
        args = msgspec.json.encode({"Pod": stored, "NodeNames": names})
        fitting = msgspec.json.decode(filter_nodes(args, context).body)["NodeNames"]
        if not fitting:
            return stored
        prioritize(args, context)
        node = self.rng.choice(fitting)
        asked = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
        asyncio.run(bind(msgspec.json.encode({**asked, "Node": node}), context))
        if not binder.bindings:
            return stored
        annotations = {**meta.get("annotations", {}), **binder.bindings.pop().annotations}
        binder.bound.clear()
        self.bound += 1
        bound = {
            **stored,
            "metadata": {**meta, "annotations": annotations},
            "spec": {**stored["spec"], "nodeName": node},
        }
        self._show(bound)
        return bound


def sizes() -> Counter[str]:
    """Return the number of items in every container of the product's objects, by class and attribute."""
    found: Counter[str] = Counter()
    for object_ in gc.get_objects():
        # Of some built-in types it is no text.
        if str(type(object_).__module__).partition(".")[0] in PRODUCT:
            for attribute, value in _attributes(object_):
                found[f"{type(object_).__name__}.{attribute}"] += _length(value)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in PRODUCT:
            for attribute, value in list(vars(module).items()):
                if not attribute.startswith("__"):
                    found[f"{name}:{attribute}"] += _length(value)
    found["samples of metrics"] = sum(len(metric.samples) for metric in REGISTRY.collect())
    return found


def _attributes(one: object) -> Iterator[tuple[str, object]]:
    yield from vars(one).items() if hasattr(one, "__dict__") else ()
    for parent in type(one).__mro__:
        slots = vars(parent).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in {"__dict__", "__weakref__"} and hasattr(one, slot):
                yield slot, getattr(one, slot)


def _length(value: object, inside: frozenset[int] = frozenset()) -> int:
    """Return the number of items, of containers inside too; one that holds itself counts once."""
    if id(value) in inside:
        return 0
    within = inside | {id(value)}
    match value:
        case dict():
            return len(value) + sum(_length(item, within) for item in list(value.values()))
        case list() | set() | deque() | frozenset():
            return len(value) + sum(_length(item, within) for item in list(value))
        case _:
            return 0
