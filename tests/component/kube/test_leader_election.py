"""Leadership: its holder, its beginning and its end."""

import asyncio
import re
from dataclasses import replace

import msgspec
import pytest

from kube.leader_election import LeaderElection, Lease, LeaseTimes, Term
from kube.resources import LEASES
from telemetry.metrics import REGISTRY
from tests.component.kube.fake_leases import (
    TIMES,
    Candidate,
    FailingReads,
    FakeLeases,
    LostAnswers,
    SlowAnswers,
    running,
)
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime

DAY_S = 86_400.0


@pytest.fixture
async def leases() -> FakeLeases:
    return FakeLeases()


def two_candidates(leases: FakeLeases) -> tuple[Candidate, Candidate]:
    return Candidate(leases, "first"), Candidate(leases, "second")


async def test_the_first_candidate_leads_at_once_and_stays(leases: FakeLeases) -> None:
    first, _ = two_candidates(leases)
    async with running(first):
        await first.election.leading.wait()
        assert asyncio.get_running_loop().time() < 1
        await asyncio.sleep(600)
        assert first.election.is_leading()
        assert first.said == ["started"]
        assert REGISTRY.get_sample_value("gpu_leading") == 1
    assert first.said == ["started", "stopped"]
    assert not first.election.is_leading()
    assert not first.election.leading.is_set()
    assert REGISTRY.get_sample_value("gpu_leading") == 0


async def test_the_record_reads_as_kubernetes_writes_it(leases: FakeLeases) -> None:
    first, _ = two_candidates(leases)
    async with running(first):
        await asyncio.sleep(30)
        assert isinstance(leases.lease, Lease)
        spec = leases.lease.spec
    assert (leases.lease.metadata.namespace, leases.lease.metadata.name) == ("gpu", "engine")
    assert leases.lease.api_version == "coordination.k8s.io/v1"
    assert re.fullmatch(r"first_[0-9a-f]{16}", spec.holder_identity)
    assert spec.lease_duration_seconds == 15
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec.renew_time)
    assert spec.acquire_time < spec.renew_time
    assert spec.lease_transitions == 0


async def test_a_second_candidate_waits_while_the_first_renews(leases: FakeLeases) -> None:
    first, second = two_candidates(leases)
    async with running(first):
        await first.election.leading.wait()
        async with running(second):
            await asyncio.sleep(300)
            assert first.election.is_leading()
            assert second.said == []


async def test_a_leader_that_dies_is_followed_after_the_lease_and_not_before(
    leases: FakeLeases,
) -> None:
    first, second = two_candidates(leases)
    async with running(first) as tasks:
        await first.election.leading.wait()
        async with running(second):
            await asyncio.sleep(20)
            tasks[0].cancel()  # and no release, as when a process is killed
            death = asyncio.get_running_loop().time()
            await second.election.leading.wait()
            waited = asyncio.get_running_loop().time() - death
    # From the last renewal seen, at most a pause before the death, to the look after the lease's end.
    assert 15 - 2.4 <= waited <= 15 + 2 * 2.4
    assert leases.lease is not None
    assert leases.lease.spec.lease_transitions == 1


async def test_a_released_lease_is_taken_at_once(leases: FakeLeases) -> None:
    first, second = two_candidates(leases)
    async with running(first) as tasks:
        await first.election.leading.wait()
        async with running(second):
            await asyncio.sleep(10)
            tasks[0].cancel()
            await asyncio.wait(tasks)
            await first.election.release()
            assert leases.holder == ""
            async with asyncio.timeout(2.5):
                await second.election.leading.wait()


async def test_releasing_what_is_not_ours_changes_nothing(leases: FakeLeases) -> None:
    first, second = two_candidates(leases)
    async with running(first):
        await first.election.leading.wait()
        await second.election.release()
        assert leases.holder == first.election.identity


async def test_a_release_that_fails_leaves_the_lease_to_run_out(leases: FakeLeases) -> None:
    first, second = two_candidates(leases)
    async with running(first):
        await first.election.leading.wait()
    taken = leases.lease
    leases.delete()
    await first.election.release()
    leases.lease = taken
    assert not first.election.is_leading()
    async with running(second):
        await asyncio.sleep(14)
        assert not second.election.is_leading()


async def test_releasing_where_there_is_no_lease_is_quiet(leases: FakeLeases) -> None:
    first, _ = two_candidates(leases)
    await first.election.release()
    assert leases.lease is None


async def test_a_loop_that_stood_still_does_not_lead_on(leases: FakeLeases) -> None:
    first, _ = two_candidates(leases)
    async with running(first):
        await first.election.leading.wait()
        first.clock.offset_s += 10.5  # nothing ran meanwhile, so no flag could be cleared
        assert not first.election.is_leading()


async def test_a_slow_answer_counts_from_when_it_was_asked_for() -> None:
    leases = SlowAnswers()
    first, _ = two_candidates(leases)
    async with running(first):
        await leases.answered.wait()
        assert leases.asked_at is not None
        await asyncio.sleep(leases.asked_at + 9.9 - first.clock.monotonic())
        assert first.election.is_leading()
        await asyncio.sleep(0.2)
        assert not first.election.is_leading()


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S], ids=["forth", "back"])
async def test_a_wall_clock_that_is_set_changes_nothing(leases: FakeLeases, jump_s: float) -> None:
    first, second = two_candidates(leases)
    async with running(first):
        await first.election.leading.wait()
        async with running(second):
            await asyncio.sleep(30)
            first.clock.wall_offset_s = jump_s
            await asyncio.sleep(30)
            second.clock.wall_offset_s = -jump_s
            await asyncio.sleep(60)
            assert first.said == ["started"]
            assert second.said == []


async def test_two_processes_of_one_name_are_two_candidates(leases: FakeLeases) -> None:
    twins = Candidate(leases, "same"), Candidate(leases, "same")
    async with running(*twins):
        await asyncio.sleep(120)
        assert sorted(twin.election.is_leading() for twin in twins) == [False, True]


async def test_a_deleted_lease_is_not_taken_while_its_holder_may_still_lead(
    leases: FakeLeases,
) -> None:
    first, second = two_candidates(leases)
    async with running(first):
        await first.election.leading.wait()
        async with running(second):
            await asyncio.sleep(20)
            leases.delete()
            for _ in range(400):
                await asyncio.sleep(0.1)
                assert not (first.election.is_leading() and second.election.is_leading())
            assert first.election.is_leading() or second.election.is_leading()


async def test_a_leader_that_reads_another_holder_stops_at_once(leases: FakeLeases) -> None:
    first, _ = two_candidates(leases)
    async with running(first):
        await first.election.leading.wait()
        assert leases.lease is not None
        spec = msgspec.structs.replace(leases.lease.spec, holder_identity="an administrator's")
        await leases.replace(LEASES, msgspec.structs.replace(leases.lease, spec=spec))
        # One renewal meets the conflict, the next one reads first.
        await asyncio.sleep(2 * 2.4)
        assert first.said == ["started", "stopped"]


async def test_a_holder_that_asks_for_longer_gets_it(leases: FakeLeases, clock: LoopClock) -> None:
    patient = replace(TIMES, lease_duration_s=60, renew_deadline_s=40)
    first = LeaderElection(leases, clock, patient, identity="patient")
    second = Candidate(leases, "hasty")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(first.run(lambda: None, lambda: None))
        await first.leading.wait()
        task.cancel()
    async with running(second):
        await second.election.leading.wait()
        assert asyncio.get_running_loop().time() >= 60


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 10, 5), (15, 0, 0), (15, 10, -1)])
async def test_times_with_which_two_could_lead_are_refused(
    times: tuple[float, float, float],
) -> None:
    lease, deadline, retry = times
    with pytest.raises(ValueError, match="renew deadline"):
        LeaseTimes(
            namespace=TIMES.namespace,
            name=TIMES.name,
            lease_duration_s=lease,
            renew_deadline_s=deadline,
            retry_s=retry,
        )


HASTY = LeaseTimes(namespace=TIMES.namespace, name=TIMES.name)


async def test_by_default_a_dead_leader_is_followed_within_three_seconds_less_the_take_over(
    leases: FakeLeases,
) -> None:
    first, second = (Candidate(leases, name, times=HASTY) for name in ("first", "second"))
    async with running(first) as tasks:
        await first.election.leading.wait()
        async with running(second):
            await asyncio.sleep(20)
            tasks[0].cancel()  # and no release, as when a process is killed
            death = asyncio.get_running_loop().time()
            await second.election.leading.wait()
            waited = asyncio.get_running_loop().time() - death
    assert 1.5 <= waited <= 2.4


async def test_a_released_lease_is_seen_within_a_third_of_a_second(leases: FakeLeases) -> None:
    first, second = (Candidate(leases, name, times=HASTY) for name in ("first", "second"))
    async with running(first):
        await first.election.leading.wait()
        async with running(second):
            await asyncio.sleep(10)
            await first.election.release()
            async with asyncio.timeout(0.31):
                await second.election.leading.wait()
            await asyncio.sleep(10)
            assert not first.election.is_leading()
            assert await first.election.succeeded()


async def test_terms_say_whether_the_lease_was_given_up(leases: FakeLeases) -> None:
    first, second = two_candidates(leases)
    async with running(first):
        await first.election.leading.wait()
        await first.election.release()
    assert first.election.term == Term(
        holder=first.election.identity, transitions=0, follows_release=False
    )
    async with running(second):
        await second.election.leading.wait()
    assert second.election.term == Term(
        holder=second.election.identity, transitions=1, follows_release=True
    )
    third = Candidate(leases, "third")
    async with running(third):
        await third.election.leading.wait()
    assert third.election.term == Term(
        holder=third.election.identity, transitions=2, follows_release=False
    )


async def test_failed_renewals_leave_the_term_as_it_is(leases: FakeLeases) -> None:
    first, _ = two_candidates(leases)
    async with running(first):
        await first.election.leading.wait()
        term = first.election.term
        leases.is_away = True
        await asyncio.sleep(11)
        assert not first.election.is_leading()
        leases.is_away = False
        await asyncio.sleep(3)
        assert first.election.is_leading()
        assert first.election.term is term


async def test_a_term_after_a_deleted_lease_has_a_name_of_its_own(leases: FakeLeases) -> None:
    first, _ = two_candidates(leases)
    async with running(first):
        await first.election.leading.wait()
        before = first.election.term
        leases.delete()
        await asyncio.sleep(30)
        assert first.election.is_leading()
        assert before is not None
        assert first.election.term is not None
        assert first.election.term.transitions > before.transitions


async def test_after_the_api_server_was_away_the_holder_has_the_first_chance(
    leases: FakeLeases,
) -> None:
    for seed in range(6):
        first, second = (
            Candidate(leases, f"{name}-{seed}", times=HASTY) for name in ("first", "second")
        )
        async with running(first):
            await first.election.leading.wait()
            async with running(second):
                await asyncio.sleep(5)
                leases.is_away = True
                await asyncio.sleep(60)
                leases.is_away = False
                await asyncio.sleep(5)
                assert first.election.is_leading()
                assert second.said == []
                await first.election.release()


async def test_where_the_api_server_is_slow_longer_times_are_asked_for_until_it_is_not(
    leases: FakeLeases,
) -> None:
    first = Candidate(leases, "first", times=HASTY)
    async with running(first):
        await first.election.leading.wait()
        leases.takes_s = 1.2  # a renewal that counts from when it was asked for is late with 1.5 s
        await asyncio.sleep(60)
        said = list(first.said)
        assert leases.duration_s > 2
        await asyncio.sleep(300)
        assert first.said == said
        assert first.election.is_leading()
        leases.takes_s = 0.0
        await asyncio.sleep(120)
        assert leases.duration_s == 2
        assert first.said == said


@pytest.mark.parametrize("fails_every", [0, 10, 40])
async def test_dead_leader_that_asked_for_longer_is_followed_though_reads_fail(
    fails_every: int,
) -> None:
    leases = FailingReads(fails_every)
    first, second = (Candidate(leases, name, times=HASTY) for name in ("first", "second"))
    async with running(first):
        await first.election.leading.wait()
    assert leases.lease is not None
    stretched = msgspec.structs.replace(leases.lease.spec, lease_duration_seconds=16)
    await leases.replace(LEASES, msgspec.structs.replace(leases.lease, spec=stretched))
    async with running(second), asyncio.timeout(18):
        await second.election.leading.wait()


async def test_lease_that_went_back_ends_the_term_and_is_followed_as_another_holders(
    leases: FakeLeases,
) -> None:
    first, second = two_candidates(leases)
    store_restored: list[str] = []
    first.election.store_restored.subscribe(lambda _: store_restored.append("first"))
    second.election.store_restored.subscribe(lambda _: store_restored.append("second"))
    async with running(first, second):
        await first.election.leading.wait()
        await asyncio.sleep(5)
        backup, before = leases.lease, first.election.term
        await asyncio.sleep(60)
        leases.lease = backup
        await asyncio.sleep(5)
        assert sorted(store_restored) == ["first", "second"]
        assert first.said == ["started", "stopped"]
        for _ in range(90):
            await asyncio.sleep(0.1)
            assert not first.election.is_leading()
            assert not second.election.is_leading()
        await asyncio.sleep(15)
        terms = [c.election.term for c in (first, second) if c.election.is_leading()]
    assert len(terms) == 1
    assert terms != [before]
    assert terms[0] is not None
    assert not terms[0].follows_release


async def test_released_lease_of_a_store_that_went_back_is_not_free(leases: FakeLeases) -> None:
    first, second = two_candidates(leases)
    async with running(first):
        await first.election.leading.wait()
        await first.election.release()
    backup = leases.lease
    async with running(second):
        await second.election.leading.wait()
        await asyncio.sleep(60)
        leases.lease = backup
        await asyncio.sleep(12)
        assert not second.election.is_leading()
        await asyncio.sleep(10)
        assert second.election.is_leading()
        assert second.election.term is not None
        assert not second.election.term.follows_release


async def test_a_term_whose_beginning_was_not_answered_is_one_of_its_own() -> None:
    leases = LostAnswers()
    first, second = two_candidates(leases)
    async with running(first):
        await first.election.leading.wait()
        leases.writes = 1
        await first.election.release()
    leases.writes = 0
    async with running(second):
        await second.election.leading.wait()
    assert second.election.term == Term(
        holder=second.election.identity, transitions=1, follows_release=False
    )


async def test_lease_that_is_taken_again_between_two_looks_begins_another_term(
    leases: FakeLeases,
) -> None:
    """Another process released it in our name: unobserved, and yet the term is another one."""
    first, _ = two_candidates(leases)
    async with running(first):
        await asyncio.sleep(30)
        assert leases.lease is not None
        before = first.election.term
        released = msgspec.structs.replace(leases.lease.spec, holder_identity="")
        await leases.replace(LEASES, msgspec.structs.replace(leases.lease, spec=released))
        await asyncio.sleep(30)
        assert first.election.is_leading()
        assert first.election.term is not before
    assert first.said == ["started", "stopped", "started", "stopped"]
