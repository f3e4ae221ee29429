"""Random days of demand on pools that scale, lived through on the cluster of `scaling_double`.

*Too many* is a NodeClaim that was asked for beyond the fewest nodes that could hold the pods which waited then, beside
the nodes on their way and the free units of those that there were (`node_bound`); and a second NodeClaim of one
request. *Unused* is a node that came, and that no pod used: other pods had ended meanwhile, or pods were deleted.
Watches show both: nothing of the server is asked.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, final

from api.foreign.core import Node, Pod
from api.foreign.karpenter import DISRUPTED_TAINT, NodeClaim
from api.meta import ObjectMeta
from api.names import (
    AGENT_NOT_READY_TAINT,
    SCALE_DEVICES_ANNOTATION,
    SCALE_REQUEST_LABEL,
    SCALING_POOL_LABEL,
)
from kube.informer import Informer
from kube.resources import NODE_CLAIMS, NODES, PODS, Resource
from kube.store import IndexedStore
from simulator.karpenter.fake_karpenter import KarpenterTimes
from tests.support.node_bound import surplus
from tests.support.random_day import PodLife, RandomDay, random_day
from tests.support.scaling_double import SERVER, DoubleCluster, a_scaling_cluster
from tests.support.scaling_stories import POOL_LABEL, Measurement, ScalingPool, check_units, shape

POLL_S: Final = 0.5
WITHIN_S: Final = 3_600.0
"""Of a day and its evening. A shape that fails is left alone for minutes, up to half an hour."""
EMPTY_NODE_S: Final = 20
"""consolidateAfter of the NodePools; Karpenter takes up to 25 s more."""
SLICES: Final = 4
"""Units of a device. Each device has objects of its own: fewer of them make a day cheaper, and no difference to packing."""
URGENT: Final = "urgent"
PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
SELDOM: Final[dict[str, Any]] = {
    "tls": {**SERVER["tls"], "check_every_s": 60.0},
    "bootstrap": {"period_s": 30.0},
    "health": {"period_s": 30.0},
    "leadership": {"duration_s": 60.0},
}
"""Of the server's settings: periods that have nothing to do with demand, and would cost most of the time."""


@dataclasses.dataclass(slots=True)
class DayFigures:
    """What became of days."""

    pods: int = 0
    claims: int = 0
    """NodeClaims that were made."""
    too_many: int = 0
    unused: int = 0
    failed: int = 0
    """NodeClaims that no node came of."""

    def add(self, other: "DayFigures") -> None:
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class _Named(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


def _pool_of(item: _Named) -> str:
    """Return the pool of a pod, a signal, a NodeClaim or a Node."""
    return item.metadata.label(POOL_LABEL) or item.metadata.label(SCALING_POOL_LABEL) or ""


def _name_of(item: _Named) -> str:
    return item.metadata.name


@final
class WatchedPools:
    """Pods, signals, NodeClaims and Nodes of all pools, as watches show them."""

    def __init__(self, cluster: DoubleCluster) -> None:
        self.pods: IndexedStore[str, str, Pod] = IndexedStore(_name_of, _pool_of)
        self.claims: IndexedStore[str, str, NodeClaim] = IndexedStore(_name_of, _pool_of)
        self.nodes: IndexedStore[str, str, Node] = IndexedStore(_name_of, _pool_of)
        client, clock = cluster.client, cluster.clock
        self.informers: tuple[Informer[Any], ...] = (
            Informer(client, PODS, Pod, sink=self.pods, clock=clock),
            Informer(client, NODE_CLAIMS, NodeClaim, sink=self.claims, clock=clock),
            Informer(client, NODES, Node, sink=self.nodes, clock=clock),
        )


@final
class NodeTally:
    """Counts the NodeClaims of one pool, and judges them when they are asked for."""

    def __init__(self, pool: str, watched: WatchedPools, figures: DayFigures) -> None:
        self._pool = pool
        self._watched = watched
        self._figures = figures
        self._units: dict[str, int] = {}
        # request -> units of its node; of all requests that there were
        self._surplus: set[str] = set()
        # requests beyond the need
        self._claims: dict[str, tuple[str, str]] = {}
        # uid of a NodeClaim that exists -> its request and its node
        self._used: set[str] = set()
        # nodes that had a pod

    @property
    def pods(self) -> dict[str, Pod]:
        """The pool's pods that are not ending, by name."""
        return {
            name: pod
            for name, pod in self._watched.pods.of(self._pool).items()
            if not _is_signal(pod) and pod.metadata.deletion_timestamp is None
        }

    @property
    def is_empty(self) -> bool:
        watched = self._watched
        return not any(
            item.of(self._pool) for item in (watched.pods, watched.claims, watched.nodes)
        )

    def sample(self, units_of: dict[str, int]) -> None:
        """Judge the requests that are new, and count NodeClaims; the units are those of the pods by name."""
        pods = self.pods
        self._used |= {pod.spec.node_name for pod in pods.values() if pod.spec.node_name}
        waiting = [units_of[name] for name, pod in pods.items() if not pod.spec.node_name]
        self._judge(waiting, list(self._free(pods, units_of)))
        self._count()

    def _judge(self, waiting: list[int], free: list[int]) -> None:
        signals = {
            _request_of(pod): _units_of(pod)
            for pod in self._watched.pods.of(self._pool).values()
            if _is_signal(pod) and pod.metadata.deletion_timestamp is None
        }
        new = sorted(signals.keys() - self._units.keys(), key=lambda item: (-signals[item], item))
        self._units |= signals
        if new:
            coming = (signals.keys() | self._launched()) - set(new)
            others = free + [self._units[item] for item in coming]
            count = surplus(waiting, [signals[item] for item in new], others)
            self._surplus |= set(new[len(new) - count :])

    def _launched(self) -> set[str]:
        """Return the requests that have a NodeClaim, and no node that pods may use yet."""
        nodes = self._watched.nodes.of(self._pool)
        return {
            _request_of(claim)
            for claim in self._watched.claims.of(self._pool).values()
            if claim.metadata.deletion_timestamp is None
            and not ((node := nodes.get(claim.status.node_name)) and _has_no_taint(node))
        }

    def _free(self, pods: dict[str, Pod], units_of: dict[str, int]) -> Iterator[int]:
        """Yield the free units of each node that pods may use."""
        for name, node in self._watched.nodes.of(self._pool).items():
            if node.metadata.deletion_timestamp is None and _has_no_taint(node):
                bound = (item for item, pod in pods.items() if pod.spec.node_name == name)
                yield self._units[_request_of(node)] - sum(units_of[item] for item in bound)

    def _count(self) -> None:
        figures = self._figures
        there = self._watched.claims.of(self._pool)
        live = {item.metadata.uid: item for item in there.values()}
        for uid in self._claims.keys() - live.keys():
            _, node = self._claims.pop(uid)
            figures.failed += not node
            figures.unused += bool(node) and node not in self._used
        for uid, claim in live.items():
            request = _request_of(claim)
            if uid not in self._claims:
                figures.claims += 1
                is_second = any(request == other for other, _ in self._claims.values())
                figures.too_many += is_second or request in self._surplus
            self._claims[uid] = (request, claim.status.node_name)


@final
class LivedDay:
    """A random day on a pool of its own."""

    def __init__(self, cluster: DoubleCluster, watched: WatchedPools, day: RandomDay) -> None:
        self.figures = DayFigures()
        self._day = day
        self._cluster = cluster
        self._pool = ScalingPool(cluster, f"day-{day.seed}")
        self._tally = NodeTally(self._pool.name, watched, self.figures)
        self._bursts = list(day.bursts)
        self._lives: dict[str, PodLife] = {}
        self._units: dict[str, int] = {}
        # of every pod that there was
        self._ends: dict[str, float] = {}
        # pod -> when it ends, or vanishes; missing: not bound yet
        self._bound: set[str] = set()

    async def live(self) -> DayFigures:
        """Live through the day, and on until nothing is left of it."""
        node_pool = await self._open()
        async with asyncio.timeout(WITHIN_S):
            began = asyncio.get_running_loop().time()
            while self._bursts or self._waiting():
                await self._pass(asyncio.get_running_loop().time() - began, node_pool)
            await self._check_evening()
            while self._lives or not self._tally.is_empty:
                await self._pass(asyncio.get_running_loop().time() - began, node_pool)
        await self._close()
        return self.figures

    async def _open(self) -> str:
        pool, devices = self._pool, [units // SLICES for units in self._day.shapes]
        types = {device: f"gpu-{device}x" for device in devices}
        after = f"{EMPTY_NODE_S}s"
        node_pool = await pool.create_node_pool("any", *types.values(), consolidate_after=after)
        shapes = [
            shape(f"s{device}", device, types[device], nodePool=node_pool) for device in devices
        ]
        await pool.create(shapes, allocation={"mode": "TimeSlice", "slicesPerDevice": SLICES})
        return node_pool

    async def _pass(self, now_s: float, node_pool: str) -> None:
        """Look, before the demand changes; then change it, and let some time go by."""
        self._tally.sample(self._units)
        self._start_pods(now_s)
        await self._end_pods(now_s)
        if self._day.outage is not None:
            begins, ends = self._day.outage
            is_over = not begins <= now_s < ends
            await self._cluster.set_capacity(node_pool, is_available=is_over)
        while self._bursts and self._bursts[0].at_s <= now_s:
            burst = self._bursts.pop(0)
            await self._cluster.set_nodes(node_pool, devices_after_s=burst.devices_after_s)
            async with asyncio.TaskGroup() as group:
                for life in burst.pods:
                    group.create_task(self._create_pod(life, now_s))
        await asyncio.sleep(POLL_S)

    async def _create_pod(self, life: PodLife, now_s: float) -> None:
        self.figures.pods += 1
        name = f"{self._pool.name}-p{self.figures.pods}"
        self._lives[name], self._units[name] = life, life.units
        if life.vanishes_after_s is not None:
            self._ends[name] = now_s + life.vanishes_after_s
        more = {"priorityClassName": URGENT} if life.is_urgent else {}
        await self._pool.create_pod(name, life.units, **more)

    def _start_pods(self, now_s: float) -> None:
        """Note the pods that are bound by now."""
        pods = self._tally.pods
        bound = {item for item, pod in pods.items() if pod.spec.node_name} & self._lives.keys()
        if bound - self._bound:
            check_units(pods.values())
        for name in bound - self._bound:
            self._bound.add(name)
            self._ends[name] = now_s + self._lives[name].runs_s

    async def _end_pods(self, now_s: float) -> None:
        over = [name for name, ends_s in self._ends.items() if ends_s <= now_s]
        for name in over:
            del self._ends[name], self._lives[name]
        await self._pool.delete_pods(*over)

    def _waiting(self) -> set[str]:
        return self._lives.keys() - self._bound

    async def _check_evening(self) -> None:
        """Check that no signal, gate or reservation is left once every pod has its units."""
        units = sum(life.units for life in self._lives.values())
        await self._pool.until(
            "no signal, gate or reservation is left",
            lambda seen: (
                not seen.signals
                and sorted(self._lives) == seen.bound == sorted(seen.pods)
                and not seen.gated
                and _reserved_and_used(seen) == (0, units)
            ),
        )

    async def _close(self) -> None:
        await self._pool.until(
            "no unit is left",
            lambda seen: not seen.pool.status.capacity.total and not seen.scaling.requests,
        )
        await self._pool.delete()
        await self._pool.delete_node_pools()


async def live_days(folder: Path, seeds: Iterable[int], *, at_once: int) -> list[DayFigures]:
    """Live through the days of these seeds, so many at a time; return the figures of each."""
    lived: list[DayFigures] = []
    left = iter(seeds)
    async with _a_cluster_for_days(folder) as (cluster, watched):

        async def days() -> None:
            for seed in left:
                day = LivedDay(cluster, watched, random_day(seed))
                lived.append(await day.live())

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(at_once):
                    group.create_task(days(), name=f"days/{number}")
        finally:
            assert not cluster.server.is_over, cluster.server.ended
    return lived


@asynccontextmanager
async def _a_cluster_for_days(folder: Path) -> AsyncIterator[tuple[DoubleCluster, WatchedPools]]:
    async with a_scaling_cluster(folder, KarpenterTimes(poll_s=POLL_S), SELDOM) as cluster:
        body = {"metadata": {"name": URGENT}, "value": 10, "preemptionPolicy": "Never"}
        head = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind}
        await cluster.client.create(PRIORITY_CLASSES, head | body)
        watched = WatchedPools(cluster)
        for number, informer in enumerate(watched.informers):
            cluster.start(f"watched/{number}", informer.run())
        for informer in watched.informers:
            await informer.synced.wait()
        yield cluster, watched


def _is_signal(pod: Pod) -> bool:
    return pod.metadata.label(SCALING_POOL_LABEL) is not None


def _units_of(signal: Pod) -> int:
    return SLICES * int(signal.metadata.annotation(SCALE_DEVICES_ANNOTATION) or 0)


def _request_of(item: _Named) -> str:
    return item.metadata.label(SCALE_REQUEST_LABEL) or ""


def _has_no_taint(node: Node) -> bool:
    return not any(
        taint.key in {AGENT_NOT_READY_TAINT, DISRUPTED_TAINT} for taint in node.spec.taints or ()
    )


def _reserved_and_used(seen: Measurement) -> tuple[int, int]:
    capacity = seen.pool.status.capacity
    return capacity.reserved, capacity.used
