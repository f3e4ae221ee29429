"""Takeover: from the Lease to the permission to decide, with and without a wait."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kube.errors import Unreachable
from kube.leader_election import Term
from server.leadership.takeover import Takeover

pytestmark = pytest.mark.looptime


class FakeElection:
    def __init__(self) -> None:
        self.leading = asyncio.Event()
        self.term: Term | None = None

    def is_leading(self) -> bool:
        return self.leading.is_set()

    def win(self, transitions: int, *, follows_release: bool = False) -> None:
        self.term = Term(holder="me", transitions=transitions, follows_release=follows_release)
        self.leading.set()


class FakeFence:
    """The term object; `written` has the times at which a term was begun."""

    def __init__(self) -> None:
        self.number = 0
        self.is_there = True
        self.written: list[float] = []
        self.reads = 0
        self.failures = 0

    @property
    def token(self) -> str:
        return f"me/{self.number}"

    def end(self) -> None:
        self.is_there = False

    async def begin(self, leads: Callable[[], bool]) -> None:
        self._fail()
        if not self.is_there:
            assert leads()
            self.number += 1
            self.is_there = True
            self.written.append(asyncio.get_running_loop().time())

    async def holds(self) -> bool:
        self.reads += 1
        self._fail()
        return self.is_there

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise Unreachable("away", request_sent=True)


class Replica:
    """One that takes over whenever it can; `caught_up` has the times at which it read the pods."""

    def __init__(self) -> None:
        self.election = FakeElection()
        self.caught_up: list[float] = []
        self.failures = 0
        self.fence = FakeFence()
        self.leading = Takeover(self.election, self.fence, self._catch_up, wait_s=0.3)

    async def _catch_up(self) -> None:
        if self.failures:
            self.failures -= 1
            raise Unreachable("away", request_sent=False)
        await asyncio.sleep(0.1)
        self.caught_up.append(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def taking_over(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.leading.take_over())
            yield
            task.cancel()


async def test_after_a_leader_that_died_the_pods_are_read_when_the_fence_has_settled() -> None:
    replica = Replica()
    async with replica.taking_over():
        replica.election.win(1)
        await asyncio.sleep(0.39)
        assert not replica.leading.decides()
        await asyncio.sleep(0.02)
        assert replica.leading.decides()
    assert replica.caught_up == [pytest.approx(0.4)]
    assert replica.leading.token() == "me/1"


async def test_after_a_release_the_pods_are_read_at_once() -> None:
    replica = Replica()
    async with replica.taking_over():
        replica.election.win(1, follows_release=True)
        await asyncio.sleep(0.11)
        assert replica.leading.decides()


async def test_replica_that_finds_its_own_record_again_continues_at_once() -> None:
    replica = Replica()
    async with replica.taking_over():
        replica.election.win(1)
        await asyncio.sleep(1)
    replica.election.leading.clear()
    assert not replica.leading.decides()
    replica.election.leading.set()
    assert replica.leading.decides()


async def test_a_new_term_is_taken_over_again() -> None:
    replica = Replica()
    async with replica.taking_over():
        replica.election.win(1)
        await asyncio.sleep(1)
    replica.election.win(3)
    assert not replica.leading.decides()
    async with replica.taking_over():
        await asyncio.sleep(1)
        assert replica.leading.decides()
    assert len(replica.caught_up) == 2


async def test_leadership_lost_during_the_read_permits_no_decision() -> None:
    replica = Replica()
    async with replica.taking_over():
        replica.election.win(1)
        await asyncio.sleep(0.35)
        replica.election.win(3)
        await asyncio.sleep(0.1)
        assert not replica.leading.decides()
        await asyncio.sleep(0.4)
        assert replica.leading.decides()


async def test_failed_read_is_retried() -> None:
    replica = Replica()
    replica.failures = 3
    async with replica.taking_over():
        replica.election.win(1, follows_release=True)
        await asyncio.sleep(10)
        assert replica.leading.decides()


async def test_stopped_replica_decides_nothing() -> None:
    replica = Replica()
    async with replica.taking_over():
        replica.election.win(1)
        await asyncio.sleep(1)
        replica.leading.stop()
        assert not replica.leading.decides()
    async with replica.taking_over():
        await asyncio.sleep(60)
        assert not replica.leading.decides()


async def test_the_term_is_written_before_the_wait_and_once() -> None:
    replica = Replica()
    replica.failures = 2
    async with replica.taking_over():
        await asyncio.sleep(1)
        replica.election.win(1)
        await asyncio.sleep(5)
        assert replica.leading.decides()
    replica.election.leading.clear()
    replica.election.leading.set()
    async with replica.taking_over():
        await asyncio.sleep(1)
    assert replica.fence.written == [pytest.approx(1.0)]
    assert replica.caught_up[0] >= 1.4


async def test_no_replica_decides_before_the_term_is_written() -> None:
    replica = Replica()
    replica.fence.failures = 5
    async with replica.taking_over():
        replica.election.win(1)
        while replica.fence.failures:
            assert not replica.leading.decides()
            await asyncio.sleep(0.01)
        await asyncio.sleep(5)
        assert replica.leading.decides()
    (written,) = replica.fence.written
    assert replica.caught_up == [pytest.approx(written + 0.4)]


async def test_deleted_term_is_taken_over_again_after_a_refused_binding() -> None:
    replica = Replica()
    async with replica.taking_over():
        replica.election.win(1, follows_release=True)
        await asyncio.sleep(1)
    replica.fence.is_there = False
    async with asyncio.timeout(1):
        replica.leading.request_check()
        await replica.leading.until_overtaken()
    assert not replica.leading.decides()
    async with replica.taking_over():
        await asyncio.sleep(0.35)
        assert not replica.leading.decides(), "others may have bound in between"
        await asyncio.sleep(0.1)
        assert replica.leading.decides()
    assert replica.leading.token() == "me/2"
    assert len(replica.caught_up) == 2


async def test_refused_bindings_make_no_more_than_two_reads_a_second() -> None:
    replica = Replica()
    async with replica.taking_over():
        replica.election.win(1)
        await asyncio.sleep(1)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(replica.leading.until_overtaken())
        await asyncio.sleep(1)
        assert replica.fence.reads == 0
        for _ in range(900):
            replica.leading.request_check()
            await asyncio.sleep(0.01)
        watching.cancel()
    assert 15 <= replica.fence.reads <= 20
    assert replica.leading.decides()


async def test_failed_check_of_the_term_is_repeated_until_one_succeeds() -> None:
    replica = Replica()
    async with replica.taking_over():
        replica.election.win(1)
        await asyncio.sleep(1)
    replica.fence.failures = 3
    replica.fence.is_there = False
    async with asyncio.timeout(10):
        replica.leading.request_check()
        await replica.leading.until_overtaken()
    assert replica.fence.reads == 4


async def test_leadership_that_ends_with_the_read_lets_the_loop_continue() -> None:
    """The event is cleared by the election's own task, which needs its turn for that."""
    replica = Replica()
    is_leading = True
    replica.election.is_leading = lambda: is_leading  # type: ignore[method-assign]  # the clock's word
    async with asyncio.timeout(5), replica.taking_over():
        replica.election.win(1, follows_release=True)
        await asyncio.sleep(0.05)
        is_leading = False
        await asyncio.sleep(1)
        assert not replica.leading.decides()
        is_leading = True
        await asyncio.sleep(1)
        assert replica.leading.decides()
