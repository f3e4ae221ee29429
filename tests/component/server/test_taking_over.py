"""From the Lease to the right to decide: what is waited for, and when nothing is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kube.errors import Unreachable
from kube.leases import Term
from server.leading import Leading

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


class Replica:
    """One that takes over whenever it can; `caught_up` has the times at which it read the pods."""

    def __init__(self) -> None:
        self.election = FakeElection()
        self.caught_up: list[float] = []
        self.failures = 0
        self.leading = Leading(self.election, self._catch_up, settle_s=0.3)

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


async def test_who_finds_its_own_record_again_goes_on_at_once() -> None:
    replica = Replica()
    async with replica.taking_over():
        replica.election.win(1)
        await asyncio.sleep(1)
    replica.election.leading.clear()
    assert not replica.leading.decides()
    replica.election.leading.set()
    assert replica.leading.decides()


async def test_a_new_term_is_taken_over_anew() -> None:
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


async def test_lead_that_passes_on_during_the_read_gives_no_right() -> None:
    replica = Replica()
    async with replica.taking_over():
        replica.election.win(1)
        await asyncio.sleep(0.35)
        replica.election.win(3)
        await asyncio.sleep(0.1)
        assert not replica.leading.decides()
        await asyncio.sleep(0.4)
        assert replica.leading.decides()


async def test_read_that_fails_is_tried_again() -> None:
    replica = Replica()
    replica.failures = 3
    async with replica.taking_over():
        replica.election.win(1, follows_release=True)
        await asyncio.sleep(10)
        assert replica.leading.decides()


async def test_who_stops_decides_nothing_any_more() -> None:
    replica = Replica()
    async with replica.taking_over():
        replica.election.win(1)
        await asyncio.sleep(1)
        replica.leading.stop()
        assert not replica.leading.decides()
    async with replica.taking_over():
        await asyncio.sleep(60)
        assert not replica.leading.decides()
