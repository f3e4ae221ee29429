"""Another client's webhook: a small HTTPS server, called for the pods of one namespace."""

import base64
import contextlib
import json
import ssl
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.cluster.environment import client, polling
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.cluster.environment.control_plane import ControlPlane

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"


def reject(_pod: "client.JsonObject") -> dict[str, Any]:
    return {"allowed": False, "status": {"code": 403, "message": "not on my watch"}}


def inject_sidecar(pod: "client.JsonObject") -> dict[str, Any]:
    return append_container(pod, {"name": "injected", "image": "example.test/sidecar:1"})


def append_container(pod: "client.JsonObject", added: "client.JsonObject") -> dict[str, Any]:
    """Patch the pod unless it has the container."""
    if any(container["name"] == added["name"] for container in pod["spec"]["containers"]):
        return {"allowed": True}
    patch = [{"op": "add", "path": "/spec/containers/-", "value": added}]
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


@contextlib.asynccontextmanager
async def webhook(
    control_plane: "ControlPlane",
    *,
    kind: str,
    name: str,
    namespace: str,
    decide: "Callable[[client.JsonObject], dict[str, Any]]",
) -> "AsyncIterator[list[str]]":
    """Have pods of the namespace decided by `decide`; yields the names of those that were asked about.

    `kind` is Mutating or Validating; `name` decides the order among mutating configurations.
    """
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        review = await request.json()
        pod = review["request"]["object"]
        asked.append(pod["metadata"].get("name", ""))
        response = {"uid": review["request"]["uid"], **decide(pod)}
        return web.json_response({**review, "request": None, "response": response})

    async with _server(control_plane, answer) as url, _admin(control_plane) as api:
        path = f"{REGISTRATION}/{kind.lower()}webhookconfigurations"
        await api.create(path, _configuration(control_plane, kind, name, url, namespace))
        try:
            await _wait_until_called(api, namespace, asked)
            yield asked
        finally:
            await api.delete(f"{path}/{name}")


@contextlib.asynccontextmanager
async def _admin(control_plane: "ControlPlane") -> "AsyncIterator[client.ApiClient]":
    async with client.open_client(control_plane.kubeconfig()) as api:
        yield api


@contextlib.asynccontextmanager
async def _server(control_plane: "ControlPlane", answer: Any) -> "AsyncIterator[str]":
    serving = control_plane.credentials.serving
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(serving.certificate, serving.key)
    application = web.Application(client_max_size=2**24)
    transports = set()

    async def counted(request: web.Request) -> web.Response:
        transports.add(request.transport)
        return await answer(request)  # type: ignore[no-any-return]  # a handler of this module

    application.router.add_post("/", counted)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    port = ports.free_port()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    try:
        yield f"https://127.0.0.1:{port}/"
    finally:
        for transport in transports:
            if transport is not None:
                # Kept alive by the API server, which would take its time over the end of TLS.
                transport.abort()
        await runner.cleanup()


def _configuration(
    control_plane: "ControlPlane", kind: str, name: str, url: str, namespace: str
) -> dict[str, Any]:
    ca_bundle = base64.b64encode(control_plane.ca_file.read_bytes()).decode()
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": "pods.example.test",
                "clientConfig": {"url": url, "caBundle": ca_bundle},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                **({"reinvocationPolicy": "IfNeeded"} if kind == "Mutating" else {}),
            }
        ],
    }


async def _wait_until_called(api: "client.ApiClient", namespace: str, asked: "list[str]") -> None:
    probe = {
        "metadata": {"name": "probe"},
        "spec": {"containers": [{"name": "main", "image": "example.test/main:1"}]},
    }

    async def is_called() -> bool:
        with contextlib.suppress(client.ApiRefusedError):
            await api.create(f"/api/v1/namespaces/{namespace}/pods", probe, dryRun="All")
        return bool(asked)

    await polling.eventually(is_called, what="a call of the other webhook")
    asked.clear()
