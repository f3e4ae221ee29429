"""What the console does for its viewers: all rows at the start, snapshots, steps with few changes, and many streams.

Correct: what a page shows that has applied every event is what the table has, and a pod that is tried is placed where the
table says that units are free.
"""

import asyncio
import contextlib
import gc
import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from api.foreign.core import Node, Pod
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import GPUPool
from console.console_data import PodTrial
from console.data.answers.pod_details import pod_detail
from console.data.answers.pod_trials import MOST_TIMES, try_pods
from console.data.state.watched_pods import watched_pod
from console.visibility import Visibility
from pool.facts import node_facts
from reconciler.sinks.device import observe_device
from tests.bench.report import Result, at_most, checked, in_ms
from tests.bench.world import DEVICES, WHOLE, World, a_pod
from tests.support import console_feed

if TYPE_CHECKING:
    from console.data.state.watched_pods import WatchedPod
    from pool.model import UnitlessPod
    from tests.bench.sizes import ClusterSize, Sizes

CHANGES: Final = 25
"""In a quarter of a second."""
TICKS_A_SECOND: Final = 4
STREAMS: Final = 50
SNAPSHOT_MS, TICK_MS, CORE_PCT = 500.0, 5.0, 20.0
OTHERS: Final = Visibility(namespaces=frozenset({"other-team"}), nodes=False)
"""Whose pods are none of these: every row with a holder is another one."""


async def measure(sizes: "Sizes") -> list[Result]:
    """Measure the console at each size of the cluster."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    results: list[Result] = []
    for size in sizes.console_clusters:
        console = _Console(size)
        results.append(console.first_rows())
        with _frozen_garbage():
            results += await console.snapshots(sizes.console_snapshots)
            results.append(await console.ticks(sizes.console_ticks))
            results.append(await console.streams(sizes.console_ticks))
            results += console.answers(sizes.console_answers)
    return results


@contextlib.contextmanager
def _frozen_garbage() -> Iterator[None]:
    """Keep the collector from what the lists have made, as the console's process does."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _Console:
    """A cluster of which half of the units are in use."""

    def __init__(self, size: "ClusterSize") -> None:
        self._feed = console_feed.ConsoleFeed()
        self._case = f"{size.nodes:,} nodes, {size.nodes * DEVICES:,} devices, {size.pods:,} pods"
        world = World(nodes=size.nodes, pods=size.pods, pool_count=1)
        self._pods = list(_pods(world))
        stores = self._feed.state.stores
        stores.pool_sink.replace_all(list(_decoded(world.pools(), GPUPool)))
        stores.device_sink.replace_all(
            [observe_device(item) for item in _decoded(world.devices(), GPUDevice)]
        )
        stores.node_sink.replace_all(
            [node_facts(item) for item in _decoded(world.node_objects(), Node)]
        )
        self._feed.state.pods.replace_all(self._pods)

    def first_rows(self) -> Result:
        """Make all rows, as between the last list and the first picture."""
        rows = self._feed.rows
        steps: list[float] = []
        while not steps or rows.is_behind or rows.has_moved:
            began = time.thread_time()
            rows.step()
            steps.append(time.thread_time() - began)
        self._feed.hub.publish()
        assert len(rows.table.section("devices")) == len(list(self._feed.state.index.devices.all()))
        checked("rows of the start")
        return self._result("all rows", [sum(steps)], stall_cpu_ms=max(steps) * 1e3)

    async def snapshots(self, count: int) -> list[Result]:
        """Encode snapshots for viewers who see all pods, and for those who see none of them."""
        results = []
        for whose, visibility in (("all pods", console_feed.EVERYTHING), ("no pod", OTHERS)):
            samples = []
            for _ in range(count):
                stream = self._feed.open(visibility)
                began = time.thread_time()
                parts = [await stream.next_event()]
                while stream.is_inside_event:
                    parts.append(await stream.next_event())
                samples.append(time.thread_time() - began)
                stream.close()
                self._check(b"".join(parts), visibility)
            case = f"snapshot for a viewer of {whose}"
            results.append(self._result(case, samples, at_most("p50_ms", SNAPSHOT_MS)))
        return results

    async def ticks(self, count: int) -> Result:
        """Let pods end and come again, and make rows and events of it."""
        stream = self._feed.open()
        page = console_feed.ConsoleView()
        page.apply(await console_feed.next_whole_event(stream))
        samples: list[float] = []
        for number in range(count):
            self._change(number)
            began = time.thread_time()
            self._feed.tick()
            samples.append(time.thread_time() - began)
            for event in await console_feed.waiting_events(stream):
                page.apply(event)
        stream.close()
        assert page.sections == {name: self._feed.section(name) for name in console_feed.SECTIONS}
        checked("page after changes")
        case = f"{CHANGES} devices change"
        return self._result(case, samples, at_most("p50_ms", TICK_MS))

    async def streams(self, count: int) -> Result:
        """Send the same changes to many viewers by loopback; another thread reads."""
        with _discarding_port() as port:
            writers = []
            for _ in range(STREAMS):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                stream = self._feed.open()
                await console_feed.next_whole_event(stream)
                writers.append((stream, writer))
            spent = 0.0
            for number in range(count):
                self._change(number)
                began = time.thread_time()
                self._feed.tick()
                for stream, writer in writers:
                    for event in await console_feed.waiting_events(stream):
                        writer.write(event)
                        await writer.drain()
                spent += time.thread_time() - began
            for stream, writer in writers:
                stream.close()
                writer.close()
                await writer.wait_closed()
        core_pct = 100 * spent * TICKS_A_SECOND / count
        checked("streams")
        case = f"{STREAMS} streams, {CHANGES * TICKS_A_SECOND} changes a second"
        return Result(
            subject="console",
            case=f"{case}, {self._case}",
            samples=count,
            core_pct=core_pct,
            aims=(at_most("core_pct", CORE_PCT),),
        )

    def answers(self, count: int) -> list[Result]:
        """Ask about a pod that waits, and about pods that do not exist."""
        self._feed.put(a_pod("waits", WHOLE, DEVICES + 1))
        self._feed.flush()
        viewer, state, rows = self._feed.viewer(), self._feed.state, self._feed.rows
        details, trials = [], []
        for _ in range(count):
            began = time.thread_time()
            detail = pod_detail(state, rows, "ml-team/waits", viewer=viewer)
            details.append(time.thread_time() - began)
            assert detail is not None
            assert detail.row.reason == "PodTooLarge"
            trial = PodTrial(pool=WHOLE, units=1, times=MOST_TIMES)
            began = time.thread_time()
            answer = try_pods(state, rows.explanations, trial, viewer=viewer)
            trials.append(time.thread_time() - began)
            free = self._feed.section("pools")[WHOLE].free
            assert sum(item.pods for item in answer.placed) == min(MOST_TIMES, free)
        checked("answers")
        return [
            self._result("why a pod waits", details),
            self._result(f"what if {MOST_TIMES:,} pods came", trials),
        ]

    def _change(self, number: int) -> None:
        """Let some pods end, and come again the next time."""
        turn, is_back = divmod(number, 2)
        start = turn * CHANGES % max(1, len(self._pods) - CHANGES)
        for pod in self._pods[start : start + CHANGES]:
            if is_back:
                self._feed.state.pods.upsert(pod)
            else:
                self._feed.state.pods.discard(pod)

    def _check(self, event: bytes, visibility: Visibility) -> None:
        page = console_feed.ConsoleView()
        page.apply(event)
        assert page.sections == {
            name: self._feed.section(name, visibility) for name in console_feed.SECTIONS
        }
        checked("snapshot")

    def _result(self, case: str, samples: list[float], *aims: Any, **more: Any) -> Result:
        p50, p99 = in_ms(samples)
        return Result(
            subject="console",
            case=f"{case}, {self._case}",
            samples=len(samples),
            p50_ms=p50,
            p99_ms=p99,
            aims=aims,
            **more,
        )


def _pods(world: World) -> "Iterator[WatchedPod | UnitlessPod]":
    for pod in _decoded(world.bound_pods(), Pod):
        seen = watched_pod(pod)
        if seen is not None:
            yield seen


def _decoded(items: Any, type_: type[Any]) -> Iterator[Any]:
    """Decode objects as an informer does."""
    decoder = msgspec.json.Decoder(type_)
    for item in items:
        yield decoder.decode(msgspec.json.encode(item))


@contextlib.contextmanager
def _discarding_port() -> Iterator[int]:
    """Listen on a port, and read and drop whatever comes, in a thread."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=STREAMS)
    thread = threading.Thread(target=_discard, args=(listener,))
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join()
        listener.close()


def _discard(listener: socket.socket) -> None:
    peers = [listener.accept()[0] for _ in range(STREAMS)]
    threads = [threading.Thread(target=_drain, args=(peer,)) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _drain(peer: socket.socket) -> None:
    with peer:
        while peer.recv(1 << 16):
            pass
