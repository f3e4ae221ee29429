"""TLS contexts: the server's, whose certificates change under it, and clients'.

`SSLContext` can be reloaded in place, but only half of it: `load_verify_locations` adds CAs and
never removes one, and a key of another kind does not replace the first. So the context that the
server listens with holds nothing; at each handshake it hands over to a complete one (the
mechanism of SNI, which OpenSSL runs with or without a name), and a reload swaps that one whole.
Connections that are open keep theirs; their peers are authenticated again at every call.

Client certificates are optional: probes come without one, and the paths that demand one look at
its name (`peer_common_name`) and its issuer (`certs.client_authorities`). One by a CA that we don't trust, or
made for another purpose, ends the handshake.
"""

import os
import ssl
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

import structlog

from certs.client_authorities import ClientAuthorities, ClientTrust, decode_authorities
from certs.errors import RotationStep, UnusableBundleError
from certs.pem import Certificate, CertificateDefect, DecodedPair, decode_pair
from telemetry.metrics import CERTIFICATE_NOT_AFTER

if TYPE_CHECKING:
    import asyncio
    import datetime as dt
    from collections.abc import Iterator, Sequence

    from certs.bundle import KeyPair, ServingBundle

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers of TLS 1.2: authenticated encryption only, which every client of a Kubernetes has. TLS 1.3 has no other."""

_log = structlog.get_logger()


@final
class SwitchedContext:
    """A port's TLS, which hands each handshake over to the present context."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context: Final = context
        """The port's; it stays the same."""
        self.current: ssl.SSLContext | None = None
        """None: handshakes are refused."""
        context.sni_callback = self._hand_over

    def _hand_over(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> int | None:
        if self.current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self.current
        return None


@final
class ServingContext:
    """The server's TLS, reloaded in place; what `context` returns is the same for ever."""

    def __init__(self, protocols: "Sequence[str]" = ()) -> None:
        """Hold nothing yet: handshakes are refused until the first `load`.

        `protocols` are offered to clients that ask for one (ALPN), the first for preference.
        """
        self._protocols: Final = tuple(protocols)
        self.scheduler: Final = ClientAuthorities()
        """Those of kube-scheduler's certificate."""
        self.api_server: Final = ClientAuthorities()
        """Those of the certificate that API servers call webhooks with."""
        self._clients = ClientTrust()
        self._loaded: ServingBundle | None = None
        self._not_after: dt.datetime | None = None
        self._port = SwitchedContext(_server_context(self._protocols))

    @property
    def context(self) -> ssl.SSLContext:
        return self._port.context

    @property
    def loaded(self) -> "ServingBundle | None":
        return self._loaded

    @property
    def not_after(self) -> "dt.datetime | None":
        return self._not_after

    def load(self, bundle: "ServingBundle") -> bool:
        """Serve this from the next handshake on; say whether it differs from what was served.

        All or nothing. The dates are not examined.

        Raises:
            UnusableBundle: it cannot be served; counted, and what was served stays.
        """
        if bundle == self._loaded:
            return False
        pair, own = self._switch(bundle, self._clients)
        self._loaded = bundle
        self._not_after = pair.certificate.not_after
        authority = _issuer(pair.chain[-1], own)
        CERTIFICATE_NOT_AFTER.labels("leaf").set(self._not_after.timestamp())
        CERTIFICATE_NOT_AFTER.labels("ca").set(authority.not_after.timestamp())
        _log.info(
            "serving certificate loaded",
            serial=f"{pair.certificate.parsed.serial_number:x}",
            not_after=self._not_after.isoformat(),
            trusted_cas=len(own),
        )
        return True

    def trust(self, clients: ClientTrust) -> None:
        """Judge clients by these CAs from now on, those that are connected too.

        Raises:
            UnusableBundle: OpenSSL refuses them; counted, and those before stay.
        """
        if clients == self._clients:
            return
        if self._loaded is not None:
            self._switch(self._loaded, clients)
        self._clients = clients

    def _switch(
        self, bundle: "ServingBundle", clients: ClientTrust
    ) -> tuple[DecodedPair, tuple[Certificate, ...]]:
        """Hand over to a context of these; return the pair, and its CAs."""
        try:
            pair = _usable(bundle.pair, "tls.crt and tls.key")
            own = decode_authorities(bundle.trust_pem, "ca.crt")
            scheduler = own if clients.scheduler is None else clients.scheduler
            context = _server_context(self._protocols)
            _present(context, pair)
            _trust(context, (*scheduler, *clients.api_server))
        except UnusableBundleError:
            RotationStep.RELOAD.count_failure()
            raise
        except (ssl.SSLError, OSError) as error:
            RotationStep.RELOAD.count_failure()
            raise UnusableBundleError(f"OpenSSL refuses the certificates: {error}") from error
        self._port.current = context
        self.scheduler.replace(scheduler)
        self.api_server.replace(clients.api_server)
        return pair, own


def client_context(trust_pem: bytes, pair: "KeyPair | None" = None) -> ssl.SSLContext:
    """Return a client's TLS that trusts these CAs only, verifies the name, and may show a pair.

    Raises:
        UnusableBundle: the CAs or the pair cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if pair is not None:
        _present(context, _usable(pair, "the client's certificate"))
    _trust(context, decode_authorities(trust_pem, "ca.crt"))
    return context


def peer_common_name(transport: "asyncio.BaseTransport | None") -> str | None:
    """Return the CN of the client's verified certificate; None without one, or with several CNs."""
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    if not certificate:
        return None
    names = [
        value
        for relative_name in certificate.get("subject", ())
        for key, value in relative_name
        if key == "commonName"
    ]
    return names[0] if len(names) == 1 else None


def server_context(protocols: "Sequence[str]") -> ssl.SSLContext:
    """Return a server's TLS without a certificate, for clients that show none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


def _server_context(protocols: "Sequence[str]") -> ssl.SSLContext:
    context = server_context(protocols)
    context.verify_mode = ssl.CERT_OPTIONAL
    # A resumed session would go on with a client certificate whose CA is trusted no longer.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context


def _usable(pair: "KeyPair", subject: str) -> DecodedPair:
    decoded = decode_pair(pair)
    if isinstance(decoded, CertificateDefect):
        raise UnusableBundleError(f"{subject}: {decoded.detail} ({decoded.defect.value})")
    return decoded


def _issuer(last: Certificate, trusted: tuple[Certificate, ...]) -> Certificate:
    return next((authority for authority in trusted if last.is_issued_by(authority)), trusted[0])


def _trust(context: ssl.SSLContext, trusted: tuple[Certificate, ...]) -> None:
    if not trusted:  # OpenSSL takes none for a mistake
        return
    context.load_verify_locations(cadata=b"".join(ca.pem for ca in trusted).decode("ascii"))
    # As in Go, every certificate of ca.crt is trusted, an intermediate too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _present(context: ssl.SSLContext, pair: DecodedPair) -> None:
    with _as_path(pair.pem) as path:
        context.load_cert_chain(path)


@contextmanager
def _as_path(content: bytes) -> "Iterator[str]":
    """Give the content a path for as long as the context lasts; OpenSSL takes nothing else.

    In memory where the system can (the pod's root file system is read-only), else in a file that
    only we can read.
    """
    if sys.platform == "linux":
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(content)
            file.flush()
            yield file.name
