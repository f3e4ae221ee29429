"""A server that answers the API server and kube-scheduler as simply as can be, and keeps what came.

It stands in for our own server: these tests are about the manifests that decide what is asked.
"""

import asyncio
import base64
import contextlib
import json
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from api.names import POOL_LABEL, RESERVATION_ANNOTATION
from manifests import constants
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.environment.control_plane import ControlPlane


@dataclass(frozen=True, kw_only=True)
class Call:
    path: str
    body: dict[str, Any]
    client: str | None
    """Common name of the client's certificate."""


@dataclass
class Stub:
    url: str
    calls: list[Call] = field(default_factory=list)

    def paths(self) -> list[str]:
        return [call.path for call in self.calls]


@contextlib.asynccontextmanager
async def serve_stub(control_plane: "ControlPlane") -> "AsyncIterator[Stub]":
    port = ports.free_port()
    stub = Stub(url=f"https://127.0.0.1:{port}")
    serving = control_plane.credentials.serving
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(serving.certificate, serving.key)
    context.load_verify_locations(control_plane.ca_file)
    context.verify_mode = ssl.CERT_OPTIONAL

    connections: set[asyncio.Transport] = set()

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        connections.add(request.transport)
        body = await request.json()
        stub.calls.append(Call(path=request.path, body=body, client=_common_name(request)))
        return web.json_response(_answer(request.path, body))

    application = web.Application(client_max_size=2**24)
    application.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    yield stub
    await runner.cleanup()
    for connection in connections:
        # Kept alive by the API server, which would take its time over the end of TLS.
        connection.abort()
    await asyncio.sleep(0)


def _answer(path: str, body: dict[str, Any]) -> Any:
    match path:
        case constants.FILTER_PATH:
            return {"NodeNames": body["NodeNames"], "FailedNodes": {}}
        case constants.PRIORITIZE_PATH:
            return [{"Host": name, "Score": 0} for name in body["NodeNames"]]
        case constants.BIND_PATH:
            return {"Error": "the stub binds nothing"}
        case _:
            return _review(path, body)


def _review(path: str, body: dict[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": body["request"]["uid"], "allowed": True}
    if path == constants.MUTATE_PODS_PATH:
        patch = json.dumps(_mutation(body["request"]["object"])).encode()
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], "response": response}


def _mutation(pod: dict[str, Any]) -> list[dict[str, Any]]:
    metadata = pod["metadata"]
    annotations = {**metadata.get("annotations", {}), RESERVATION_ANNOTATION: '{"id":"1"}'}
    labels = {**metadata.get("labels", {}), POOL_LABEL: "train"}
    return [
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
        {"op": "add", "path": "/metadata/labels", "value": labels},
    ]


def _common_name(request: web.Request) -> str | None:
    certificate = request.transport.get_extra_info("peercert") if request.transport else None
    subject = certificate["subject"] if certificate else ()
    return next((value for part in subject for key, value in part if key == "commonName"), None)
