"""What a disturbed watch shows to its client."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.fault.streams import Disturbance, WatchStream


def an_event(uid: str, version: int, change: str = "MODIFIED") -> bytes:
    metadata = {"uid": uid, "resourceVersion": str(version)}
    return json.dumps({"type": change, "object": {"metadata": metadata}}).encode() + b"\n"


class Client:
    """Keeps what it is sent, piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    async def write(self, data: bytes) -> None:
        self.pieces.append(data)

    def versions(self) -> list[str]:
        lines = b"".join(self.pieces).splitlines()
        return [json.loads(line)["object"]["metadata"]["resourceVersion"] for line in lines]


class Watch:
    """A watch under way: `say` is the API server's side."""

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()
        self.stream = WatchStream(self.used)
        self.client = Client()
        self.over: asyncio.Task[bool]
        self._lines: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()

    async def lines(self) -> AsyncIterator[bytes]:
        while (line := await self._lines.get()) is not None:
            if isinstance(line, Exception):
                raise line
            yield line

    async def say(self, *lines: bytes | Exception | None) -> None:
        for line in lines:
            self._lines.put_nowait(line)
        await asyncio.sleep(0.01)

    def disturb(self, disturbance: Disturbance, amount: float = 0) -> None:
        assert self.stream.disturb(disturbance, disturbance.value, amount)


@pytest.fixture
async def watch():
    opened = Watch()
    async with asyncio.TaskGroup() as group:
        opened.over = group.create_task(opened.stream.pump(opened.lines(), opened.client))
        yield opened
        await opened.say(None)


ONE, TWO, THREE = an_event("a", 1), an_event("b", 2), an_event("b", 3)
BOOKMARK = an_event("", 9, "BOOKMARK")


@pytest.mark.looptime
async def test_undisturbed_watch_passes_as_it_is_and_ends_properly(watch):
    await watch.say(ONE, TWO, BOOKMARK, None)
    assert watch.client.versions() == ["1", "2", "9"]
    assert await watch.over is True
    assert not watch.used


@pytest.mark.looptime
async def test_cut_ends_the_watch_with_a_reset(watch):
    await watch.say(ONE)
    watch.disturb(Disturbance.CUT)
    assert await watch.over is False
    assert watch.used == {"cut": 1}


@pytest.mark.looptime
async def test_watch_that_breaks_at_the_api_server_ends_with_a_reset_that_is_nobodys_doing(watch):
    await watch.say(ONE, aiohttp.ClientPayloadError("broken"))
    assert await watch.over is False
    assert not watch.used


@pytest.mark.looptime
async def test_gone_is_an_error_event_and_the_end(watch):
    await watch.say(ONE)
    watch.disturb(Disturbance.GONE)
    assert await watch.over is True
    last = json.loads(watch.client.pieces[-1])
    assert (last["type"], last["object"]["code"], last["object"]["reason"]) == (
        "ERROR",
        410,
        "Expired",
    )


@pytest.mark.looptime
async def test_slow_watch_shows_everything_later(watch):
    watch.disturb(Disturbance.SLOW, 2)
    await watch.say(ONE, TWO)
    assert watch.client.versions() == []
    await asyncio.sleep(2)
    assert watch.client.versions() == ["1", "2"]


@pytest.mark.looptime
async def test_next_event_comes_twice(watch):
    watch.disturb(Disturbance.TWICE)
    await watch.say(ONE, TWO)
    assert watch.client.versions() == ["1", "1", "2"]
    assert watch.used == {"twice": 1}


@pytest.mark.looptime
async def test_replay_shows_the_latest_events_again_in_their_order(watch):
    await watch.say(ONE, TWO)
    watch.disturb(Disturbance.REPLAY, 1)
    assert not watch.used
    await watch.say(THREE)
    assert watch.client.versions() == ["1", "2", "3", "2", "3"]
    assert watch.used == {"replay": 1}


@pytest.mark.looptime
async def test_events_of_two_objects_trade_places_in_one_piece(watch):
    watch.disturb(Disturbance.SWAP)
    await watch.say(ONE, TWO)
    assert watch.client.versions() == ["2", "1"]
    assert len(watch.client.pieces) == 1
    assert watch.used == {"swap": 1}


@pytest.mark.looptime
async def test_events_of_one_object_never_trade_places(watch):
    watch.disturb(Disturbance.SWAP)
    await watch.say(TWO, THREE, ONE)
    assert watch.client.versions() == ["2", "3"]
    assert not watch.used
    await asyncio.sleep(2)
    assert watch.client.versions() == ["2", "3", "1"]


@pytest.mark.looptime
async def test_bookmark_overtakes_no_event(watch):
    watch.disturb(Disturbance.SWAP)
    await watch.say(ONE, BOOKMARK)
    assert watch.client.versions() == ["1", "9"]
