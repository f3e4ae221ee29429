"""Authentication of callers: a client certificate or a bearer token on the scheduler's paths, a certificate on webhooks.

The scheduler's paths are never open: with neither configured every call is refused. Webhooks are open unless CAs
of the API servers' certificates are configured, because an API server shows a certificate only if configured to.
"""

import hmac
from typing import TYPE_CHECKING, final

import structlog

from certs.tls import peer_common_name
from http_edge.body import Unread
from kube.errors import one_line

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection
    from pathlib import Path

    from certs.client_authorities import ClientAuthorities
    from http_edge.routes import Headers

_log = structlog.get_logger()


@final
class ExtenderAuthentication:
    """Checks each call; the TLS layer has verified the certificate's chain already."""

    def __init__(
        self,
        authorities: "ClientAuthorities",
        client_names: "Collection[str]",
        token_file: "Path | None",
    ) -> None:
        self._authorities = authorities
        self._client_names = frozenset(client_names)
        self._token_file = token_file
        self._token: tuple[int, bytes] | None = None
        # (mtime in ns, token): read again when the file changes
        self._fault: str | None = None

    def refusal_of(
        self, transport: "asyncio.BaseTransport | None", headers: "Headers"
    ) -> str | None:
        """Return why the caller is refused, or None."""
        name = peer_common_name(transport)
        if name in self._client_names and self._authorities.have_issued(transport):
            return None
        header = headers.get(b"authorization", b"")
        if header.startswith(b"Bearer "):
            offered = header.removeprefix(b"Bearer ")
            return None if self._is_token(offered) else "the bearer token is wrong"
        if name is not None:
            return f"client certificate {one_line(name)} may not call the scheduler's paths; extender.client_names lists those that may"
        return "a client certificate or a bearer token is needed"

    def _is_token(self, offered: bytes) -> bool:
        expected = self._read_token()
        return bool(expected) and hmac.compare_digest(expected, offered)

    def _read_token(self) -> bytes:
        if self._token_file is None:
            return b""
        try:
            changed = self._token_file.stat().st_mtime_ns
            if self._token is None or self._token[0] != changed:
                self._token = (changed, self._token_file.read_bytes().strip())
        except OSError as error:
            # A file that is being replaced: the token known so far stays good.
            self._note(error.strerror)
            return self._token[1] if self._token else b""
        self._note(None if self._token[1] else "it is empty")
        return self._token[1]

    def _note(self, fault: str | None) -> None:
        if fault is not None and fault != self._fault:
            _log.error("token file cannot be used", file=str(self._token_file), error=fault)
        self._fault = fault


@final
class WebhookAuthentication:
    """Checks each call of a webhook; the TLS layer has verified the certificate's chain already."""

    def __init__(self, authorities: "ClientAuthorities", client_names: "Collection[str]") -> None:
        self._authorities = authorities
        self._client_names = frozenset(client_names)

    def refusal_of(self, transport: "asyncio.BaseTransport | None") -> Unread | None:
        """Return why the caller is refused, or None."""
        name = peer_common_name(transport)
        if name in self._client_names and self._authorities.have_issued(transport):
            return None
        if name is None:
            text = (
                "the API server's client certificate is needed; its AdmissionConfiguration names it"
            )
            return Unread(401, "Unauthorized", text)
        text = f"client certificate {one_line(name)} may not call webhooks: webhooks.client_names, client_ca_file"
        return Unread(403, "Forbidden", text)
