"""A server process to be measured: the real application on the real port, its allocation state filled without an
API server; and the echo.

    python -m tests.bench.served --port P --certificates DIR --nodes N --pods M
    python -m tests.bench.served --port P --certificates DIR --echo

The echo reads the request and answers with as many bytes as the last part of the path says: plain
aiohttp, same TLS settings, same loop, nothing decided.
Prints `ready` when it listens.
"""

import argparse
import asyncio
import sys
from collections import deque
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import uvloop
from aiohttp import web

from api.clock import Instant
from api.foreign.core import Node, Pod
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import GPUPool
from api.names import RESOURCE_PREFIX, PodUid, ReservationId
from certs.bundle import KeyPair, ServingBundle
from certs.tls import ServingContext
from http_edge.limits import Limits
from http_edge.listener import Port
from http_edge.system_clock import SystemClock
from http_edge.tuning import freeze_garbage_collector
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from pool.facts import node_facts, pod_facts
from pool.model import ContainerDemand, ContainerRole, Demand, PodFacts, PodPhase
from reconciler.pod.reservation_expiry import ReservationExpiry
from reconciler.sinks.device import observe_device
from reconciler.sinks.namespace import NamespaceSink
from reconciler.sinks.node import NodeSink
from reconciler.sinks.pod import PodSink
from reconciler.sinks.pool import PoolSink
from server.process import ControlPlane
from server.settings import LeadershipSettings, ListenSettings, Settings
from telemetry.logs import configure_logs
from tests.bench.world import MEMBERS_POOL, SLICES, World

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from pool.reservations.reservation import Reservation

T = TypeVar("T")

PUBLISHED_EVERY_S: Final = 0.01
GONE_AFTER_S: Final = 5.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--certificates", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--pods", type=int, default=0)
    parser.add_argument("--pool-count", type=int, default=2)
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--waiting", type=int, default=0)
    parser.add_argument("--echo", action="store_true")
    uvloop.run(serve(parser.parse_args()))


async def serve(options: argparse.Namespace) -> None:
    logs = configure_logs("info")
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        if options.echo:
            runner = web.AppRunner(echo_app(), access_log=None)
            await runner.setup()
            context = load(ServingContext(), options.certificates)
            await web.TCPSite(runner, "127.0.0.1", options.port, ssl_context=context).start()
        else:
            plane = filled_plane(options)
            context = load(plane.certificates._serving, options.certificates)
            listen = ListenSettings(host="127.0.0.1", port=options.port)
            await stack.enter_async_context(
                Port(plane.build_routes(), listen, context, clock=plane.clock, limits=Limits())
            )
            group.create_task(ReservationExpiry(plane.allocation_state, plane.clock.instant).run())
            group.create_task(show_pods(plane))
        freeze_garbage_collector()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        group.create_task(logs.flush_regularly())
        await asyncio.Event().wait()


def filled_plane(options: argparse.Namespace) -> ControlPlane:
    """Feed the allocation state as the informers do."""
    clock = SystemClock()
    client = KubeClient(StaticConnection("http://127.0.0.1:9"), clock)
    settings = Settings(leadership=LeadershipSettings(enabled=False))
    plane = ControlPlane(settings, client, clock)
    plane.readiness.checks.clear()
    plane.signer._shared._keys = {"key": bytes(32)}
    index = plane.allocation_state.index
    world = World(
        nodes=options.nodes,
        pods=options.pods,
        slices=options.slices,
        pool_count=options.pool_count,
    )
    PoolSink(index, plane.catalog).replace_all(list(_as(GPUPool, [*world.pools(), MEMBERS_POOL])))
    devices = _as(GPUDevice, world.devices())
    plane.stores.device_sink.replace_all([observe_device(device) for device in devices])
    nodes = _as(Node, world.node_objects())
    NodeSink(index).replace_all([node_facts(node) for node in nodes])
    pods = (pod_facts(item) for item in _as(Pod, world.bound_pods()))
    PodSink(plane.allocation_state, clock.instant).replace_all(
        [pod for pod in pods if pod is not None]
    )
    NamespaceSink(plane.catalog).replace_all([])
    for number in range(options.waiting):
        plane.allocation_state.observe_pod(_waiting_pod(number), clock.instant())
    return plane


def _waiting_pod(number: int) -> PodFacts:
    """A pod that holds nothing: some of each priority, one to four units."""
    units = 1 + number % 4
    demand = Demand(
        resource=f"{RESOURCE_PREFIX}{SLICES}",
        containers=(ContainerDemand("main", ContainerRole.MAIN, units),),
        units=units,
    )
    return PodFacts(
        uid=PodUid(f"uid-waiting-{number}"),
        namespace="ml-team",
        name=f"waiting-{number}",
        demand=demand,
        phase=PodPhase.PENDING,
        priority=number % 10,
    )


async def show_pods(plane: ControlPlane) -> None:
    """Do what the pods' watch does: show each admitted pod soon, and its end a few seconds later."""
    allocation_state, now = plane.allocation_state, plane.clock.instant
    admitted: list[Reservation] = []
    current: deque[tuple[float, PodUid]] = deque()
    tie = allocation_state.tie

    def tie_and_note(id_: ReservationId, uid: PodUid, *, name: str, now: Instant) -> bool:
        is_tied = tie(id_, uid, name=name, now=now)
        reservation = allocation_state.ledger.get(id_)
        if reservation is not None:
            admitted.append(reservation)
        return is_tied

    allocation_state.tie = tie_and_note  # type: ignore[method-assign]  # instead of a whole watch
    while True:
        await asyncio.sleep(PUBLISHED_EVERY_S)
        for item in admitted:
            if item.uid is None:
                continue
            pod = PodFacts(
                uid=item.uid,
                namespace=item.namespace,
                name=item.name,
                demand=item.demand,
                phase=PodPhase.PENDING,
            )
            allocation_state.observe_pod(pod, now())
            current.append((now().monotonic + GONE_AFTER_S, item.uid))
        admitted.clear()
        while current and current[0][0] <= now().monotonic:
            allocation_state.discard_pod(current.popleft()[1])


def _as(kind: type[T], objects: "Iterable[dict[str, Any]]") -> "Iterable[T]":
    return (msgspec.convert(object_, kind) for object_ in objects)


def echo_app() -> web.Application:
    app = web.Application(client_max_size=16 * 2**20)

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(
            body=b" " * int(request.match_info["size"]), content_type="application/json"
        )

    app.router.add_post("/echo/{size}", answer)
    return app


def load(serving: ServingContext, directory: Path) -> "ssl.SSLContext":
    pair = KeyPair(
        certificate_pem=(directory / "tls.crt").read_bytes(),
        key_pem=(directory / "tls.key").read_bytes(),
    )
    serving.load(ServingBundle(trust_pem=(directory / "ca.crt").read_bytes(), pair=pair))
    return serving.context


if __name__ == "__main__":
    main()
