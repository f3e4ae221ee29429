"""Whatever happens, and whenever a page is opened: what it shows is what a page shows that is opened now."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from console.data.read_scope import ReadScope
from console.data.streams.viewer import ViewerStream
from console.visibility import Visibility
from tests.support import console_feed
from tests.support.console_worlds import ConsoleWorld

VISIBILITIES = (
    console_feed.EVERYTHING,
    Visibility(namespaces=None, nodes=False),
    Visibility(namespaces=frozenset({"northern"}), nodes=True),
    Visibility(namespaces=frozenset(), nodes=False),
)
SCOPES = (
    console_feed.WHOLE,
    ReadScope(all_pods=False, namespace="northern", nodes=True, inventories=True),
)


@dataclass
class Viewer:
    visibility: Visibility
    stream: ViewerStream
    page: console_feed.ConsoleView = field(default_factory=console_feed.ConsoleView)
    has_read: bool = False


class StreamHistories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.viewers: list[Viewer] = []

    @initialize(seed=st.integers(0, 10**9), scope=st.sampled_from(SCOPES))
    def start(self, seed: int, scope: ReadScope) -> None:
        self.feed = console_feed.ConsoleFeed(scope=scope)
        self.world = ConsoleWorld(self.feed, seed)
        self.feed.flush()

    @rule(changes=st.integers(1, 8), ticks=st.integers(0, 2))
    def change(self, changes: int, ticks: int) -> None:
        for _ in range(changes):
            self.world.change()
        for _ in range(ticks):
            self.feed.tick()

    @rule(visibility=st.sampled_from(VISIBILITIES))
    def open(self, visibility: Visibility) -> None:
        self.viewers.append(Viewer(visibility, self.feed.open(visibility)))

    @precondition(lambda self: any(not item.has_read for item in self.viewers))
    @rule(turns=st.lists(st.integers(0, 6), max_size=4))
    def change_while_a_snapshot_is_made(self, turns: list[int]) -> None:
        viewer = next(item for item in self.viewers if not item.has_read)
        viewer.has_read = True

        async def read() -> bytes:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(console_feed.next_whole_event(viewer.stream))
                for turn in turns:
                    for _ in range(turn):
                        await asyncio.sleep(0)
                    self.world.change()
                    self.feed.tick()
            return reading.result()

        viewer.page.apply(self.runner.run(read()))

    @precondition(lambda self: self.viewers)
    @rule(data=st.data(), turns=st.integers(0, 8))
    def read_and_give_up(self, data: st.DataObject, turns: int) -> None:
        """Ask for an event, and be cancelled while it is awaited: none is lost."""
        viewer = data.draw(st.sampled_from(self.viewers))

        async def give_up() -> list[bytes]:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(console_feed.next_whole_event(viewer.stream))
                for _ in range(turns):
                    await asyncio.sleep(0)
                if reading.done():
                    return [reading.result()]
                reading.cancel()
            return []

        for event in self.runner.run(give_up()):
            viewer.has_read = True
            viewer.page.apply(event)

    @precondition(lambda self: self.viewers)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        viewer = data.draw(st.sampled_from(self.viewers))
        viewer.stream.close()
        viewer.stream.close()
        self.viewers.remove(viewer)

    @rule()
    def catch_up(self) -> None:
        self.feed.tick()
        for viewer in self.viewers:
            for event in self.runner.run(all_events(viewer)):
                viewer.page.apply(event)
            assert viewer.page.sections == self.current(viewer.visibility)
            newcomer = Viewer(viewer.visibility, self.feed.open(viewer.visibility))
            for event in self.runner.run(all_events(newcomer)):
                newcomer.page.apply(event)
            assert newcomer.page.sections == viewer.page.sections
            newcomer.stream.close()

    @invariant()
    def every_stream_is_counted(self) -> None:
        if hasattr(self, "feed"):
            assert len(self.feed.hub) == len(self.viewers)

    def current(self, visibility: Visibility) -> dict[str, dict[str, Any]]:
        return {name: self.feed.section(name, visibility) for name in console_feed.SECTIONS}

    def teardown(self) -> None:
        with self.runner:
            if hasattr(self, "feed"):
                self.catch_up()


async def all_events(viewer: Viewer) -> list[bytes]:
    found: list[bytes] = []
    if not viewer.has_read:
        viewer.has_read = True
        found.append(await console_feed.next_whole_event(viewer.stream))
    return found + await console_feed.waiting_events(viewer.stream)


PROFILE = settings()
StreamHistories.TestCase.settings = settings(
    max_examples=max(60, PROFILE.max_examples), stateful_step_count=20
)
TestStreamHistories = StreamHistories.TestCase
