"""Lists of the informer: in pages, delivered at once before the first request, in steps later."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from api.foreign.core import Pod
from kube.client import KubeClient
from tests.component.kube.mirror import Mirror, a_pod, an_informer, running
from tests.support.canned_api import CannedApi, Hang, Json, Stream, a_list, event, status
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime

GONE = Stream([event("ERROR", status(410, "Expired", "too old resource version: 10 (99)"))])
EXPIRED = Json(status(410, "Expired", "the provided continue parameter is too old"), 410)


class SteppingMirror(Mirror):
    """A mirror that takes a list over pod by pod, and notes which turns others had meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self.reported_at: list[int] = []

    def upsert(self, item: Pod) -> None:
        self.reported_at.append(self.turns)
        asyncio.get_running_loop().call_soon(self.take_turn)
        super().upsert(item)

    def take_turn(self) -> None:
        self.turns += 1

    def replace_in_steps(self, items: Sequence[Pod]) -> Iterator[None]:
        self.calls.append("replacing")
        for name in self.pods.keys() - {item.metadata.name for item in items}:
            del self.pods[name]
        for item in items:
            self.upsert(item)
            yield


async def test_pages_are_told_as_one_list(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = Mirror()
    api.will_answer(a_list(a_pod("p", 1), **{"continue": "c1"}), a_list(a_pod("q", 2)), Hang())
    async with running(an_informer(client, clock, sink)):
        await api.until_seen(3)
    assert sink.calls == ["replace_all"]
    assert sink.pods.keys() == {"p", "q"}
    assert api.seen[1].query["continue"] == "c1"


async def test_pages_are_smaller_once_others_are_served(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(a_list(), GONE, a_list(), Hang())
    async with running(an_informer(client, clock, Mirror())):
        await api.until_seen(4)
    first, _, later, _ = api.seen
    assert int(later.query["limit"]) < int(first.query["limit"])


async def test_after_a_page_that_expired_everything_is_taken_at_once_and_then_pages_again(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = Mirror()
    api.will_answer(
        a_list(a_pod("p", 1), **{"continue": "c1"}),
        EXPIRED,
        a_list(a_pod("p", 1), a_pod("q", 2)),
        GONE,
        a_list(a_pod("q", 2)),
        Hang(),
    )
    async with running(an_informer(client, clock, sink)):
        await api.until_seen(6)
    lists = [seen.query for seen in api.seen if "watch" not in seen.query]
    assert ["limit" in query for query in lists] == [True, True, False, True]
    assert sink.pods.keys() == {"q"}


async def test_nothing_of_a_list_is_told_before_its_last_page_is_there(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = Mirror()
    api.will_answer(a_list(a_pod("p", 1), **{"continue": "c1"}), Hang())
    informer = an_informer(client, clock, sink)
    async with running(informer):
        await api.until_seen(2)
        assert sink.calls == []
        assert not informer.synced.is_set()


async def test_the_first_list_is_told_in_one_go_and_a_later_one_in_steps(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = SteppingMirror()
    pods = [a_pod(f"p{number}", number) for number in range(1, 6)]
    api.will_answer(a_list(a_pod("old", 1)), GONE, a_list(*pods), Hang())
    async with running(an_informer(client, clock, sink)):
        await api.until_seen(4)
    assert sink.calls[:2] == ["replace_all", "replacing"]
    assert sink.pods.keys() == {f"p{number}" for number in range(1, 6)}
    assert len(set(sink.reported_at)) == 5, "others had a turn between any two steps"


async def test_others_get_their_turn_while_a_thousand_events_of_one_read_are_told(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = SteppingMirror()
    burst = b"".join(event("ADDED", a_pod(f"p{number}", number)) for number in range(11, 1_011))
    api.will_answer(a_list(), Stream([burst]))
    async with running(an_informer(client, clock, sink)):
        await asyncio.sleep(1)
    assert len(sink.reported_at) == 1_000
    _, most = Counter(sink.reported_at).most_common(1)[0]
    assert most <= 50


class ListingMirror(SteppingMirror):
    """A mirror that receives lists, too."""

    def list_begins(self) -> None:
        self.calls.append("begins")

    def list_ends(self, version: str) -> None:
        self.calls.append(f"ends at {version}")


async def test_sink_that_wants_to_know_is_told_when_a_list_begins_and_of_which_version_it_is(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = ListingMirror()
    api.will_answer(a_list(version="7"), GONE, EXPIRED, a_list(version="9"), Hang())
    async with running(an_informer(client, clock, sink)):
        await api.until_seen(5)
    first = ["begins", "ends at 7", "replace_all"]
    assert sink.calls == [*first, "begins", "begins", "ends at 9", "replacing"]
