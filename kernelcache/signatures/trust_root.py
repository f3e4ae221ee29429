"""The trust root of keyless signatures: authorities, transparency logs and their keys, from Sigstore's JSON.

It is the file that `cosign trusted-root create` writes, and that the public instance distributes. Nothing is
fetched, and no trust root is built in: who is trusted is the operator's decision.
"""

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, final

import msgspec

from api.text import truncate
from kernelcache.signatures import certificate_parsing
from kernelcache.signatures.public_keys import PublicKeyError, VerificationKey

if TYPE_CHECKING:
    from cryptography import x509
    from sigstore.verify import Verifier

MAX_TRUST_ROOT_BYTES: Final = 1 << 20
_CONFIG_TYPE: Final = "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json"
_SIGNING_CONFIG_TYPE: Final = "application/vnd.dev.sigstore.signingconfig.v0.2+json"


class TrustRootError(ValueError):
    """The file is no usable trust root; the message says why."""


_Time = Annotated[dt.datetime, msgspec.Meta(tz=True)]


class _Period(msgspec.Struct, frozen=True):
    start: _Time | None = None
    end: _Time | None = None

    @property
    def first(self) -> dt.datetime:
        return self.start or dt.datetime.min.replace(tzinfo=dt.UTC)

    @property
    def last(self) -> dt.datetime:
        return self.end or dt.datetime.max.replace(tzinfo=dt.UTC)


class _Der(msgspec.Struct, frozen=True, rename="camel"):
    raw_bytes: bytes


class _Key(msgspec.Struct, frozen=True, rename="camel"):
    raw_bytes: bytes
    valid_for: _Period = _Period()


class _LogId(msgspec.Struct, frozen=True, rename="camel"):
    key_id: bytes


class _Log(msgspec.Struct, frozen=True, rename="camel"):
    public_key: _Key
    log_id: _LogId


class _Chain(msgspec.Struct, frozen=True):
    certificates: list[_Der]


class _Authority(msgspec.Struct, frozen=True, rename="camel"):
    cert_chain: _Chain
    valid_for: _Period = _Period()


class _TrustedRoot(msgspec.Struct, frozen=True, rename="camel"):
    certificate_authorities: list[_Authority]
    tlogs: list[_Log]
    ctlogs: list[_Log]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedLog:
    """A log's key, for as long as it is in use."""

    key: VerificationKey
    start: dt.datetime
    end: dt.datetime


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedAuthority:
    """An authority's certificates, for as long as it issues."""

    certificates: "tuple[x509.Certificate, ...]" = field(repr=False)
    start: dt.datetime
    end: dt.datetime


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRoot:
    """Whom to believe about keyless signatures."""

    authorities: tuple[TrustedAuthority, ...]
    transparency_logs: dict[bytes, TrustedLog]
    """Key id -> log."""
    certificate_logs: dict[bytes, TrustedLog]
    """Key id -> log."""
    bundle_verifier: "Verifier" = field(repr=False)
    """The same for `sigstore`, which verifies bundles; it keeps no state between them."""

    def authorities_at(self, at: dt.datetime) -> "list[x509.Certificate]":
        return [
            certificate
            for authority in self.authorities
            if authority.start <= at <= authority.end
            for certificate in authority.certificates
        ]

    def transparency_log_key(self, key_id: bytes, at: dt.datetime) -> VerificationKey | None:
        return _key_at(self.transparency_logs.get(key_id), at)

    def certificate_log_key(self, key_id: bytes, at: dt.datetime) -> VerificationKey | None:
        return _key_at(self.certificate_logs.get(key_id), at)


def read_trust_root(content: bytes) -> TrustRoot:
    """Return the trust root of a file.

    The first call imports `sigstore`, some 0.6 s: it belongs into a thread, at the start of the process.

    Raises:
        TrustRootError: the file is something else, or has no authority or log.
    """
    if len(content) > MAX_TRUST_ROOT_BYTES:
        raise TrustRootError(f"the trust root has more than {MAX_TRUST_ROOT_BYTES} bytes")
    try:
        root = msgspec.json.decode(content, type=_TrustedRoot)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise TrustRootError(f"the trust root cannot be read: {truncate(str(error))}") from None
    for name, found in (
        ("certificateAuthorities", root.certificate_authorities),
        ("tlogs", root.tlogs),
        ("ctlogs", root.ctlogs),
    ):
        if not found:
            raise TrustRootError(f"the trust root has no {name}: at least one is needed")
    try:
        return TrustRoot(
            authorities=tuple(map(_authority, root.certificate_authorities)),
            transparency_logs={log.log_id.key_id: _trusted(log) for log in root.tlogs},
            certificate_logs={log.log_id.key_id: _trusted(log) for log in root.ctlogs},
            bundle_verifier=_bundle_verifier(content),
        )
    except PublicKeyError as error:
        raise TrustRootError(f"the trust root has, as the key of a log, {error}") from None


def _authority(authority: _Authority) -> TrustedAuthority:
    try:
        certificates = tuple(
            certificate_parsing.read_der_certificate(certificate.raw_bytes)
            for certificate in authority.cert_chain.certificates
        )
    except certificate_parsing.CertificateUnreadableError:
        raise TrustRootError("a certificate in the trust root cannot be read") from None
    return TrustedAuthority(
        certificates=certificates, start=authority.valid_for.first, end=authority.valid_for.last
    )


def _trusted(log: _Log) -> TrustedLog:
    period = log.public_key.valid_for
    return TrustedLog(
        key=VerificationKey.from_der(log.public_key.raw_bytes), start=period.first, end=period.last
    )


def _key_at(log: TrustedLog | None, at: dt.datetime) -> VerificationKey | None:
    return log.key if log is not None and log.start <= at <= log.end else None


def _bundle_verifier(content: bytes) -> "Verifier":
    """Return the verifier of `sigstore` for this file.

    Its reader of trust roots takes the name of a file; its reader of whole configurations takes their text.
    """
    from sigstore.errors import Error  # noqa: PLC0415  # 0.6 s; needed for keyless signatures only
    from sigstore.models import ClientTrustConfig  # noqa: PLC0415
    from sigstore.verify import Verifier  # noqa: PLC0415

    config = b'{"mediaType":"%b","trustedRoot":%b,"signingConfig":{"mediaType":"%b"}}' % (
        _CONFIG_TYPE.encode(),
        content,
        _SIGNING_CONFIG_TYPE.encode(),
    )
    try:
        return Verifier(trusted_root=ClientTrustConfig.from_json(config.decode()).trusted_root)
    except (Error, ValueError) as error:
        reason = truncate(str(error).replace("\n", " "))
        raise TrustRootError(f"the trust root is not usable for bundles: {reason}") from None
