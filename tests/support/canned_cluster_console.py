"""The console's own edge and page over a made-up cluster of any size, which changes when it is told to.

`python -m tests.support.canned_cluster_console --nodes 5000 --pods 20000 --rate 100` is for work on the page.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

from api.clock import Clock
from console.console_data import BadQuestionError, PodTrial
from console.edge.console_answers import RefusedError
from console.edge.console_application import ConsoleApplication
from console.edge.console_port import ConsolePort
from console.edge.local_login import LocalLogin
from console.edge.static_files import StaticFiles
from console.edge.viewer_login import LoggedIn, ViewerLogin
from console.rows import DeviceDetail, PodDetail, StreamEnd, ViewerRow, WhatIfAnswer
from console.visibility import Visibility
from http_edge.listening_sockets import open_listeners
from http_edge.reviews.reviewed_tokens import bearer_token
from http_edge.system_clock import SystemClock
from tests.support.canned_cluster import KINDS, CannedCluster, PoolKind
from tests.support.canned_rows import CannedRows

if TYPE_CHECKING:
    from aiohttp import web

EVERYTHING: Final = ViewerRow(all_namespaces=True, nodes=True)
_TICK_S: Final = 0.1
_KEEP_ALIVE_S: Final = 15


class CannedClusterStream:
    """The events of one viewer."""

    def __init__(self, close: Callable[["CannedClusterStream"], None]) -> None:
        self.events: asyncio.Queue[bytes] = asyncio.Queue()
        self._close = close

    @property
    def is_inside_event(self) -> bool:
        return False

    async def next_event(self) -> bytes:
        return await self.events.get()

    def close(self) -> None:
        self._close(self)


class CannedClusterData:
    """A `ConsoleData`: `publish` sends what the cluster has changed."""

    def __init__(
        self, cluster: CannedCluster, clock: Clock, *, partial: tuple[str, ...] = ()
    ) -> None:
        self.cluster = cluster
        self.rows = CannedRows(cluster)
        self.is_ready = True
        self.partial = partial
        self.streams: set[CannedClusterStream] = set()
        self._clock = clock

    def open_stream(
        self, viewer: ViewerRow, visibility: Visibility, *, drop: Callable[[], None]
    ) -> CannedClusterStream:
        del visibility, drop
        # What changed before is for the others alone.
        self.publish()
        stream = CannedClusterStream(self.streams.discard)
        snapshot = self.rows.snapshot(self._clock.utc_now(), viewer, self.partial)
        stream.events.put_nowait(_event("snapshot", snapshot))
        self.streams.add(stream)
        return stream

    def publish(self) -> None:
        """Send what has changed since the last call to everybody."""
        self._send("change", self.rows.change(self._clock.utc_now()))

    def end(self, message: str, *, is_login_needed: bool = False) -> None:
        """Tell everybody that its stream ends."""
        self._send("end", StreamEnd(message=message, is_login_needed=is_login_needed))

    def _send(self, kind: str, document: msgspec.Struct) -> None:
        event = _event(kind, document)
        for stream in self.streams:
            stream.events.put_nowait(event)

    def device(self, name: str, visibility: Visibility) -> DeviceDetail | None:
        del visibility
        return self.rows.detail(name)

    def pod(self, namespace: str, name: str, visibility: Visibility) -> PodDetail | None:
        del visibility
        return self.rows.pod(f"{namespace}/{name}")

    def try_pods(self, trial: PodTrial, visibility: Visibility) -> WhatIfAnswer:
        if visibility.namespaces is not None:
            raise BadQuestionError("pods of all namespaces may not be listed")
        if trial.pool not in self.cluster.kinds:
            raise BadQuestionError(f"there is no pool {trial.pool}")
        for node in trial.cordoned:
            if node not in self.cluster.by_node:
                raise BadQuestionError(f"there is no node {node}")
        return self.rows.try_pods(trial.pool, trial.units, trial.times, frozenset(trial.cordoned))


def _event(kind: str, document: msgspec.Struct) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(document))


class OpenLogin:
    """A `ViewerLogin` that asks nobody, or for one bearer token; `refusal` is its answer where it is set."""

    def __init__(self, viewer: ViewerRow = EVERYTHING, *, token: str = "") -> None:
        self.viewer_row = viewer
        self.token = token
        self.refusal: RefusedError | None = None

    def check_host(self, host: str) -> None:
        pass

    def log_in(self, request: "web.BaseRequest") -> "web.Response":
        raise RefusedError(HTTPStatus.NOT_FOUND, "there is nothing to log in to")

    async def viewer(self, request: "web.BaseRequest", namespace: str | None) -> LoggedIn:
        if self.refusal is not None:
            raise self.refusal
        given = bearer_token(request.headers.get("Authorization", "").encode())
        if self.token and given != self.token.encode():
            headers = {"WWW-Authenticate": "Bearer"}
            raise RefusedError(HTTPStatus.UNAUTHORIZED, "the token is not accepted", headers)
        row = self.viewer_row
        if row.can_choose_namespace and namespace:
            row = msgspec.structs.replace(row, namespace=namespace)
        return logged_in(row)


def logged_in(row: ViewerRow) -> LoggedIn:
    """Return a viewer with the rights that its row says."""
    namespaces = None if row.all_namespaces else frozenset({row.namespace} - {""})
    return LoggedIn(row=row, visibility=Visibility(namespaces=namespaces, nodes=row.nodes))


@asynccontextmanager
async def serving(
    data: CannedClusterData,
    login: Callable[[int], ViewerLogin],
    clock: Clock,
    *,
    port: int = 0,
) -> AsyncIterator[int]:
    """Serve the page of this checkout on the loopback address; yield the port."""
    async with ConsolePort(await open_listeners("127.0.0.1", port)) as opened:
        application = ConsoleApplication(
            data,
            login(opened.number),
            files=StaticFiles.of_package(),
            clock=clock,
            has_probes=False,
        )
        opened.serve(application)
        yield opened.number


async def keep_changing(data: CannedClusterData, clock: Clock, *, rate: float) -> None:
    """Change the cluster so many times a second, publish ten times a second, and say every 15 s that it is alive."""
    owed, quiet_s = 0.0, 0.0
    while True:
        await asyncio.sleep(_TICK_S)
        owed += rate * _TICK_S
        quiet_s += _TICK_S
        if owed < 1 and quiet_s < _KEEP_ALIVE_S:
            continue
        for _ in range(int(owed)):
            data.cluster.act(clock.utc_now())
        data.publish()
        owed, quiet_s = owed % 1, 0.0


def pool_kinds(count: int) -> tuple[PoolKind, ...]:
    """Return as many pools, all different by their names."""
    further = (
        PoolKind(name=f"pool-{number}", mode="Exclusive", product="NVIDIA-B200")
        for number in range(len(KINDS), count)
    )
    return (*KINDS[:count], *further)


async def _serve(options: argparse.Namespace) -> None:
    clock = SystemClock()
    cluster = CannedCluster(
        now=clock.utc_now(),
        nodes=options.nodes,
        pods=options.pods,
        waiting=options.waiting,
        kinds=pool_kinds(options.pools),
        seed=options.seed,
    )
    data = CannedClusterData(cluster, clock)

    def login(port: int) -> ViewerLogin:
        if options.token:
            return OpenLogin(token=options.token)
        local = LocalLogin(logged_in(EVERYTHING), port, clock)
        print(local.address, flush=True)
        return local

    async with serving(data, login, clock, port=options.port):
        await keep_changing(data, clock, rate=options.rate)


def main() -> None:
    """Serve until it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--nodes", type=int, default=24)
    parser.add_argument("--pods", type=int, default=150)
    parser.add_argument("--waiting", type=int, default=9)
    parser.add_argument("--pools", type=int, default=len(KINDS))
    parser.add_argument("--rate", type=float, default=2, help="changes a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--token", default="", help="asked for as in a cluster")
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
