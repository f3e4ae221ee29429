"""An admission webhook for tests: https on loopback, with a CA of its own, answering by script."""

import base64
import datetime as dt
import ipaddress
import json
import ssl
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable

Json = dict[str, Any]

_NOT_BEFORE = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_NOT_AFTER = dt.datetime(2120, 1, 1, tzinfo=dt.UTC)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _certificate(
    subject: str, key: ec.EllipticCurvePublicKey, issuer: str
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
    )


class Authority:
    """A CA and what it signs."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _certificate("test-ca", self._key.public_key(), "test-ca")
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def bundle(self) -> str:
        """The caBundle of a webhook configuration."""
        return base64.b64encode(self.pem).decode()

    def server_context(self, *dns_names: str) -> ssl.SSLContext:
        """A context that serves 127.0.0.1 and the names."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        names += [x509.DNSName(name) for name in dns_names]
        certificate = (
            _certificate("webhook", key.public_key(), "test-ca")
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "both.pem"
            path.write_bytes(
                certificate.public_bytes(serialization.Encoding.PEM)
                + key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                )
            )
            context.load_cert_chain(path)
        return context


def allow(_request: Json) -> Json:
    return {"allowed": True}


def deny(message: str, **status: object) -> "Callable[[Json], Json]":
    return lambda _request: {"allowed": False, "status": {"message": message, **status}}


def patch(*operations: Json) -> "Callable[[Json], Json]":
    encoded = base64.b64encode(json.dumps(list(operations)).encode()).decode()
    return lambda _request: {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


class WebhookServer:
    """`answers[path]` makes the response to a request; `calls[path]` are the requests so far."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.answers: dict[str, Callable[[Json], Json]] = {}
        self.calls: dict[str, list[Json]] = {}
        self.order: list[str] = []
        self.holds: dict[str, asyncio.Event] = {}
        """path -> what its answers wait for."""
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        review = await request.json()
        self.order.append(request.path)
        self.calls.setdefault(request.path, []).append(review["request"])
        if hold := self.holds.get(request.path):
            await hold.wait()
        response = self.answers.get(request.path, allow)(review["request"])
        response.setdefault("uid", review["request"]["uid"])
        return web.json_response(
            {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        )

    def config(self, path: str, namespace: str, **changes: object) -> Json:
        """A webhook of a configuration: pods' creation in one namespace."""
        return {
            "name": path.strip("/") + ".conformance.example",
            "clientConfig": {"url": self.url + path, "caBundle": self.authority.bundle},
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
            "timeoutSeconds": 5,
            **changes,
        }


@asynccontextmanager
async def webhook_server(*dns_names: str) -> "AsyncIterator[WebhookServer]":
    server = WebhookServer(Authority())
    application = web.Application(client_max_size=8 * 1024 * 1024)
    application.router.add_post("/{path:.*}", server.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    context = server.authority.server_context(*dns_names)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    server.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        # API servers keep connections; over TLS they would outlive the test to say goodbye.
        for connection in runner.server.connections if runner.server else ():
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()
