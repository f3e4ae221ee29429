"""An OCI registry in this process, with its token server, that fails as told.

    async with RegistryDouble() as registry:
        digest = registry.add_manifest("team/cache", b"{}", tag="1")
        registry.will_fail(Cut(after=10), "GET", "/blobs/")

Faults are used up in order by the requests whose method and path they match.
"""

import asyncio
import base64
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from aiohttp import web

from api.image_reference import ImageReference
from kernelcache.image_format import OCI_MANIFEST, BlobDescriptor
from simulator.registry.content import (
    A_REPOSITORY,
    FIRST_TAG,
    ReceivedRequest,
    RegistryContent,
    split_path,
)
from simulator.registry.in_memory import received_request
from tests.support.canned_api import _drop, _hang

USER, PASSWORD = "puller", "secret-word"
TOKEN_LIFE_S = 300


@dataclass(frozen=True)
class Status:
    """Answer with this status."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = '{"errors":[{"code":"DOWN","message":"for a while"}]}'


@dataclass(frozen=True)
class Cut:
    """Send the head and so many bytes of the body, then drop the connection."""

    after: int = 0


@dataclass(frozen=True)
class Hang:
    """Never answer; with `after`, stop in the middle of the body."""

    after: int | None = None


@dataclass(frozen=True)
class Lie:
    """Change headers or the content of the answer."""

    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    without: str = ""
    """A header to leave out."""
    is_chunked: bool = False
    """Whether the length is not said before."""


@dataclass(frozen=True)
class NoRange:
    """Send the whole blob although a part is asked for."""


@dataclass(frozen=True)
class Drip:
    """Answer with this status, and a byte of text every so many seconds, without end."""

    code: int
    every_s: float


Fault = Status | Cut | Hang | Lie | NoRange | Drip


@dataclass
class _Planned:
    fault: Fault
    method: str
    part: str
    times: int


class RegistryDouble:
    """The registry; `seen` holds every request in order of arrival."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        referrers: bool = True,
        auth: str = "",
        users: Mapping[str, str] | None = None,
    ) -> None:
        """`auth` is "", "basic" or "token"; with "token" this is the token server, too, on /token."""
        self._tls = tls
        self.content = RegistryContent(has_referrers=referrers)
        self.blobs = self.content.blobs
        self.manifests = self.content.manifests
        self.auth = auth
        self.users = dict(users or {USER: PASSWORD})
        self.public = False
        """Whether the token server gives tokens to those without a user."""
        self.seen: list[ReceivedRequest] = []
        self.tokens: set[str] = set()
        """Those that are good; clear it to revoke them."""
        self._planned: list[_Planned] = []

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.host = f"127.0.0.1:{self._runner.addresses[0][1]}"
        self.url = f"{'https' if self._tls else 'http'}://{self.host}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    def reference(self, repository: str = "team/cache", tag: str | None = "1") -> ImageReference:
        return ImageReference(registry=self.host, repository=repository, tag=tag)

    def add_blob(
        self, content: bytes, media_type: str = "application/octet-stream"
    ) -> BlobDescriptor:
        return self.content.add_blob(content, media_type)

    def add_manifest(
        self,
        manifest: object,
        *,
        repository: str = A_REPOSITORY,
        tag: str | None = FIRST_TAG,
        media_type: str = OCI_MANIFEST,
    ) -> BlobDescriptor:
        return self.content.add_manifest(
            manifest, repository=repository, tag=tag, media_type=media_type
        )

    def will_fail(
        self, fault: Fault, method: str = "GET", part: str = "/v2/", *, times: int = 1
    ) -> None:
        """Let the next requests of this method fail whose path has the part."""
        self._planned.append(_Planned(fault, method, part, times))

    def clear(self) -> None:
        """Forget what is stored, what was planned, and what was seen."""
        for item in (self.blobs, self.manifests, self._planned, self.seen):
            item.clear()

    def count(self, method: str, part: str) -> int:
        return sum(item.method == method and part in item.path for item in self.seen)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        seen = await received_request(request)
        self.seen.append(seen)
        fault = self._fault_of(seen)
        match fault:
            case Status():
                return web.Response(status=fault.code, headers=fault.headers, text=fault.text)
            case Drip():
                return await _drip(request, fault)
            case Hang(after=None):
                return await _hang()
            case Cut(after=0):
                return _drop(request)
            case _:
                response = self._answer(seen, in_full=isinstance(fault, NoRange))
                return await _give(request, response, fault)

    def _fault_of(self, seen: ReceivedRequest) -> Fault | None:
        for item in self._planned:
            if item.times and item.method == seen.method and item.part in seen.path:
                item.times -= 1
                return item.fault
        return None

    def _answer(self, seen: ReceivedRequest, *, in_full: bool) -> web.Response:
        if seen.path == "/token":
            return self._token(seen)
        if (denial := self._denial(seen)) is not None:
            return denial
        return self.content.answer(seen, in_full=in_full)

    def _denial(self, seen: ReceivedRequest) -> web.Response | None:
        given = seen.headers.get("Authorization", "")
        if not self.auth or self._is_good(given):
            return None
        challenge = 'Basic realm="registry"'
        if self.auth == "token":
            repository = split_path(seen.path)[0]
            actions = "pull" if seen.method in {"GET", "HEAD"} else "pull,push"
            challenge = (
                f'Bearer realm="{self.url}/token",service="the, registry",'
                f'scope="repository:{repository}:{actions}"'
            )
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})

    def _is_good(self, authorization: str) -> bool:
        scheme, _, remaining = authorization.partition(" ")
        if self.auth == "token":
            return scheme == "Bearer" and remaining in self.tokens
        return scheme == "Basic" and self._is_user(remaining)

    def _is_user(self, pair: str) -> bool:
        user, _, password = base64.b64decode(pair).decode().partition(":")
        return self.users.get(user) == password

    def _token(self, seen: ReceivedRequest) -> web.Response:
        pair = seen.headers.get("Authorization", "").removeprefix("Basic ")
        if not (self._is_user(pair) if pair else self.public):
            return web.Response(status=401, text="no such user")
        token = secrets.token_hex(8)
        self.tokens.add(token)
        return web.json_response({"token": token, "expires_in": TOKEN_LIFE_S})


async def _drip(request: web.BaseRequest, fault: Drip) -> web.StreamResponse:
    response = web.StreamResponse(status=fault.code)
    await response.prepare(request)
    while True:
        await response.write(b".")
        await asyncio.sleep(fault.every_s)


async def _give(
    request: web.BaseRequest, response: web.Response, fault: Fault | None
) -> web.StreamResponse:
    """Send the answer, with its fault."""
    if isinstance(fault, Lie):
        if fault.content is not None:
            response.body = fault.content
        if fault.without:
            del response.headers[fault.without]
        response.headers.update(fault.headers)
        if fault.is_chunked:
            response.enable_chunked_encoding()
    if not isinstance(fault, Cut | Hang):
        return response
    assert isinstance(response.body, bytes)
    assert fault.after is not None
    partial = web.StreamResponse(status=response.status, headers=response.headers)
    partial.content_length = len(response.body)
    await partial.prepare(request)
    await partial.write(response.body[: fault.after])
    return await _hang() if isinstance(fault, Hang) else _drop(request)
