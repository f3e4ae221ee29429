"""settle: what one read of the pod ends, and what it leaves open."""

import asyncio

import pytest

from api.names import PodUid
from scheduler.bind_recovery import recover_binding
from scheduler.extender import bind
from scheduler.ports import FailedReading, MissingReading, PendingReading
from tests.support.scheduling import LOST, ExtenderSetup, binding_args, seen_on


async def a_doubtful_setup() -> ExtenderSetup:
    setup = ExtenderSetup().pool(n1=2, n2=2)
    setup.pending("p", 1)
    setup.binder.fail_next = [LOST]
    await bind(binding_args(), setup.context)
    return setup


async def a_written_setup() -> ExtenderSetup:
    setup = ExtenderSetup().pool(n1=2, n2=2)
    setup.pending("p", 1)
    await bind(binding_args(), setup.context)
    return setup


async def reconcile_all(setup: ExtenderSetup) -> list[str]:
    return [
        str(await recover_binding(item, setup.context))
        for item in setup.allocation_state.reader.ledger.unresolved()
    ]


async def test_a_pod_seen_bound_as_committed_is_confirmed_and_keeps_its_units():
    setup = await a_doubtful_setup()
    setup.binder.reading = seen_on("n1", "GPU-n1-0")
    assert await reconcile_all(setup) == ["confirmed"]
    assert (setup.phase(), setup.free("n1")) == ("bound", 1)


@pytest.mark.parametrize(("waited_s", "outcome"), [(59.9, "still_open"), (60, "released")])
async def test_a_pod_seen_pending_is_released_only_when_the_write_cannot_land(waited_s, outcome):
    setup = await a_doubtful_setup()
    setup.time.seconds += waited_s
    setup.binder.reading = PendingReading()
    assert await reconcile_all(setup) == [outcome]
    assert setup.free("n1") == (1 if outcome == "still_open" else 2)


async def test_a_released_pod_waits_again_and_may_go_anywhere():
    setup = await a_doubtful_setup()
    setup.time.seconds += 60
    await reconcile_all(setup)
    assert [
        pod.name for pod in setup.allocation_state.reader.pods.waiting("gpu.deckhouse.io/whole")
    ] == ["p"]
    assert setup.allocation_state.reader.bound_to(PodUid("uid-p")) is None


@pytest.mark.parametrize("setup_of", [a_doubtful_setup, a_written_setup])
async def test_a_pod_that_is_gone_is_released_at_once(setup_of):
    setup = await setup_of()
    setup.binder.reading = MissingReading()
    assert await reconcile_all(setup) == ["released"]
    assert (setup.phase(), setup.free("n1")) == (None, 2)


@pytest.mark.parametrize("waited_s", [1, 3600])
async def test_a_pod_that_cannot_be_read_stays_as_it_is(waited_s):
    setup = await a_doubtful_setup()
    setup.time.seconds += waited_s
    setup.binder.reading = FailedReading("connection refused")
    assert await reconcile_all(setup) == ["unseen"]
    assert (setup.phase(), setup.free("n1")) == ("doubtful", 1)


async def test_a_pod_seen_on_another_node_is_followed():
    setup = await a_doubtful_setup()
    setup.binder.reading = seen_on("n2", "GPU-n2-0")
    assert await reconcile_all(setup) == ["overtaken"]
    assert (setup.phase(), setup.free("n1"), setup.free("n2")) == (None, 2, 1)


async def test_a_binding_that_the_watch_is_late_with_is_confirmed():
    setup = await a_written_setup()
    assert await reconcile_all(setup) == ["confirmed"]
    assert (setup.phase(), setup.free("n1")) == ("bound", 1)


async def test_an_accepted_binding_that_a_read_denies_is_released():
    """The answer came, so that no write is on its way: etcd lost it."""
    setup = await a_written_setup()
    setup.binder.reading = PendingReading()
    assert await reconcile_all(setup) == ["released"]


async def test_settling_twice_changes_nothing_more():
    setup = await a_doubtful_setup()
    setup.binder.reading = seen_on("n1", "GPU-n1-0")
    await reconcile_all(setup)
    generation = setup.allocation_state.index.generation
    await reconcile_all(setup)
    assert setup.allocation_state.index.generation == generation
    assert setup.phase() == "bound"


async def test_a_read_that_a_retry_overtook_is_disregarded():
    setup = await a_doubtful_setup()
    setup.time.seconds += 60
    (reservation,) = setup.allocation_state.reader.ledger.unresolved()
    setup.binder.pause, setup.binder.reading = asyncio.Event(), PendingReading()
    async with asyncio.TaskGroup() as group:
        call = group.create_task(recover_binding(reservation, setup.context))
        await setup.binder.sent.wait()
        setup.allocation_state.retry(PodUid("uid-p"))
        setup.binder.pause.set()
    assert call.result() == "moved_on"
    assert (setup.phase(), setup.free("n1")) == ("committed", 1)


async def test_a_read_that_the_watch_overtook_is_disregarded():
    setup = await a_doubtful_setup()
    (reservation,) = setup.allocation_state.reader.ledger.unresolved()
    setup.binder.pause = asyncio.Event()
    setup.binder.reading = seen_on("n1", "GPU-n1-0")
    async with asyncio.TaskGroup() as group:
        call = group.create_task(recover_binding(reservation, setup.context))
        await setup.binder.sent.wait()
        setup.allocation_state.discard_pod(PodUid("uid-p"))
        setup.binder.pause.set()
    assert call.result() == "moved_on"
    assert setup.allocation_state.reader.pods.get(PodUid("uid-p")) is None
    assert setup.free("n1") == 2


async def test_settling_that_is_cancelled_leaves_everything_as_it_was():
    setup = await a_doubtful_setup()
    (reservation,) = setup.allocation_state.reader.ledger.unresolved()
    setup.binder.pause = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        call = group.create_task(recover_binding(reservation, setup.context))
        await setup.binder.sent.wait()
        call.cancel()
    assert setup.allocation_state.reader.ledger.unresolved() == [reservation]


async def test_a_binding_under_way_is_none_of_settlings_business():
    setup = await a_doubtful_setup()
    committed = setup.allocation_state.retry(PodUid("uid-p"))
    assert committed is not None
    assert await recover_binding(committed, setup.context) == "moved_on"
    assert setup.binder.reads == []
