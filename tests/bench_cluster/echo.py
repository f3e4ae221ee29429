"""The echo extender: the verbs and the TLS settings of ours, and nothing decided.

    python -m tests.bench_cluster.echo --port P --certificates DIR --kubeconfig FILE

filter passes every name, prioritize scores every name 0, bind sends a Binding with an annotation of
the usual length. Beside them the two webhooks of `idle`. Prints `ready` when it listens.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop
from aiohttp import web

from certs.bundle import KeyPair, ServingBundle
from certs.tls import ServingContext
from tests.bench_cluster import idle
from tests.cluster.environment import client

if TYPE_CHECKING:
    import ssl

_ANNOTATIONS = {"example.com/devices": '{"main":["GPU-bench-0123456789abcdef-0"]}'}
_API = web.AppKey("api", client.ApiClient)


class _Arguments(msgspec.Struct):
    NodeNames: list[str]


class _BindArguments(msgspec.Struct):
    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


_arguments = msgspec.json.Decoder(_Arguments)
_bind_arguments = msgspec.json.Decoder(_BindArguments)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--certificates", type=Path, required=True)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    uvloop.run(_serve(parser.parse_args()))


async def _serve(options: argparse.Namespace) -> None:
    async with client.open_client(options.kubeconfig) as api:
        app = web.Application(client_max_size=16 * 2**20)
        app[_API] = api
        app.router.add_post("/filter", _filter)
        app.router.add_post("/prioritize", _prioritize)
        app.router.add_post("/bind", _bind)
        app.add_routes(idle.routes())
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        context = _context(options.certificates)
        await web.TCPSite(runner, "127.0.0.1", options.port, ssl_context=context).start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


async def _filter(request: web.Request) -> web.Response:
    names = _arguments.decode(await request.read()).NodeNames
    return _answer({"NodeNames": names})


async def _prioritize(request: web.Request) -> web.Response:
    names = _arguments.decode(await request.read()).NodeNames
    return _answer([{"Host": name, "Score": 0} for name in names])


async def _bind(request: web.Request) -> web.Response:
    asked = _bind_arguments.decode(await request.read())
    path = f"/api/v1/namespaces/{asked.PodNamespace}/pods/{asked.PodName}/binding"
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": asked.PodName, "uid": asked.PodUID, "annotations": _ANNOTATIONS},
        "target": {"apiVersion": "v1", "kind": "Node", "name": asked.Node},
    }
    try:
        await request.app[_API].create(path, binding)
    except client.ApiRefusedError as refused:
        return _answer({"Error": str(refused)})
    return _answer({"Error": ""})


def _answer(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def _context(directory: Path) -> "ssl.SSLContext":
    serving = ServingContext()
    pair = KeyPair(
        certificate_pem=(directory / "tls.crt").read_bytes(),
        key_pem=(directory / "tls.key").read_bytes(),
    )
    serving.load(ServingBundle(trust_pem=(directory / "ca.crt").read_bytes(), pair=pair))
    return serving.context


if __name__ == "__main__":
    main()
