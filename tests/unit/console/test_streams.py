"""Streams: made once for equal rights, never behind without end, and closed once."""

import asyncio
from typing import Any

import msgspec
import pytest

from console.console_data import TooManyViewersError
from console.data.streams.hub import MOST_STREAMS
from console.data.streams.viewer import MOST_BACKLOG, ViewerStream
from console.data.streams.viewer_group import KEEP_ALIVE_S, MOST_LATER
from console.rows import ConsoleChange, ConsoleSnapshot, ViewerRow
from console.visibility import Visibility
from tests.support.cluster_objects import (
    a_device_object,
    a_node_object,
    a_pool_object,
    two_nodes,
)
from tests.support.console_feed import (
    EVERYTHING,
    VIEWER,
    ConsoleFeed,
    ConsoleView,
    decoded,
    next_whole_event,
    waiting_events,
)
from tests.support.plugin_cluster import a_fragmented_cluster

ONE = Visibility(namespaces=frozenset({"ml-team"}), nodes=True)


def changed(feed: ConsoleFeed, text: str) -> None:
    """Let something change that everybody sees."""
    pool = a_pool_object()
    pool["status"] = {"phase": text}
    feed.put(pool)
    feed.tick()


async def drained(stream: ViewerStream) -> list[Any]:
    return [decoded(event) for event in await waiting_events(stream)]


async def test_the_first_event_is_a_whole_snapshot():
    feed = ConsoleFeed(a_fragmented_cluster())
    event = await next_whole_event(feed.open())
    snapshot = decoded(event)
    assert isinstance(snapshot, ConsoleSnapshot)
    assert event.startswith(b'event: snapshot\ndata: {"schema":"console.gpu.deckhouse.io/v1alpha1"')
    assert snapshot.viewer == VIEWER
    assert snapshot.origin == "objects of the test"
    assert (snapshot.at, snapshot.since) == ("2026-11-23T23:00:00Z",) * 2
    assert set(snapshot.devices) == {f"gpu-{node}-{n}" for node in range(3) for n in range(4)}
    assert snapshot.history["training"].free == (5,)
    # What msgspec makes of the whole is the same but for the order of fields.
    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=ConsoleSnapshot) == snapshot


async def test_a_snapshot_of_an_empty_cluster_has_every_section():
    snapshot = decoded(await next_whole_event(ConsoleFeed().open()))
    assert isinstance(snapshot, ConsoleSnapshot)
    assert snapshot.pools == {}
    assert snapshot.history == {}


async def test_viewers_with_equal_rights_share_the_same_bytes():
    feed = ConsoleFeed(two_nodes())
    ann, bob = feed.open(), feed.open(viewer=ViewerRow(name="bob", all_namespaces=True))
    parts = []
    for stream in (ann, bob):
        first = await stream.next_event()
        remaining = [await stream.next_event()]
        while stream.is_inside_event:
            remaining.append(await stream.next_event())
        parts.append((first, remaining))
    assert b'"name":"ann"' in parts[0][0]
    assert b'"name":"bob"' in parts[1][0]
    assert all(item is other for item, other in zip(parts[0][1], parts[1][1], strict=True))
    changed(feed, "Degraded")
    assert await ann.next_event() is await bob.next_event()


async def test_viewers_with_other_rights_get_other_events():
    feed = ConsoleFeed(a_fragmented_cluster())
    all_of_it, one, nothing = (
        feed.open(),
        feed.open(ONE),
        feed.open(Visibility(namespaces=frozenset(), nodes=False)),
    )
    snapshots = [decoded(await next_whole_event(stream)) for stream in (all_of_it, one, nothing)]
    waiting = [set(snapshot.waiting or ()) for snapshot in snapshots]
    assert waiting == [{"ml-team/big"}, {"ml-team/big"}, set()]
    feed.tick()  # the pod is explained
    assert await drained(all_of_it)
    assert await drained(one)
    assert not await drained(nothing)


async def test_a_late_viewer_takes_a_snapshot_that_was_made_before_and_what_came_since():
    feed = ConsoleFeed(two_nodes())
    early = feed.open()
    await next_whole_event(early)
    changed(feed, "Degraded")
    late = feed.open()
    page = ConsoleView()
    for event in (await next_whole_event(late), *await waiting_events(late)):
        page.apply(event)
    assert page.sections["pools"]["whole"].phase == "Degraded"
    changed(feed, "Ready")
    assert [item.pools["whole"].phase for item in await drained(late)] == ["Ready"]


async def test_the_snapshots_that_were_made_last_are_kept_and_no_others():
    feed = ConsoleFeed(two_nodes())
    rights = [Visibility(namespaces=frozenset({f"team-{n}"}), nodes=True) for n in range(6)]
    early = [feed.open(right) for right in rights]
    for stream in early:
        await next_whole_event(stream)
    changed(feed, "Degraded")
    events = []
    for right in reversed(rights):
        late = feed.open(right)
        page = ConsoleView()
        page.apply(await next_whole_event(late))
        events.append(len(await waiting_events(late)))
        late.close()
    assert events == [1, 1, 1, 1, 0, 0]  # of the last four an older snapshot was there


async def test_after_many_changes_a_new_snapshot_is_made():
    feed = ConsoleFeed(two_nodes())
    early = feed.open()
    await next_whole_event(early)
    changes = 0
    while changes < MOST_LATER:
        changed(feed, f"{changes}" + "x" * 20_000)
        changes += sum(map(len, await waiting_events(early)))
    late = feed.open()
    snapshot = decoded(await next_whole_event(late))
    assert isinstance(snapshot, ConsoleSnapshot)
    assert snapshot.pools["whole"].phase.endswith("x" * 20_000)
    assert not await drained(late)


async def test_a_page_hears_that_nothing_has_changed():
    feed = ConsoleFeed(two_nodes())
    stream = feed.open()
    await next_whole_event(stream)
    feed.tick()
    assert not await drained(stream)
    feed.clock.passed_s += KEEP_ALIVE_S
    feed.tick()
    assert await drained(stream) == [ConsoleChange(at="2026-11-23T23:00:15Z")]
    feed.tick()
    assert not await drained(stream)


async def test_a_viewer_that_does_not_read_is_dropped_once():
    feed = ConsoleFeed(two_nodes())
    dropped: list[str] = []
    slow = feed.open(drop=lambda: dropped.append("slow"))
    quick = feed.open(drop=lambda: dropped.append("quick"))
    for stream in (slow, quick):
        await next_whole_event(stream)
    sent = 0
    while sent <= MOST_BACKLOG:
        assert not dropped
        changed(feed, f"{sent}" + "x" * 50_000)
        sent += sum(map(len, await waiting_events(quick)))
    assert dropped == ["slow"]
    assert len(feed.hub) == 1
    changed(feed, "Ready")
    assert dropped == ["slow"]
    with pytest.raises(ConnectionResetError):
        await slow.next_event()
    assert len(await drained(quick)) == 1


async def test_the_snapshot_itself_is_no_backlog():
    objects = [a_pool_object(), a_node_object("n1")]
    objects += [a_device_object("n1", number, product="x" * 10_000) for number in range(110)]
    feed = ConsoleFeed(objects)
    dropped: list[bool] = []
    stream = feed.open(drop=lambda: dropped.append(True))
    event = await next_whole_event(stream)
    assert len(event) > MOST_BACKLOG
    assert not dropped


async def test_so_many_streams_are_open_at_a_time_and_no_more():
    feed = ConsoleFeed(two_nodes())
    streams = [feed.open() for _ in range(MOST_STREAMS)]
    with pytest.raises(TooManyViewersError, match="100 pages are open"):
        feed.open()
    streams[0].close()
    streams[0].close()
    feed.open().close()
    assert len(feed.hub) == MOST_STREAMS - 1


async def test_an_event_that_was_not_taken_is_not_lost():
    feed = ConsoleFeed(two_nodes())
    stream = feed.open()
    await next_whole_event(stream)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await stream.next_event()
    changed(feed, "Degraded")
    assert len(await drained(stream)) == 1


async def test_a_stream_that_is_closed_while_it_waits_ends():
    feed = ConsoleFeed(two_nodes())
    stream, other = feed.open(), feed.open(ONE)
    await next_whole_event(stream)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(ends(stream))
        unread = group.create_task(ends(other))
        await asyncio.sleep(0)
        stream.close()
        other.close()
    assert reading.result()
    assert unread.result()
    assert len(feed.hub) == 0
    changed(feed, "Degraded")


async def ends(stream: ViewerStream) -> bool:
    try:
        await stream.next_event()
    except ConnectionResetError:
        return True
    return False


async def test_explanations_are_looked_for_where_somebody_looks():
    feed = ConsoleFeed(a_fragmented_cluster())
    elsewhere = Visibility(namespaces=frozenset({"other"}), nodes=True)
    feed.open(elsewhere)
    feed.tick()
    assert feed.section("waiting")["ml-team/big"].reason == ""
    feed.open(ONE)
    feed.tick()
    assert feed.section("waiting")["ml-team/big"].reason == "UnitsFragmented"
    assert feed.section("waiting", EVERYTHING)["ml-team/big"].remedies
