"""`pod.access`: workloads whose access ends are told of while their pods run."""

import asyncio
from contextlib import asynccontextmanager

import msgspec

from api.foreign.core import Pod
from api.kinds.gpupool import GPUPool
from api.names import ACCESS_ANNOTATION, PodUid
from pool.allocation_state import AllocationState
from pool.catalog import Catalog
from pool.facts import pod_facts
from reconciler.pod.ageing_access import PERIOD_S, AgeingAccess
from telemetry.metrics import AGEING_ACCESS, REGISTRY
from tests.support.recorded_events import RecordedEvents
from tests.support.reviews import a_pod_object, a_pool_object
from tests.support.scheduling import Time
from tests.support.workloads import Cluster, a_workload, note_of

DAY_S = 86_400.0


class World:
    def __init__(self) -> None:
        self.state, self.recorder, self.time = AllocationState(), RecordedEvents(), Time()
        catalog = Catalog()
        pool = msgspec.convert(a_pool_object(), GPUPool)
        catalog.pools[pool.name] = pool
        self.task = AgeingAccess(self.state.reader, catalog, self.recorder, now=self.time.now)

    def add(self, name: str, note: str | None, pool: str = "whole") -> None:
        annotations = {} if note is None else {ACCESS_ANNOTATION: note}
        pod = a_pod_object(
            pool=pool, name=name, metadata={"uid": f"uid-{name}", "annotations": annotations}
        )
        facts = pod_facts(msgspec.convert(pod, Pod))
        assert facts is not None
        self.state.observe_pod(facts, self.time.now())

    def events(self) -> list[tuple[str, str]]:
        return [(event.regarding.name, event.note) for event in self.recorder.taken()]

    def ageing(self) -> float | None:
        return REGISTRY.get_sample_value("gpupool_ageing_access", {"pool": "whole"})


@asynccontextmanager
async def running(world: World):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(world.task.run())
        yield
        task.cancel()
    AGEING_ACCESS.remove("whole")


async def test_workload_is_told_of_once_from_half_of_the_time_on():
    world, note = World(), note_of(Cluster().write(a_workload()))
    for name in ("b", "a"):
        world.add(name, note)
    world.add("plain", None)
    world.add("odd", "forged")
    world.add("0-copied-into-another-pool", note, "other")

    async with running(world):
        await asyncio.sleep(1)
        assert (world.events(), world.ageing()) == ([], 0)

        world.time.seconds += 45 * DAY_S
        await asyncio.sleep(2 * PERIOD_S)
        [(pod, text)] = world.events()
        assert (pod, world.ageing()) == ("a", 1)
        assert "new pods of Deployment train are refused in pool whole from 2026-04-01" in text

        world.state.discard_pod(PodUid("uid-a"))
        world.state.discard_pod(PodUid("uid-b"))
        await asyncio.sleep(PERIOD_S)
        assert (world.events(), world.ageing()) == ([], 0)
