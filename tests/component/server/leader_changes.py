"""Replicas that take over from each other in virtual time, kube-scheduler, and all that may go wrong between.

A history is one seed: `TROUBLE_S` seconds of trouble, then quiet until every pod is bound. The replicas are
the server's own parts, put together as `server.process` does; only controllers and HTTP are left out. What must
hold is judged by what the API server stores, and by nothing else: no unit to two live bound pods at any moment,
and every pod bound in the end.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.annotations import decode_devices
from api.clock import Instant
from api.foreign.core import Pod
from api.names import DEVICES_ANNOTATION, POOL_LABEL, RESOURCE_PREFIX, NodeName, PodUid
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.informer import Informer, WatchTiming
from kube.leader_election import LeaderElection, LeaseTimes
from kube.resources import PODS
from manifests.install.crds import build_crds
from pool.facts import pod_facts
from reconciler.pod.binding_recovery import BindingRecovery
from reconciler.sinks.pod import PodSink
from scheduler.bind import bind_pod
from scheduler.codec import BindRequest
from scheduler.context import ExtenderContext
from scheduler.ports import PodRef
from server.binder import KubeBinder
from server.leadership.bound_pods import BoundPods
from server.leadership.fence import Fence
from server.leadership.restored_store import RestoredStore
from server.leadership.takeover import Takeover
from server.reservations.ids import ReservationIds
from server.shutdown import drain
from tests.support.allocation_state import some_allocation_state, some_devices
from tests.support.in_process_api import InProcessApi, Wire
from tests.support.loop_clock import LoopClock
from tests.support.polling import until

if TYPE_CHECKING:
    from pool.model import PodFacts

TROUBLE_S: Final = 40.0
CALM_S: Final = 400.0
"""Longer than a doubt (60 s), a Lease and a backoff (30 s) take one after the other, with a margin."""
REPLICAS: Final = 3
NODES: Final = ("n1", "n2")
DEVICES: Final = 3
PODS_AT_ONCE: Final = (2 * DEVICES - 2, 2 * DEVICES + 2)
"""From room for all to two that wait."""
USUAL: Final = (0.05, 0.02)
"""Shares of requests that are late and lost, as long as a history lasts."""
LEADERLESS_S: Final = 60.0
"""A Lease lasts 16 s at most, and the takeover's requests may be late."""
HTTP_TIMEOUT_S: Final = 5.0
"""kube-scheduler's."""
TERM = "engine"
_PODS = "/api/v1/namespaces/default/pods"

Job = Callable[..., Coroutine[Any, Any, None]]


class ViolationError(AssertionError):
    """Something that must never be; the text has what happened before it."""


class _LeaseLostError(Exception):
    pass


class OfOneOpinion:
    """The pods' sink without the mend of a list that is older than a read: it is not told of lists."""

    def __init__(self, sink: BoundPods) -> None:
        self.replace_all: Callable[[Sequence[PodFacts]], None] = sink.replace_all
        self.replace_in_steps: Callable[[Sequence[PodFacts]], Iterator[None]] = (
            sink.replace_in_steps
        )
        self.upsert = sink.upsert
        self.discard = sink.discard


class LeaderFaults(msgspec.Struct, frozen=True):
    """What is left out, to see that it is missed."""

    lists_undo_reads: bool = False
    no_read: bool = False


class Replica:
    """One server process; `plane` is what `server.shutdown.drain` knows of it."""

    def __init__(
        self,
        name: str,
        api: InProcessApi,
        *,
        requests: asyncio.TaskGroup,
        rng: random.Random,
        defects: LeaderFaults,
    ) -> None:
        self.name = name
        clock = LoopClock(rate=rng.uniform(0.93, 1.07), offset_s=rng.uniform(0, 1e6))
        clock.wall_offset_s = rng.uniform(-300, 300)
        self.clock = clock
        self.wire = Wire(api, rng, requests)
        self.wire.late, self.wire.lost = USUAL
        client = KubeClient(StaticConnection(""), clock, make_transport=lambda *_, **__: self.wire)
        self._client = client
        self.allocation_state = some_allocation_state(
            devices=[device for node in NODES for device in some_devices(DEVICES, node)]
        )
        bound = BoundPods(client, PodSink(self.allocation_state, self._now))
        self.informer = Informer(
            client,
            PODS,
            Pod,
            sink=OfOneOpinion(bound) if defects.lists_undo_reads else bound,
            clock=clock,
            project=pod_facts,
            timing=WatchTiming(later_page=2),
            rng=rng,
        )
        terms = LeaseTimes(namespace="default", name=TERM)
        self.election = LeaderElection(client, clock, terms, identity=name, rng=rng)
        self.restored_store = RestoredStore(
            self.election, [self.informer], allocation_state=self.allocation_state, bound_pods=bound
        )
        self.takeover = Takeover(
            self.election,
            Fence(client, TERM, self.election.identity),
            _nothing if defects.no_read else self.restored_store.catch_up,
            wait_s=0.5,
            rng=rng,
        )
        self.context = ExtenderContext(
            index=self.allocation_state.index,
            reader=self.allocation_state.reader,
            allocation_state=self.allocation_state,
            binder=KubeBinder(client, on_forbidden=self.takeover.request_check),
            new_id=ReservationIds(),
            now=self._now,
            is_ready=self.takeover.decides,
            leader=self.takeover.token,
            on_restore=self.election.report_restore,
        )
        # What draining asks for beside the parts above.
        self.settings = SimpleNamespace(
            drain_s=1.0,
            leadership=SimpleNamespace(enabled=True),
        )
        self.readiness = SimpleNamespace(is_handing_over=False, is_stopping=False)
        self._lost = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        async with self._client, asyncio.TaskGroup() as group:
            group.create_task(self.informer.run())
            await self.informer.synced.wait()
            group.create_task(self.election.run(self._lost.clear, self._lost.set))
            while True:
                await self.takeover.take_over()
                self._idle.clear()
                try:
                    await self._act()
                except* _LeaseLostError:
                    pass
                finally:
                    self._idle.set()

    async def stop_acting(self) -> None:
        self._lost.set()
        await self._idle.wait()

    async def drain(self) -> None:
        await drain(self)  # type: ignore[arg-type]  # what it asks of a plane is here

    async def _act(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(BindingRecovery(self.context).run())
            group.create_task(self._until_overtaken())
            await self._lost.wait()
            raise _LeaseLostError

    async def _until_overtaken(self) -> None:
        await self.takeover.until_overtaken()
        raise _LeaseLostError

    def _now(self) -> Instant:
        return Instant(self.clock.monotonic(), self.clock.utc_now())


async def _nothing() -> None:
    return


class World:
    """One history."""

    def __init__(self, seed: int, defects: LeaderFaults, group: asyncio.TaskGroup) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.api = InProcessApi(self.rng)
        self.api.on_bound = self._judge
        self.defects = defects
        self.group = group
        self.replicas: dict[Replica, asyncio.Task[None]] = {}
        self.steps: list[str] = []
        self.bindings = 0
        self.takeovers: Counter[str] = Counter()
        self._number = 0
        self._pods = 0
        self._leader: Replica | None = None
        self._led_at = 0.0

    # --- judged by what is stored ------------------------------------------------------------------

    def stored(self) -> list[Pod]:
        return [msgspec.convert(body, Pod) for body in self.api.pods()]

    def _judge(self) -> None:
        self.bindings += 1
        owners: dict[str, str] = {}
        for pod in self.stored():
            if not pod.spec.node_name or pod.is_terminal:
                continue
            placed = decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) or {}
            for unit in (unit for units in placed.values() for unit in units):
                other = owners.setdefault(unit, pod.metadata.name)
                if other != pod.metadata.name:
                    self.violated(f"{unit} to {other} and to {pod.metadata.name}")

    def violated(self, what: str) -> None:
        recent = "\n".join(self.steps[-40:])
        raise ViolationError(f"seed {self.seed}: {what}, after\n{recent}")

    def say(self, what: str) -> None:
        self.steps.append(f"{asyncio.get_running_loop().time():8.3f} {what}")

    def start(self, job: Job, *args: Any) -> asyncio.Task[None]:
        return self.group.create_task(_until_cancelled(job, *args))

    # --- who runs ----------------------------------------------------------------------------------

    def start_replica(self) -> None:
        self._number += 1
        replica = Replica(
            f"r{self._number}", self.api, requests=self.group, rng=self.rng, defects=self.defects
        )
        self.replicas[replica] = self.start(replica.run)

    def stop(self, replica: Replica) -> None:
        task = self.replicas.pop(replica, None)
        if task is not None:
            task.cancel()
            replica.wire.drop_watches()

    def leader(self) -> Replica | None:
        leader = next((replica for replica in self.replicas if replica.takeover.decides()), None)
        if leader is not None and leader is not self._leader:
            self._leader = leader
            self.takeovers[leader.name] += 1
            self.say(f"{leader.name} decides")
        return leader

    # --- kube-scheduler and its users ----------------------------------------------------------------

    async def users(self, until_s: float) -> None:
        """Create pods, and end each in one way or another some time later."""
        loop, limit = asyncio.get_running_loop(), self.rng.randint(*PODS_AT_ONCE)
        while loop.time() < until_s:
            await asyncio.sleep(self.rng.uniform(0.02, 0.3))
            if len([pod for pod in self.stored() if not pod.is_terminal]) < limit:
                self.create_pod()

    def create_pod(self) -> None:
        self._pods += 1
        _ = self.start(self._live, f"p{self._pods}")

    async def _live(self, name: str) -> None:
        await self.api.admin("POST", _PODS, a_pod(name, has_label=self.rng.random() < 0.7))
        await asyncio.sleep(self.rng.uniform(1, 8))
        if self.rng.random() < 0.5:
            path = f"{_PODS}/{name}/status"
            await self.api.admin("PATCH", path, {"status": {"phase": "Succeeded"}})
            self.say(f"{name} ends")
            await asyncio.sleep(self.rng.uniform(0.1, 5))
        await self.api.admin("DELETE", f"{_PODS}/{name}", {"gracePeriodSeconds": 0})
        self.say(f"{name} is deleted")

    async def schedule(self) -> None:
        """Ask for a bind of every pending pod, again and again, mostly of who leads."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.05, 0.3))
            leader = self.leader()
            now = asyncio.get_running_loop().time()
            if leader is not None:
                self._led_at = now
            elif now - self._led_at > LEADERLESS_S:
                self.violated(f"nobody leads since {self._led_at:.0f} s")
            for pod in self.stored():
                if pod.spec.node_name or pod.is_terminal or self.rng.random() < 0.3:
                    continue
                asked = leader if self.rng.random() < 0.9 else self.rng.choice([*self.replicas])
                if asked is not None:
                    _ = self.start(self._bind, pod, asked)

    async def _bind(self, pod: Pod, replica: Replica) -> None:
        facts = pod_facts(pod)
        assert facts is not None
        uid = PodUid(pod.metadata.uid)
        replica.context.recent.record_demand(uid, facts.demand)
        ref = PodRef("default", pod.metadata.name, uid)
        node = NodeName(self.rng.choice(NODES))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HTTP_TIMEOUT_S):
                bound = await bind_pod(BindRequest(ref, node), replica.context)
                if bound.reservation is not None:
                    placed = bound.reservation.devices
                    self.say(f"{replica.name}: {ref.name} to {node}, {placed}: {bound.outcome}")

    # --- trouble -----------------------------------------------------------------------------------

    async def trouble(self, until_s: float) -> None:
        loop = asyncio.get_running_loop()
        others = [self.compact, self.hand_over, self.kill, self.cut_off, self.lag, self.slow_down]
        # Half of the time it is the one that has most at once.
        troubles = [*others, *[self.restart] * len(others)]
        while loop.time() < until_s:
            await asyncio.sleep(self.rng.uniform(0.2, 4))
            trouble = self.rng.choice(troubles)
            self.say(trouble.__name__)
            await trouble()
        for replica in self.replicas:
            _calm(replica)
        while len(self.replicas) < REPLICAS:
            self.start_replica()

    async def compact(self) -> None:
        """Have every watch end with 410; the lists that follow are slow, and so are the watches."""
        for replica in self.replicas:
            replica.wire.page_s = self.rng.uniform(0, 3)
            replica.wire.lag_s = self.rng.uniform(0, 3)
            replica.wire.drop_watches()
        await asyncio.sleep(self.rng.uniform(0, 0.2))
        # A change first: who has seen everything needs no history.
        await self.api.admin("POST", _PODS, a_pod("nothing", units=0))
        await self.api.admin("DELETE", f"{_PODS}/nothing", {"gracePeriodSeconds": 0})
        self.api.forget_history()

    async def restart(self) -> None:
        """Compact, and take the leader away while others fetch their lists and pods are bound."""
        await self.compact()
        await self._until(lambda: self._are_listing() > 1)
        self.create_pod()
        await asyncio.sleep(self.rng.uniform(0.2, 1))
        await self.rng.choice([self.hand_over, self.hand_over, self.kill])()
        # Another compaction would end the lists.
        await self._until(lambda: not self._are_listing())

    def _are_listing(self) -> int:
        return sum(replica.wire.pages_under_way > 0 for replica in self.replicas)

    async def _until(self, holds: Callable[[], bool]) -> None:
        with contextlib.suppress(TimeoutError):
            await until(holds, within_s=8)

    async def hand_over(self) -> None:
        leader = self.leader()
        if leader is not None:
            _ = self.start(self._replace, leader)

    async def _replace(self, leader: Replica) -> None:
        await leader.drain()
        self.stop(leader)
        self.say(f"{leader.name} has left")
        await asyncio.sleep(self.rng.uniform(0, 2))
        self.start_replica()

    async def kill(self) -> None:
        """End a process at once; what it sent goes on."""
        victim = self.leader() or self.rng.choice([*self.replicas])
        self.stop(victim)
        self.start_replica()

    async def slow_down(self) -> None:
        """Have every request take seconds, so that the leader asks for longer, and then end it."""
        call_s = self.rng.uniform(0.5, 3)
        for replica in self.replicas:
            replica.wire.call_s = call_s
        await asyncio.sleep(self.rng.uniform(4, 8))
        for replica in self.replicas:
            replica.wire.call_s = 0.0
        await self.kill()

    async def cut_off(self) -> None:
        wire = self.rng.choice([*self.replicas]).wire
        wire.is_cut = True
        wire.drop_watches()
        await asyncio.sleep(self.rng.uniform(0.5, 6))
        wire.is_cut = False

    async def lag(self) -> None:
        for replica in self.replicas:
            replica.wire.lag_s = self.rng.choice([0.0, 0.5, 4.0])

    async def play(self) -> None:
        (term,) = (crd for crd in build_crds() if crd["spec"]["names"]["kind"].endswith("Term"))
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await self.api.admin("POST", path, term)
        for _ in range(REPLICAS):
            self.start_replica()
        ends_at = asyncio.get_running_loop().time() + TROUBLE_S
        scheduling = self.start(self.schedule)
        users = self.group.create_task(self.users(ends_at))
        await self.trouble(ends_at)
        self._led_at = asyncio.get_running_loop().time()
        await users
        try:
            async with asyncio.timeout(CALM_S):
                while self._waiting():  # noqa: ASYNC110  # the store is plain values
                    await asyncio.sleep(0.5)
        except TimeoutError:
            self.violated(f"never bound: {self._waiting()}")
        scheduling.cancel()

    def _waiting(self) -> list[str]:
        return [
            item.metadata.name
            for item in self.stored()
            if not (item.spec.node_name or item.is_terminal)
        ]


def a_pod(name: str, *, units: int = 1, has_label: bool = True) -> dict[str, Any]:
    """Return a pod; one that was made around our webhooks has no label of its pool."""
    resources = {"limits": {f"{RESOURCE_PREFIX}whole": units}} if units else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {POOL_LABEL: "whole"} if has_label else {},
        },
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    }


def _calm(replica: Replica) -> None:
    wire = replica.wire
    wire.call_s = wire.page_s = wire.lag_s = 0.0
    wire.is_cut = False


async def _until_cancelled(job: Job, *args: Any) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await job(*args)


async def play(seed: int, defects: LeaderFaults) -> World:
    """Play a history to its end.

    Raises:
        Violated: something happened that must not.
    """
    world: World | None = None
    try:
        async with asyncio.TaskGroup() as group:
            world = World(seed, defects, group)
            async with world.api:
                await world.play()
            # What is under way is of no interest any more.
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
    except* ViolationError as group_of:
        raise _first(group_of) from None
    assert world is not None
    return world


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
