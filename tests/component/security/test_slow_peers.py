"""Slowloris in every phase: a slow peer is dropped, and other callers are answered meanwhile."""

import asyncio
from dataclasses import replace

import pytest

from http_edge.connections import ConnectionLimiter, ConnectionSlot
from manifests.constants import MUTATE_PODS_PATH, VALIDATE_PODS_PATH
from tests.component.security.conftest import LIMITS, PLACES
from tests.component.security.peers import WITHIN_S, Peer, many, post, post_chunked, tcp, tls
from tests.support.polling import until
from tests.support.reviews import a_pod_object, a_review
from tests.support.served_app import ServedApp, sample

QUESTION = a_review(a_pod_object())


def dropped(cause: str) -> float:
    return sample("gpu_connections_dropped_total", cause=cause)


async def ask(served: ServedApp) -> None:
    """An honest webhook call over a new connection, answered whatever else goes on."""
    reply = await served.post(MUTATE_PODS_PATH, QUESTION)
    assert (reply.status, reply.json["response"]["allowed"]) == (200, True)


async def test_handshake_that_is_never_finished_is_closed(served: ServedApp) -> None:
    before = dropped("handshake")
    async with await tcp(served) as peer:
        await peer.send(b"\x16\x03\x01\x02\x00\x01")
        assert await peer.answer() == b""
    assert dropped("handshake") == before + 1


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"POST /mutate/po", id="in the request line"),
        pytest.param(b"POST /mutate/pods HTTP/1.1\r\nHost: x\r\nX-A", id="in a header"),
    ],
)
async def test_head_that_does_not_end_is_closed(served: ServedApp, sent: bytes) -> None:
    before = dropped("head")
    async with await tls(served) as peer:
        await peer.send(sent)
        assert await peer.answer() == b""
    assert dropped("head") == before + 1


async def test_head_that_dribbles_is_closed_all_the_same(served: ServedApp) -> None:
    """A byte now and then buys no time: it runs from the head's first byte."""
    before = dropped("head")
    async with await tls(served) as peer, asyncio.TaskGroup() as group:
        dribbling = group.create_task(dribble(peer))
        assert await peer.answer() == b""
        dribbling.cancel()
    assert dropped("head") == before + 1


async def dribble(peer: Peer) -> None:
    await peer.send(b"GET /livez HTTP/1.1\r\n")
    while True:
        await peer.send(b"X-More: x\r\n")
        await asyncio.sleep(0.02)


async def test_second_head_of_a_connection_has_to_end_as_well(served: ServedApp) -> None:
    async with await tls(served) as peer:
        await peer.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await peer.status() == 200
        await peer.send(b"GET /li")
        assert (await peer.answer()).endswith(b"ok\n")


async def test_body_that_does_not_come_is_answered_408(served: ServedApp) -> None:
    async with await tls(served) as peer:
        await peer.send(post(MUTATE_PODS_PATH, Content_Length=str(len(QUESTION))), QUESTION[:10])
        assert await peer.status() == 408
    assert served.reservations == 0


async def test_connection_that_has_asked_nothing_yet_may_wait(served: ServedApp) -> None:
    """Go's client opens connections in advance: one closed under it costs a pod creation."""
    async with await tls(served) as peer:
        await asyncio.sleep(0.5)  # longer than the deadlines of handshakes and heads
        await peer.send(post(MUTATE_PODS_PATH, QUESTION))
        assert await peer.status() == 200


@pytest.mark.parametrize("limits", [LIMITS], ids=["usual deadlines"])
@pytest.mark.parametrize("phase", ["no handshake", "no head", "no body"])
async def test_flood_of_silent_connections_keeps_nobody_out(served: ServedApp, phase: str) -> None:
    async def attack() -> Peer:
        if phase == "no handshake":
            return await tcp(served)
        peer = await tls(served)
        if phase == "no head":
            await peer.send(b"POST /mutate/pods HTTP/1.1\r\n")
        else:
            await peer.send(post(VALIDATE_PODS_PATH, Content_Length="1000"))
        return peer

    before = dropped("limit")
    async with many([await attack() for _ in range(3 * PLACES)]):
        await until(lambda: dropped("limit") >= before + 2 * PLACES)
        for _ in range(3):
            await ask(served)


@pytest.mark.parametrize("limits", [LIMITS], ids=["usual deadlines"])
async def test_connection_in_use_outlives_a_flood_of_newcomers(served: ServedApp) -> None:
    async with await tls(served) as honest:
        await honest.send(post(MUTATE_PODS_PATH, QUESTION))
        assert await honest.status() == 200
        before = dropped("limit")
        async with many([await tcp(served) for _ in range(3 * PLACES)]):
            await until(lambda: dropped("limit") >= before + 2 * PLACES)
            await honest.send(post(MUTATE_PODS_PATH, QUESTION))
            assert b"HTTP/1.1 200" in await read_past(honest)


async def read_past(peer: Peer) -> bytes:
    """Return what came until the next status line."""
    read = b""
    async with asyncio.timeout(WITHIN_S):
        while b"HTTP/1.1" not in read:
            line = await peer._reader.readline()
            assert line, "the connection was closed"
            read += line
    return read


@pytest.mark.parametrize(
    "limits", [replace(LIMITS, connections=4 * LIMITS.large_bodies)], ids=["slots enough"]
)
async def test_large_bodies_that_do_not_come_delay_no_ordinary_one(served: ServedApp) -> None:
    """They are read so many at a time, which bounds memory; small ones do not wait for them."""
    peers = [await tls(served) for _ in range(2 * LIMITS.large_bodies)]
    async with many(peers):
        for peer in peers:
            await peer.send(post_chunked(VALIDATE_PODS_PATH), b"5\r\n{....\r\n")
        await ask(served)
        assert {await peer.status() for peer in peers} == {408}


def test_who_has_been_silent_longest_gives_way() -> None:
    lost: list[str] = []

    def come(name: str) -> ConnectionSlot:
        return limiter.acquire(lambda: lost.append(name))

    limiter = ConnectionLimiter(3)
    first, second, third = come("first"), come("second"), come("third")
    limiter.mark_active(first)
    limiter.mark_active(second)
    fourth = come("fourth")
    assert lost == ["third"], "a connection without requests goes first"
    limiter.mark_active(third)  # too late
    limiter.mark_active(fourth)
    limiter.mark_active(first)
    limiter.release(come("fifth"))
    assert lost == ["third", "second"], "then the one that asked longest ago"
    assert len(limiter) == 2
