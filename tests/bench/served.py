"""The measured process: our application over TLS, its books filled without an API server; and the echo.

    python -m tests.bench.served --port P --certificates DIR --nodes N --pods M
    python -m tests.bench.served --port P --certificates DIR --echo

The echo reads the request and answers with as many bytes as the header X-Answer-Bytes of the path's
last part says: same aiohttp, same TLS settings, same loop, nothing decided.
Prints `ready` when it listens.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import uvloop
from aiohttp import web

from api.core import Node, Pod
from api.gpudevice import GPUDevice
from api.gpupool import GPUPool
from certs.bundle import KeyPair, ServingBundle
from certs.tls import ServingContext
from kube.client import KubeClient
from kube.configuration import configuration_for
from pool.facts import node_facts, pod_facts
from reconciler.devices import observe_device
from reconciler.expiry import Expiry
from reconciler.namespaces import NamespaceFeed
from reconciler.nodes import NodeFeed
from reconciler.pods import PodFeed
from reconciler.pools import PoolFeed
from server.clock import SystemClock
from server.collector import calm_collector
from server.settings import Settings
from server.wiring import ControlPlane
from telemetry.logs import configure_logs
from tests.bench import world

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--certificates", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--pods", type=int, default=0)
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--echo", action="store_true")
    uvloop.run(serve(parser.parse_args()))


async def serve(options: argparse.Namespace) -> None:
    logs = configure_logs("info")
    app, background = (echo_app(), None) if options.echo else await our_app(options)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    context = tls_context(options.certificates)
    await web.TCPSite(runner, "127.0.0.1", options.port, ssl_context=context).start()
    calm_collector()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    async with asyncio.TaskGroup() as group:
        group.create_task(logs.flush_regularly())
        await (background or asyncio.Event().wait())


async def our_app(options: argparse.Namespace) -> tuple[web.Application, Any]:
    clock = SystemClock()
    client = KubeClient(configuration_for("http://127.0.0.1:9"), clock)
    plane = ControlPlane(Settings(), client, clock)
    plane.readiness.checks.clear()
    fill(plane, options)
    return plane.build_app(), Expiry(plane.books, clock.instant).run()


def fill(plane: ControlPlane, options: argparse.Namespace) -> None:
    """Feed the books as the informers do."""
    index, clock = plane.books.index, plane.clock
    pods = world.bound_pods(options.pods, options.nodes, options.slices)
    PoolFeed(index, plane.catalog).replace_all(_as(GPUPool, world.pools(options.slices)))
    devices = _as(GPUDevice, world.devices(options.nodes))
    plane.device_feed.replace_all([observe_device(one) for one in devices])
    NodeFeed(index).replace_all([node_facts(one) for one in _as(Node, world.nodes(options.nodes))])
    facts = [pod_facts(one) for one in _as(Pod, pods)]
    PodFeed(plane.books, clock.instant).replace_all([one for one in facts if one is not None])
    NamespaceFeed(plane.catalog).replace_all([])


def _as(kind: type[T], objects: "Iterable[dict[str, Any]]") -> list[T]:
    return [msgspec.convert(one, kind) for one in objects]


def echo_app() -> web.Application:
    app = web.Application(client_max_size=16 * 2**20)

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(
            body=b" " * int(request.match_info["size"]), content_type="application/json"
        )

    app.router.add_post("/echo/{size}", answer)
    return app


def tls_context(directory: Path) -> "ssl.SSLContext":
    serving = ServingContext()
    pair = KeyPair(
        certificate_pem=(directory / "tls.crt").read_bytes(),
        key_pem=(directory / "tls.key").read_bytes(),
    )
    serving.load(ServingBundle(trust_pem=(directory / "ca.crt").read_bytes(), pair=pair))
    return serving.context


if __name__ == "__main__":
    main()
