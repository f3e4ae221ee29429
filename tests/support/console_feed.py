"""What the console knows of a cluster, fed by hand: objects in, rows and events out, and a clock that stands still."""

import asyncio
import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from api.foreign.core import Node, Pod
from api.foreign.leases import PartialLease
from api.kinds.gkmcache import GKMCache
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from console.console_data import EventStream
from console.data.read_scope import ReadScope
from console.data.state.cluster import ClusterState
from console.data.state.watched_pods import watched_pod
from console.data.streams.hub import StreamHub
from console.data.streams.viewer import ViewerStream
from console.data.tables.cluster_rows import ClusterRows
from console.data.tables.visible_rows import RowViewer
from console.rows import ConsoleChange, ConsoleSnapshot, ViewerRow
from console.visibility import Visibility
from pool.facts import node_facts
from reconciler.sinks.device import observe_device
from reconciler.sinks.gkm_cache import observe_cache
from tests.support.cluster_objects import Object

NOW = dt.datetime(2026, 11, 23, 23, tzinfo=dt.UTC)
WHOLE = ReadScope.whole(system_namespace="gpu-system")
EVERYTHING = Visibility(namespaces=None, nodes=True)
VIEWER = ViewerRow(name="ann", all_namespaces=True, nodes=True)


class StillClock:
    def __init__(self, now: dt.datetime = NOW) -> None:
        self.passed_s = 0.0
        self._start = now

    def monotonic(self) -> float:
        return 1000.0 + self.passed_s

    def set_back(self, by: dt.timedelta) -> None:
        """Set the wall clock."""
        self._start -= by

    def utc_now(self) -> dt.datetime:
        return self._start + dt.timedelta(seconds=self.passed_s)


class ConsoleFeed:
    """The parts of a `ConsoleCluster` without its informers."""

    def __init__(self, objects: Iterable[Object] = (), *, scope: ReadScope = WHOLE) -> None:
        self.clock = StillClock()
        self.state = ClusterState(self.clock, scope)
        self.rows = ClusterRows(self.state)
        self.hub = StreamHub(self.state, self.rows, origin="objects of the test")
        for object_ in objects:
            self.put(object_)
        self.flush()

    def put(self, content: Object) -> None:
        """Let an object be there, as the watch shows it; one that may not be read changes nothing."""
        place = self._place(content)
        if place is not None:
            sink, item = place
            sink.upsert(item)

    def remove(self, content: Object) -> None:
        place = self._place(content)
        if place is not None:
            sink, item = place
            sink.discard(item)

    def list_pods(self, pods: Iterable[Object]) -> None:
        """Let these be all pods, as after a new list."""
        items = [watched_pod(msgspec.convert(pod, Pod, strict=False)) for pod in pods]
        for _ in self.state.pods.replace_in_steps([item for item in items if item is not None]):
            pass

    def tick(self) -> None:
        self.rows.explain(self.hub.sees)
        self.rows.step()
        self.hub.publish()

    def flush(self) -> None:
        """Tick until nothing is left to do."""
        self.tick()
        while self.rows.is_behind or self.rows.has_moved:
            self.tick()

    def viewer(self, visibility: Visibility = EVERYTHING) -> RowViewer:
        return RowViewer(visibility, self.state.moments)

    def section(self, section: Any, visibility: Visibility = EVERYTHING) -> dict[str, Any]:
        """Return the rows of a section as a viewer sees them."""
        viewer = self.viewer(visibility)
        seen = {key: viewer.row(row) for key, row in self.rows.table.section(section).items()}
        return {key: row for key, row in seen.items() if row is not None}

    def open(
        self,
        visibility: Visibility = EVERYTHING,
        *,
        viewer: ViewerRow = VIEWER,
        drop: Callable[[], None] = lambda: None,
    ) -> ViewerStream:
        return self.hub.open(viewer, visibility, drop=drop)

    def _place(self, content: Object) -> tuple[Any, Any] | None:
        stores, scope = self.state.stores, self.state.scope
        match content["kind"]:
            case "GPUPool":
                return stores.pool_sink, msgspec.convert(content, GPUPool, strict=False)
            case "GPUDevice":
                device = msgspec.convert(content, GPUDevice, strict=False)
                return self.state.watched_devices, observe_device(device)
            case "Node":
                node = node_facts(msgspec.convert(content, Node, strict=False))
                return (stores.node_sink, node) if scope.nodes else None
            case "GPUNodeInventory":
                inventory = msgspec.convert(content, GPUNodeInventory, strict=False)
                return (stores.inventory_sink, inventory) if scope.inventories else None
            case "GKMCache":
                cache = observe_cache(msgspec.convert(content, GKMCache, strict=False))
                return stores.gkm_caches.namespaced, cache
            case "Lease":
                return self.state.leases, msgspec.convert(content, PartialLease, strict=False)
            case "Pod":
                pod = watched_pod(msgspec.convert(content, Pod, strict=False))
                is_read = scope.all_pods or content["metadata"]["namespace"] == scope.namespace
                return (self.state.pods, pod) if pod is not None and is_read else None
            case _:
                return None


async def next_whole_event(stream: EventStream) -> bytes:
    """Return an event with all of its parts."""
    parts = [await stream.next_event()]
    while stream.is_inside_event:
        parts.append(await stream.next_event())
    return b"".join(parts)


async def waiting_events(stream: EventStream) -> list[bytes]:
    """Return the events that are there."""
    found: list[bytes] = []
    while True:
        try:
            async with asyncio.timeout(0):
                found.append(await next_whole_event(stream))
        except TimeoutError:
            return found


def decoded(event: bytes) -> ConsoleSnapshot | ConsoleChange:
    """Return what an event of the stream says."""
    head, data, *remaining = event.split(b"\n")
    assert remaining == [b"", b""]
    kind = head.removeprefix(b"event: ")
    body = data.removeprefix(b"data: ")
    if kind == b"snapshot":
        return msgspec.json.decode(body, type=ConsoleSnapshot)
    assert kind == b"change"
    return msgspec.json.decode(body, type=ConsoleChange)


SECTIONS = ("pools", "nodes", "devices", "waiting", "reservations", "ended", "shares", "health")


class ConsoleView:
    """What a page shows that applies each event."""

    def __init__(self) -> None:
        self.sections: dict[str, dict[str, Any]] = {}

    def apply(self, event: bytes) -> None:
        match decoded(event):
            case ConsoleSnapshot() as snapshot:
                self.sections = {name: dict(getattr(snapshot, name)) for name in SECTIONS}
            case ConsoleChange() as change:
                for name in SECTIONS:
                    self._merge(self.sections[name], getattr(change, name) or {})

    @staticmethod
    def _merge(rows: dict[str, Any], changes: dict[str, Any]) -> None:
        for key, row in changes.items():
            if row is None:
                del rows[key]  # what is not there cannot go
            else:
                rows[key] = row
