"""What a request to a registry shows: a token of its token server, or user and password.

A token is kept until it expires. One that is refused earlier is renewed once, and then further credentials of the
pull secrets are tried in turn.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import msgspec
import yarl

from api.field_errors import UNDECODABLE
from oci.errors import AccessDenied, UnexpectedAnswer
from oci.registry_connections import RegistryRequest, read_bounded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator

    import aiohttp

    from api.clock import Clock
    from api.image_reference import ImageReference
    from oci.docker_config import BasicCredentials, DockerConfig

_MOST_CHALLENGES_BYTES: Final = 8192
_SCHEME: Final = re.compile(r"[\s,]*([A-Za-z][A-Za-z0-9_-]*)(?:\s+|$)(?!=)")
_PARAMETER: Final = re.compile(
    r'[\s,]*([A-Za-z][A-Za-z0-9_-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))'
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BearerChallenge:
    """Get a token there, and come again with it."""

    realm: str
    service: str = ""
    scope: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BasicChallenge:
    """Come again with user and password."""


Challenge = BearerChallenge | BasicChallenge


def choose_challenge(headers: "Iterable[str]") -> Challenge | None:
    """Return what to answer: Bearer where it is offered, else Basic, else nothing that we know."""
    offered = {scheme: parameters for header in headers for scheme, parameters in _parse(header)}
    bearer = offered.get("bearer", {})
    if bearer.get("realm"):
        return BearerChallenge(
            realm=bearer["realm"], service=bearer.get("service", ""), scope=bearer.get("scope", "")
        )
    return BasicChallenge() if "basic" in offered else None


def _parse(header: str) -> "Iterator[tuple[str, dict[str, str]]]":
    text, at = header[:_MOST_CHALLENGES_BYTES], 0
    while scheme := _SCHEME.match(text, at):
        at = scheme.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(text, at):
            at = parameter.end()
            name, quoted, plain = parameter.groups()
            value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            parameters.setdefault(name.lower(), value)
        yield scheme[1].lower(), parameters


_MAX_TOKEN_BYTES: Final = 256 * 1024
_SHORTEST_LIFE_S: Final = 60.0
"""The protocol's: of tokens that do not say how long they last."""
_LONGEST_LIFE_S: Final = 3600.0
_MARGIN_S: Final = 5.0
"""A token is not used in the last seconds of its life, in which a request may be under way."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AccessScope:
    """What a token is good for."""

    reference: "ImageReference"
    actions: str
    """`pull` or `pull,push`."""

    @property
    def name(self) -> str:
        return f"{self.reference.registry}/{self.reference.repository}"

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.reference.registry, self.reference.repository, self.actions)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Grant:
    header: str
    expires_at: float


class _TokenAnswer(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""
    expires_in: float | None = None


@final
class RegistryAuthorization:
    """The grants of one set of credentials; its tokens are in memory only."""

    def __init__(
        self,
        credentials: "DockerConfig",
        clock: "Clock",
        send: "Callable[[RegistryRequest, str | None], Awaitable[aiohttp.ClientResponse]]",
    ) -> None:
        """Take the credentials, and how a request for a token is sent, with its header if there is one."""
        self._credentials = credentials
        self._clock = clock
        self._send = send
        self._grants: dict[tuple[str, str, str], _Grant] = {}

    def current(self, scope: AccessScope) -> str | None:
        """Return the header of a grant that has not expired."""
        grant = self._grants.get(scope.key)
        if grant is None or grant.expires_at <= self._clock.monotonic():
            return None
        return grant.header

    async def authorization_headers(
        self, scope: AccessScope, challenges: "list[str]", *, refused: str | None
    ) -> "AsyncGenerator[str, None]":
        """Yield headers to try after a 401; the last that was yielded is kept.

        Args:
            scope: what the request needs.
            challenges: the values of `WWW-Authenticate`.
            refused: the header that the request had.

        Raises:
            AccessDenied: there are no credentials where some are needed, or the token server refuses them all.
            UnusableCredentials: those that match cannot be used.
        """
        challenge = choose_challenge(challenges)
        if challenge is None:
            raise AccessDenied(
                scope.name,
                "the registry answers 401 and offers neither Bearer nor Basic",
                "check that this is an OCI registry",
                status=401,
            )
        current = self.current(scope)
        if current is not None and current != refused:  # renewed meanwhile
            yield current
        credentials = self._credentials.credentials_of(scope.reference)
        denied: AccessDenied | None = None
        has_grant = False
        for item in credentials or self._anonymous(scope, challenge):
            try:
                grant = await self._grant(scope, challenge, item)
            except AccessDenied as error:
                denied = error
                continue
            self._keep(scope, grant)
            has_grant = True
            yield grant.header
        if denied is not None and not has_grant:
            raise denied

    def _anonymous(self, scope: AccessScope, challenge: Challenge) -> tuple[None]:
        if isinstance(challenge, BasicChallenge):
            raise AccessDenied(
                scope.name,
                "the registry asks for user and password, and no pull secret has any for it",
                "give a pull secret with an entry of this registry",
                status=401,
            )
        return (None,)

    async def _grant(
        self,
        scope: AccessScope,
        challenge: Challenge,
        credentials: "BasicCredentials | None",
    ) -> _Grant:
        now = self._clock.monotonic()
        match challenge:
            case BasicChallenge():
                assert credentials is not None, "anonymous access has no password"
                return _Grant(header=credentials.header(), expires_at=now + _LONGEST_LIFE_S)
            case BearerChallenge():
                answer = await self._token(scope, challenge, credentials)
                said_s = answer.expires_in or _SHORTEST_LIFE_S
                life_s = min(max(said_s, 2 * _MARGIN_S), _LONGEST_LIFE_S)
                token = answer.token or answer.access_token
                return _Grant(header=f"Bearer {token}", expires_at=now + life_s - _MARGIN_S)

    async def _token(
        self,
        scope: AccessScope,
        challenge: BearerChallenge,
        credentials: "BasicCredentials | None",
    ) -> _TokenAnswer:
        requested = challenge.scope or f"repository:{scope.reference.repository}:{scope.actions}"
        query = {"scope": requested} | ({"service": challenge.service} if challenge.service else {})
        try:
            url = yarl.URL(challenge.realm).update_query(query)
        except ValueError:
            url = yarl.URL()
        request = RegistryRequest(name=f"{scope.name} (token)", method="GET", url=url)
        header = credentials.header() if credentials else None
        async with await self._send(request, header) as response:
            body = await read_bounded(response, request.name, _MAX_TOKEN_BYTES)
        try:
            answer = msgspec.json.decode(body, type=_TokenAnswer)
        except UNDECODABLE:
            answer = _TokenAnswer()
        token = answer.token or answer.access_token
        if not token or not token.isascii() or not token.isprintable():
            raise UnexpectedAnswer(
                request.name,
                f"the token server {url.host} answers without a token",
                "check the realm that the registry names",
                status=response.status,
            )
        return answer

    def _keep(self, scope: AccessScope, grant: _Grant) -> None:
        now = self._clock.monotonic()
        for key in [key for key, item in self._grants.items() if item.expires_at <= now]:
            del self._grants[key]
        self._grants[scope.key] = grant
