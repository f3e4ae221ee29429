"""etcd is restored from a backup while replicas run on: what they give out is judged by what is stored."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from api.annotations import decode_devices
from api.foreign.core import Namespace, Pod
from api.meta import ObjectMeta
from api.names import DEVICES_ANNOTATION, NodeName, PodUid
from kube.event_source import EventSource
from manifests.install.crds import build_crds
from pool.allocation_state import AllocationState
from pool.facts import pod_facts
from scheduler.bind import Bound, bind_pod
from scheduler.codec import BindRequest
from scheduler.outcome import Outcome
from scheduler.ports import PodRef
from server.leadership.restored_store import RestoredStore
from simulator.apiserver.store.objects import StoreBackup
from tests.component.server.leader_changes import DEVICES, TERM, LeaderFaults, Replica, World, a_pod
from tests.support.polling import until

pytestmark = pytest.mark.looptime

_PODS = "/api/v1/namespaces/default/pods"
_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{TERM}"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class RestoredWorld(World):
    """Replicas without trouble, pods by name, and an etcd with backups."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        super().__init__(1, LeaderFaults(), group)
        self.api.on_bound = lambda: None

    def add_replica(self) -> Replica:
        self.start_replica()
        replica = [*self.replicas][-1]
        replica.wire.late = replica.wire.lost = 0.0
        return replica

    async def begin(self, replicas: int) -> None:
        (term,) = (crd for crd in build_crds() if crd["spec"]["names"]["kind"].endswith("Term"))
        await self.api.admin("POST", _DEFINITIONS, term)
        for _ in range(replicas):
            self.add_replica()
        await self.until_led()

    async def until_led(self, *, by_other_than: Replica | None = None) -> Replica:
        await until(lambda: self.leader() not in {None, by_other_than}, within_s=120)
        leader = self.leader()
        assert leader is not None
        return leader

    async def create(self, *names: str) -> None:
        for name in names:
            await self.api.admin("POST", _PODS, a_pod(name))
        await asyncio.sleep(0.5)

    async def delete(self, *names: str) -> None:
        for name in names:
            await self.api.admin("DELETE", f"{_PODS}/{name}", {"gracePeriodSeconds": 0})
        await asyncio.sleep(0.5)

    async def pass_time(self, seconds: float = 1.0) -> None:
        """Let versions grow by pods that come and go, and the clock go on."""
        names = [f"passing-{number}" for number in range(25)]
        await self.create(*names)
        await self.delete(*names)
        await asyncio.sleep(seconds)

    def pod(self, name: str) -> Pod:
        return next(pod for pod in self.stored() if pod.metadata.name == name)

    async def bind(self, name: str, node: str = "n1", *, then_s: float = 0.5) -> Bound:
        """Ask the leader, as kube-scheduler does, and let time pass."""
        leader = await self.until_led()
        pod = self.pod(name)
        facts, uid = pod_facts(pod), PodUid(pod.metadata.uid)
        assert facts is not None
        leader.context.recent.record_demand(uid, facts.demand)
        request = BindRequest(PodRef("default", name, uid), NodeName(node))
        bound = await bind_pod(request, leader.context)
        await asyncio.sleep(then_s)
        return bound

    def restore(self, backup: StoreBackup) -> None:
        """Restore the backup; API servers were restarted, so that every watch is opened again."""
        self.api.restore(backup)
        for replica in self.replicas:
            replica.wire.drop_watches()

    async def cut(self, replica: Replica, seconds: float) -> None:
        replica.wire.is_cut = True
        replica.wire.drop_watches()
        await asyncio.sleep(seconds)
        replica.wire.is_cut = False

    async def fill(self) -> None:
        """Bind as many pods as there are devices on the node, if they may have all."""
        names = [f"new-{number}" for number in range(DEVICES)]
        await self.create(*names)
        for name in names:
            await self.bind(name)

    async def lease_version(self) -> str:
        lease = await self.api.admin("GET", _LEASE)
        return str(lease["metadata"]["resourceVersion"])

    def units_given_twice(self) -> list[str]:
        units = [
            unit
            for pod in self.stored()
            if pod.spec.node_name
            for placed in (
                decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) or {}
            ).values()
            for unit in placed
        ]
        return sorted({unit for unit in units if units.count(unit) > 1})


@asynccontextmanager
async def a_world(replicas: int = 1) -> AsyncIterator[RestoredWorld]:
    async with asyncio.TaskGroup() as group:
        world = RestoredWorld(group)
        async with world.api:
            await world.begin(replicas)
            try:
                yield world
            finally:
                for replica in [*world.replicas]:
                    world.stop(replica)


async def with_an_ended_pod(world: RestoredWorld) -> StoreBackup:
    """Return a backup in which a pod is bound that has ended since."""
    await world.create("old")
    assert (await world.bind("old")).outcome is Outcome.BOUND
    backup = world.api.snapshot()
    await world.delete("old")
    await world.pass_time()
    return backup


@pytest.mark.parametrize("later_s", [0.0, 60.0])
async def test_leader_gives_no_device_of_a_pod_that_came_back(later_s: float) -> None:
    async with a_world() as world:
        backup = await with_an_ended_pod(world)
        world.restore(backup)
        await world.pass_time(later_s)
        await world.fill()
        assert world.units_given_twice() == []


async def test_after_an_outage_no_device_of_a_pod_that_came_back_is_given() -> None:
    async with a_world() as world:
        backup = await with_an_ended_pod(world)
        (replica,) = world.replicas
        replica.wire.is_cut = True
        world.restore(backup)
        await asyncio.sleep(60)
        replica.wire.is_cut = False
        await world.fill()
        assert world.units_given_twice() == []


async def test_standby_that_led_at_the_backup_lists_before_it_decides() -> None:
    async with a_world(2) as world:
        first = await world.until_led()
        await world.create("old")
        assert (await world.bind("old")).outcome is Outcome.BOUND
        backup = world.api.snapshot()
        await world.cut(first, 6)
        await world.until_led(by_other_than=first)
        await asyncio.sleep(10)  # the first one has read the Lease of the second
        await world.delete("old")
        await world.pass_time()
        terms = [replica.election.term for replica in world.replicas]
        world.restore(backup)
        await world.fill()
        leader = await world.until_led()
        assert world.units_given_twice() == []
        assert leader.election.term not in terms


async def test_no_two_replicas_decide_after_a_restore() -> None:
    async with a_world(2) as world:
        first = await world.until_led()
        backup = world.api.snapshot()
        await world.cut(first, 6)
        second = await world.until_led(by_other_than=first)
        await asyncio.sleep(8)
        world.restore(backup)
        for _ in range(400):
            assert not (first.takeover.decides() and second.takeover.decides())
            await asyncio.sleep(0.01)
        await world.until_led()


async def test_pod_that_is_pending_again_is_bound() -> None:
    async with a_world() as world:
        await world.create("pod")
        backup = world.api.snapshot()
        assert (await world.bind("pod")).outcome is Outcome.BOUND
        world.restore(backup)
        await asyncio.sleep(5)
        bound = await world.bind("pod", "n2")
        assert (bound.outcome, world.pod("pod").spec.node_name) == (Outcome.BOUND, "n2")


async def test_pod_that_is_pending_again_is_bound_where_no_lease_was_written_since_the_backup() -> (
    None
):
    async with a_world() as world:
        for name in (f"pod-{number}" for number in range(20)):
            await world.create(name)
            backup, version = world.api.snapshot(), await world.lease_version()
            assert (await world.bind(name, then_s=0)).outcome is Outcome.BOUND
            if await world.lease_version() == version:
                break
            await world.delete(name)
        else:
            pytest.fail("the Lease was renewed in every moment")
        world.restore(backup)
        assert (await world.bind(name)).outcome is Outcome.REFUSED
        bound = await world.bind(name, "n2")
        assert (bound.outcome, world.pod(name).spec.node_name) == (Outcome.BOUND, "n2")


async def test_units_of_pods_that_vanished_are_free_to_a_standby() -> None:
    async with a_world(2) as world:
        backup = world.api.snapshot()
        await world.fill()
        await world.pass_time()
        world.restore(backup)
        world.stop(await world.until_led())
        await world.pass_time(20)
        await world.create("next")
        assert (await world.bind("next")).outcome is Outcome.BOUND


async def test_restored_lease_is_led_under_a_new_term_after_its_duration() -> None:
    async with a_world() as world:
        leader = await world.until_led()
        backup = world.api.snapshot()
        before, token = leader.election.term, leader.takeover.token()
        await world.pass_time()
        world.restore(backup)
        await asyncio.sleep(1)
        assert not leader.takeover.decides()
        await asyncio.sleep(4)
        assert leader.takeover.decides()
        assert leader.election.term is not before
        assert leader.takeover.token() != token


async def test_another_cluster_under_the_same_address_ends_the_term() -> None:
    async with a_world() as world:
        leader = await world.until_led()
        store = leader.restored_store
        namespaces = [
            Namespace(metadata=ObjectMeta(name="kube-system", uid=uid)) for uid in ("a", "b")
        ]
        store.observe_namespace(namespaces[0])
        store.observe_namespace(namespaces[0])
        assert leader.takeover.decides()
        store.observe_namespace(namespaces[1])
        assert not leader.takeover.decides()
        await asyncio.sleep(5)
        assert leader.takeover.decides()


async def test_replica_that_listed_before_the_restore_and_read_the_lease_after_it_lists_again() -> (
    None
):
    async with a_world() as world:
        backup = world.api.snapshot()
        await world.fill()
        world.stop(await world.until_led())
        replica = world.add_replica()
        await replica.informer.synced.wait()
        replica.wire.is_cut = True
        world.restore(backup)
        await asyncio.sleep(1)
        replica.wire.is_cut = False
        await world.create("next")
        assert (await world.bind("next")).outcome is Outcome.BOUND


class ListedDouble:
    version = "5"

    def __init__(self) -> None:
        self.listed = asyncio.Event()


class BoundPodsDouble:
    is_read = False

    async def read(self) -> str:
        self.is_read = True
        return "5"


async def test_nobody_takes_over_before_all_lists_and_then_reads_bound_pods() -> None:
    election: Any = SimpleNamespace(store_restored=EventSource())
    informers: Any = [ListedDouble(), ListedDouble()]
    bound_pods: Any = BoundPodsDouble()
    store = RestoredStore(
        election, informers, allocation_state=AllocationState(), bound_pods=bound_pods
    )
    async with asyncio.TaskGroup() as group:
        catching_up = group.create_task(store.catch_up())
        for informer in informers:
            await asyncio.sleep(1)
            assert not catching_up.done()
            assert not bound_pods.is_read
            informer.listed.set()
    assert bound_pods.is_read
