"""bind when the write is refused, lost, cancelled or breaks: who holds the units afterwards."""

import asyncio
import json

import pytest

from api.names import PodUid
from scheduler.extender import bind, filter_nodes
from scheduler.ports import BindOutcome, BindRefused, FailedReading, PodBinding
from tests.support.scheduling import (
    LOST,
    ExtenderSetup,
    FakeBinder,
    a_wire_pod,
    binding_args,
    extender_args,
    seen_on,
)

CONFLICT = BindRefused("Operation cannot be fulfilled", is_conflict=True)
FORBIDDEN = BindRefused("pods is forbidden", is_conflict=False)
DENIED = BindRefused(
    'admission webhook "validate.kyverno.svc" denied the request: no limits', is_conflict=False
)


def a_setup() -> ExtenderSetup:
    setup = ExtenderSetup().pool(n1=2, n2=2)
    setup.pending("p", 1)
    return setup


async def ask(setup: ExtenderSetup, node: str = "n1") -> tuple[str, str]:
    answer = await bind(binding_args("p", node), setup.context)
    return json.loads(answer.body)["Error"], str(answer.outcome)


async def test_a_refusal_releases_and_says_why():
    setup = a_setup()
    setup.binder.fail_next = [FORBIDDEN]
    assert await ask(setup) == ("pods is forbidden", "refused")
    assert (setup.phase(), setup.free("n1")) == (None, 2)
    assert setup.binder.reads == []


async def test_after_a_refusal_the_next_attempt_starts_afresh():
    setup = a_setup()
    setup.binder.fail_next = [FORBIDDEN]
    await ask(setup)
    assert await ask(setup, "n2") == ("", "bound")


async def test_a_pod_whose_every_binding_a_webhook_refuses_keeps_its_unit_from_nobody():
    """kai-scheduler#2075: a policy on bindings refuses one pod for ever."""
    setup = ExtenderSetup().pool(n1=1)
    setup.pending("p", 1)
    setup.pending("other", 1)
    for _attempt in range(3):
        setup.binder.fail_next = [DENIED]
        assert await ask(setup) == (DENIED.message, "refused")
        answer = filter_nodes(extender_args(a_wire_pod("other", whole=1), "n1"), setup.context)
        assert json.loads(answer.body)["NodeNames"] == ["n1"]
    assert json.loads((await bind(binding_args("other", "n1"), setup.context)).body)["Error"] == ""
    assert setup.free("n1") == 0


async def test_a_lost_answer_keeps_the_units_and_pins_the_pod():
    setup = a_setup()
    setup.binder.fail_next = [LOST]
    error, outcome = await ask(setup)
    assert error == (
        "it is not known whether the API server bound pod default/p: no answer within 3 s"
    )
    assert outcome == "in_doubt"
    assert (setup.phase(), setup.free("n1")) == ("doubtful", 1)
    error, outcome = await ask(setup, "n2")
    assert error == ("pod default/p cannot be bound to node n2: its binding to node n1 is in doubt")
    assert outcome == "bound_elsewhere"


async def test_a_retry_after_a_lost_answer_sends_the_very_same_binding():
    setup = a_setup()
    setup.binder.fail_next = [LOST]
    await ask(setup)
    setup.bound("a", "n1", "GPU-n1-1")
    assert await ask(setup) == ("", "bound")
    first, second = setup.binder.bindings
    assert first == second


async def test_nothing_is_sent_again_once_another_replica_has_given_the_units_away():
    """Our Binding was refused by the fence while its answer was lost; now we lead again."""
    setup = a_setup()
    setup.binder.fail_next = [LOST]
    await ask(setup)
    setup.bound("other", "n1", "GPU-n1-0")
    assert (await ask(setup))[1] == "under_way"
    assert len(setup.binder.bindings) == 1
    assert setup.phase() == "doubtful"


async def test_a_retry_finds_that_the_lost_write_was_carried_out():
    """Lesson 29: the retry's 409 comes from our own first write."""
    setup = a_setup()
    setup.binder.lose_next = True
    assert (await ask(setup))[1] == "in_doubt"
    assert await ask(setup) == ("", "already_bound")
    assert (setup.phase(), setup.free("n1")) == ("bound", 1)


async def test_a_watch_faster_than_the_answer_leaves_nothing_to_do():
    setup = a_setup()
    setup.binder.pause = asyncio.Event()
    setup.binder.lose_next = True
    async with asyncio.TaskGroup() as group:
        call = group.create_task(ask(setup))
        await setup.binder.sent.wait()
        setup.bound("p", "n1", "GPU-n1-0")
        setup.binder.pause.set()
    assert call.result()[1] == "in_doubt"
    assert (setup.phase(), setup.free("n1")) == (None, 1)


async def test_a_pod_deleted_during_the_write_reserves_nothing_afterwards():
    setup = a_setup()
    setup.binder.pause = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(ask(setup))
        await setup.binder.sent.wait()
        setup.allocation_state.discard_pod(PodUid("uid-p"))
        setup.binder.pause.set()
    assert (setup.phase(), setup.free("n1")) == (None, 2)


async def test_a_conflict_with_a_pod_that_is_still_pending_releases():
    """Gated, terminating, or of another uid: the API server wrote nothing."""
    setup = a_setup()
    setup.binder.fail_next = [CONFLICT]
    assert await ask(setup) == ("Operation cannot be fulfilled", "refused")
    assert (setup.phase(), setup.free("n1")) == (None, 2)


async def test_a_conflict_with_a_pod_that_is_gone_releases():
    setup = a_setup()
    setup.binder.fail_next = [CONFLICT]
    setup.binder.gone.add("uid-p")
    assert (await ask(setup))[1] == "refused"
    assert (setup.phase(), setup.free("n1")) == (None, 2)


async def test_a_conflict_that_cannot_be_looked_into_stays_in_doubt():
    setup = a_setup()
    setup.binder.fail_next = [CONFLICT]
    setup.binder.reading = FailedReading("connection refused")
    assert (await ask(setup))[1] == "in_doubt"
    assert (setup.phase(), setup.free("n1")) == ("doubtful", 1)


async def test_a_pod_bound_elsewhere_by_somebody_else_is_followed():
    setup = a_setup()
    setup.binder.bound["uid-p"] = seen_on("n2", "GPU-n2-1")
    error, outcome = await ask(setup)
    assert error == "pod default/p cannot be bound to node n1: it is bound to node n2"
    assert outcome == "bound_elsewhere"
    assert (setup.phase(), setup.free("n1"), setup.free("n2")) == (None, 2, 1)


async def test_a_pod_bound_here_with_other_devices_is_a_success_and_is_followed():
    setup = a_setup()
    setup.binder.bound["uid-p"] = seen_on("n1", "GPU-n1-1")
    assert await ask(setup) == ("", "already_bound")
    assert setup.allocation_state.index.claims.observed.units(PodUid("uid-p")) == ("GPU-n1-1",)
    assert (setup.phase(), setup.free("n1")) == (None, 1)


async def test_a_pod_bound_here_without_devices_makes_the_node_unavailable():
    setup = a_setup()
    setup.binder.bound["uid-p"] = seen_on("n1")
    assert (await ask(setup))[1] == "already_bound"
    assert setup.free("n1") == 0


async def test_a_pod_bound_elsewhere_that_the_watch_has_not_shown_is_only_released():
    setup = ExtenderSetup().pool(n1=2, n2=2)
    setup.reserve("p", 1, "n1")
    setup.binder.bound["uid-p"] = seen_on("n2", "GPU-n2-1")
    assert (await ask(setup))[1] == "bound_elsewhere"
    assert setup.phase() is None
    assert setup.allocation_state.reader.pods.get(PodUid("uid-p")) is None


async def test_a_pod_deleted_during_the_look_is_not_brought_back():
    setup = a_setup()
    setup.binder.bound["uid-p"] = seen_on("n2", "GPU-n2-1")
    binder = setup.binder
    pause_the_read(binder)
    async with asyncio.TaskGroup() as group:
        group.create_task(ask(setup))
        await binder.sent.wait()
        setup.allocation_state.discard_pod(PodUid("uid-p"))
        assert binder.pause is not None
        binder.pause.set()
    assert setup.allocation_state.reader.pods.get(PodUid("uid-p")) is None
    assert (setup.free("n1"), setup.free("n2")) == (2, 2)


async def test_a_refused_retry_does_not_end_the_doubt_about_the_first_write():
    setup = a_setup()
    setup.binder.fail_next = [LOST, FORBIDDEN]
    await ask(setup)
    setup.time.seconds += 59
    assert (await ask(setup))[1] == "in_doubt"
    assert (setup.phase(), setup.free("n1")) == ("doubtful", 1)


async def test_a_refused_retry_releases_once_the_first_write_cannot_land_any_more():
    setup = a_setup()
    setup.binder.fail_next = [LOST, FORBIDDEN, FORBIDDEN]
    await ask(setup)
    setup.time.seconds += 30
    await ask(setup)
    setup.time.seconds += 30
    assert await ask(setup) == ("pods is forbidden", "refused")
    assert (setup.phase(), setup.free("n1")) == (None, 2)


def pause_the_read(binder: FakeBinder) -> None:
    """Let writes through, and keep the read that follows waiting."""
    write = binder.bind

    async def write_then_pause(binding: PodBinding) -> BindOutcome:
        outcome = await write(binding)
        binder.pause = asyncio.Event()
        return outcome

    binder.bind = write_then_pause  # type: ignore[method-assign]  # a step between two calls


async def cancel_when_sent(setup: ExtenderSetup) -> None:
    setup.binder.pause = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        call = group.create_task(ask(setup))
        await setup.binder.sent.wait()
        call.cancel()
    assert call.cancelled()


async def test_a_bind_cancelled_during_the_write_is_in_doubt_and_can_be_retried():
    setup = a_setup()
    await cancel_when_sent(setup)
    assert (setup.phase(), setup.free("n1")) == ("doubtful", 1)
    setup.binder.pause = None
    assert await ask(setup) == ("", "bound")


async def test_a_bind_cancelled_during_the_look_is_in_doubt():
    setup = a_setup()
    setup.binder.bound["uid-p"] = seen_on("n1", "GPU-n1-0")
    binder, write = setup.binder, setup.binder.bind

    async def write_then_pause(binding: PodBinding) -> BindOutcome:
        outcome = await write(binding)
        binder.pause = asyncio.Event()
        return outcome

    binder.bind = write_then_pause  # type: ignore[method-assign]  # the pause begins after the write
    async with asyncio.TaskGroup() as group:
        call = group.create_task(ask(setup))
        await binder.sent.wait()
        call.cancel()
    assert call.cancelled()
    assert len(binder.reads) == 1
    assert (setup.phase(), setup.free("n1")) == ("doubtful", 1)


async def test_a_plain_bind_that_is_cancelled_leaves_nothing_behind():
    setup = ExtenderSetup()
    setup.context.recent.record_demand(PodUid("uid-p"), None)
    await cancel_when_sent(setup)
    assert len(setup.allocation_state.ledger) == 0


@pytest.mark.parametrize("where", ["write", "read"])
async def test_a_binder_that_breaks_its_assignment_leaves_doubt_and_is_not_hidden(where):
    setup = a_setup()
    if where == "write":
        setup.binder.fail_next = [RuntimeError("broken")]
    else:
        setup.binder.fail_next = [CONFLICT]
        setup.binder.reading = RuntimeError("broken")
    with pytest.raises(RuntimeError, match="broken"):
        await ask(setup)
    assert (setup.phase(), setup.free("n1")) == ("doubtful", 1)


async def test_however_often_a_bind_is_retried_the_units_are_taken_once():
    setup = a_setup()
    setup.binder.fail_next = [LOST] * 5
    for _ in range(5):
        setup.time.seconds += 5
        await ask(setup)
    assert setup.free("n1") == 1
    assert all(binding == setup.binder.bindings[0] for binding in setup.binder.bindings)
    assert await ask(setup) == ("", "bound")
