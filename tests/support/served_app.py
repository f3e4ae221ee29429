"""The server's application behind real TLS on the loopback, its allocation state filled by hand, no API server."""

import asyncio
import datetime as dt
import itertools
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from admission.caches.context import CacheAdmissionContext
from certs.bundle import KeyPair, Requirements, ServingBundle
from certs.issuance import issue_authority, issue_client, issue_serving, new_key
from certs.pem import DecodedPair, decode_pair
from certs.tls import ServingContext, client_context
from http_edge.limits import Limits
from http_edge.listener import Port
from http_edge.negotiated_protocol import PROTOCOLS
from http_edge.reviews.kube_reviews import TokenUser
from http_edge.reviews.review_cache import TokenRefusal
from http_edge.reviews.reviewed_tokens import ReviewedTokens
from http_edge.routes import Routes
from server.http.app import Handlers, build_routes
from server.http.authentication import ExtenderAuthentication, WebhookAuthentication
from server.http.readiness import Readiness
from server.settings import ListenSettings
from telemetry.metrics import REGISTRY
from tests.support.loop_clock import LoopClock
from tests.support.ports import free_port
from tests.support.reviews import AdmissionSetup
from tests.support.scheduling import ExtenderSetup

if TYPE_CHECKING:
    from kube.errors import KubeError

MAX_BODY_BYTES = 64 * 1024
_LIMITS = Limits(body_bytes=MAX_BODY_BYTES)
TOKEN = "sesame"


class TestAuthority:
    """A CA with a serving certificate for 127.0.0.1; it issues client certificates."""

    __test__ = False

    def __init__(self) -> None:
        self._serials = itertools.count(1)
        self._now = dt.datetime.now(dt.UTC)  # noqa: TID251  # OpenSSL compares with the real clock
        required = _requirements()
        pair = issue_authority(
            new_key(),
            serial=next(self._serials),
            now=self._now,
            lifetime=required.authority_lifetime,
        )
        self.trust_pem = pair.certificate_pem
        decoded = decode_pair(pair)
        assert isinstance(decoded, DecodedPair)
        self._authority = decoded
        self.serving = issue_serving(
            decoded, new_key(), serial=next(self._serials), now=self._now, required=required
        )

    def client(self, name: str) -> KeyPair:
        return issue_client(
            self._authority,
            new_key(),
            serial=next(self._serials),
            now=self._now,
            required=_requirements(client_name=name),
        )


def _requirements(client_name: str = "gpu-scheduler") -> Requirements:
    return Requirements.for_service(
        "test", "default", extra_ip_addresses=["127.0.0.1"], client_name=client_name
    )


@dataclass(frozen=True)
class Reply:
    """An answer as its caller sees it."""

    status: int
    content_type: str
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class CannedReviews:
    """Knows the results on some tokens; others are not accepted. Raises `fault` instead, where there is one."""

    def __init__(self) -> None:
        self.results: dict[str, TokenUser | TokenRefusal] = {}
        self.fault: KubeError | None = None
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        """Reviews wait for it."""
        self.gate.set()

    async def review(self, token: str) -> TokenUser | TokenRefusal:
        self.asked.append(token)
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return self.results.get(token, TokenRefusal.UNAUTHENTICATED)


@dataclass
class ServedApp:
    """The application under way; `webhook_setup` and `extender_setup` share one allocation state."""

    authority: TestAuthority
    token_file: Path
    webhook_setup: AdmissionSetup = field(default_factory=AdmissionSetup)
    url: str = ""
    pair: KeyPair | None = None
    """The client certificate that requests show."""
    caches: CacheAdmissionContext | None = None
    """Of the webhooks for caches; they are not served without it."""
    scaling: bytes | None = None
    """What /debug/scale shows; None as on a replica that does not lead."""
    reviews: CannedReviews = field(default_factory=CannedReviews)
    """The API server's results on tokens."""
    webhook_callers: tuple[str, ...] = ()
    """Common names that may call webhooks; anybody where there is none."""

    def __post_init__(self) -> None:
        self.serving = ServingContext(PROTOCOLS)
        self.serving.load(
            ServingBundle(trust_pem=self.authority.trust_pem, pair=self.authority.serving)
        )
        self.readiness = Readiness()
        self.extender_setup = ExtenderSetup(allocation_state=self.webhook_setup.allocation_state)
        self.extender_setup.pool(n1=2)
        self.webhook_setup.add_pool("whole")

    def routes(self) -> Routes:
        handlers = Handlers(
            admission=self.webhook_setup.context(),
            caches=self.caches,
            scheduling=self.extender_setup.context,
            extender=ExtenderAuthentication(
                self.serving.scheduler, ["gpu-scheduler"], self.token_file
            ),
            webhooks=WebhookAuthentication(self.serving.api_server, self.webhook_callers)
            if self.webhook_callers
            else None,
            readiness=self.readiness,
            scaling=lambda: self.scaling,
            metrics_readers=ReviewedTokens(self.reviews, LoopClock(), lambda user: user.username),
            clock=LoopClock(),
        )
        return build_routes(handlers)

    def tls(self) -> ssl.SSLContext:
        return client_context(self.authority.trust_pem, self.pair)

    async def call(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> Reply:
        """Ask over a new connection; `Content_Type` names a header."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        if body is not None:
            named.setdefault("Content-Type", "application/json")
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, self.url + path, data=body, headers=named, ssl=self.tls()
            ) as answer,
        ):
            return Reply(answer.status, answer.content_type, await answer.read())

    async def post(self, path: str, body: bytes, **headers: str) -> Reply:
        return await self.call("POST", path, body, **headers)

    async def call_raw(self, request: bytes) -> bytes:
        """Write these bytes to a new connection, and return the first line that comes back."""
        reader, writer = await self._connect()
        writer.write(request)
        line = await reader.readline()
        writer.transport.abort()
        return line.strip()

    async def send_and_hang_up(self, request: bytes) -> None:
        """Write these bytes to a new connection, and close it."""
        _, writer = await self._connect()
        writer.write(request)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port = int(self.url.rsplit(":", maxsplit=1)[1])
        return await asyncio.open_connection("127.0.0.1", port, ssl=self.tls())

    @property
    def reservations(self) -> int:
        return len(self.webhook_setup.allocation_state.ledger)


@asynccontextmanager
async def served_app(authority: TestAuthority, token_file: Path) -> AsyncIterator[ServedApp]:
    served = ServedApp(authority, token_file)
    async with on_a_port(served, Limits(connections=16, body_bytes=MAX_BODY_BYTES)):
        yield served


@asynccontextmanager
async def on_a_port(served: ServedApp, limits: Limits = _LIMITS) -> AsyncIterator[Port]:
    """Serve it as the process does; connections that are left at the end are dropped."""
    listen = ListenSettings(host="127.0.0.1", port=free_port())
    served.url = f"https://127.0.0.1:{listen.port}"
    routes, context = served.routes(), served.serving.context
    async with Port(routes, listen, context, clock=LoopClock(), limits=limits) as port:
        try:
            yield port
        finally:
            hang_up(port)


def hang_up(port: Port) -> None:
    """Drop the connections that are left: one that says goodbye in TLS would outlive the test."""
    for connection in port._state.connections:
        connection._connection.transport.abort()  # type: ignore[attr-defined]  # each protocol has one


def sample(name: str, **labels: str) -> float:
    """Return a metric's value now; 0 before its first sample."""
    return REGISTRY.get_sample_value(name, labels) or 0.0
