"""Validity of certificates: which must be replaced, and when. Pure: no clock, no I/O, nothing raised.

The life of a CA, with L = min(lookahead, lifetime / 3), 90 days for one of ten years:

    end - L             its successor is made; both are trusted, the old one's leaves stay
    L / 3 later         the successor begins to sign leaves (30 days; less where leaves live shorter)
    L after its start   the old one is dropped, or when it ends, whichever comes first

So caBundle carries a CA long before a server shows a leaf by it, and kube-scheduler, which reads
an extender's `caFile` once at its start, has those 30 days to be restarted. The phase of a
rotation is not stored: it follows from the new CA's notBefore.
A leaf that enters its own lookahead meanwhile waits for that moment. One that is broken, or
lacks a name that is required now, does not, and is made by the newest CA, whose key we have.
"""

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, final

from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.issuance import BACKDATE
from certs.pem import (
    Certificate,
    CertificateDefect,
    Defect,
    Usage,
    decode_certificates,
    decode_pair,
)

if TYPE_CHECKING:
    from certs.bundle import Bundle, KeyPair, Requirements


class Part(Enum):
    """A part of the bundle that is replaced by itself."""

    AUTHORITY = "authority"
    RETIRED = "retired"
    """CAs that are still trusted, but need not be."""
    SERVING = "serving"
    CLIENT = "client"


@final
@dataclass(frozen=True, slots=True)
class Renewal:
    """A part to replace, and why."""

    part: Part
    fault: CertificateDefect


@final
@dataclass(frozen=True, slots=True)
class RenewalNeeded:
    """At least one part is to be replaced, each at most once."""

    renewals: tuple[Renewal, ...]

    def concerns(self, part: Part) -> bool:
        return any(renewal.part is part for renewal in self.renewals)


@final
@dataclass(frozen=True, slots=True)
class StillGood:
    """Nothing is to be done before this moment."""

    until: dt.datetime


@final
@dataclass(frozen=True, slots=True)
class _Succession:
    """The trusted CAs, the signing one first; `start` is when that one was made."""

    trusted: tuple[Certificate, ...]
    start: dt.datetime
    lookahead: dt.timedelta
    signs_from: dt.datetime

    def issuer_of(self, leaf: Certificate) -> Certificate | None:
        return next((ca for ca in self.trusted if leaf.is_issued_by(ca)), None)

    def dropped_from(self, retiring: Certificate) -> dt.datetime:
        if not retiring.is_authority:
            return self.start
        return min(retiring.not_after, self.start + self.lookahead)


def needs_renewal(
    bundle: "Bundle", required: "Requirements", now: dt.datetime
) -> RenewalNeeded | StillGood:
    """Return the parts that must be replaced at this moment, or until when none must.

    A faulty authority does not make its leaves faulty: they stay good while it is trusted. Ask again after its
    replacement.
    """
    results = dict(_check_parts(bundle, required, now))
    renewals = tuple(
        Renewal(part, result)
        for part, result in results.items()
        if isinstance(result, CertificateDefect)
    )
    if renewals:
        return RenewalNeeded(renewals)
    return StillGood(
        min(result for result in results.values() if not isinstance(result, CertificateDefect))
    )


def still_trusted(
    bundle: "Bundle", required: "Requirements", now: dt.datetime
) -> tuple[Certificate, ...]:
    """Return the CAs of the bundle that are not yet to be dropped, in their order."""
    trusted = decode_certificates(bundle.trust_pem)
    if isinstance(trusted, CertificateDefect):
        return ()
    succession = _succession(trusted, required)
    signing, *retiring = trusted
    kept = [] if now >= signing.not_after or not signing.is_authority else [signing]
    return (*kept, *(other for other in retiring if now < succession.dropped_from(other)))


def _check_parts(
    bundle: "Bundle", required: "Requirements", now: dt.datetime
) -> Iterator[tuple[Part, CertificateDefect | dt.datetime]]:
    yield Part.AUTHORITY, _authority(bundle, required, now)
    trusted = decode_certificates(bundle.trust_pem)
    if isinstance(trusted, CertificateDefect):
        # They are replaced with the authority; until then nothing is known of them.
        yield Part.SERVING, CertificateDefect(Defect.UNKNOWN_ISSUER, "no CA is known")
        yield Part.CLIENT, CertificateDefect(Defect.UNKNOWN_ISSUER, "no CA is known")
        return
    succession = _succession(trusted, required)
    yield from _retired(succession, now)
    serving = _Leaf(ExtendedKeyUsageOID.SERVER_AUTH, _missing_names)
    client = _Leaf(ExtendedKeyUsageOID.CLIENT_AUTH, _missing_common_name)
    yield Part.SERVING, serving.check(bundle.serving, succession, required=required, now=now)
    yield Part.CLIENT, client.check(bundle.client, succession, required=required, now=now)


def _authority(
    bundle: "Bundle", required: "Requirements", now: dt.datetime
) -> CertificateDefect | dt.datetime:
    pair = decode_pair(bundle.authority)
    if isinstance(pair, CertificateDefect):
        return pair
    if not pair.certificate.is_authority:
        return CertificateDefect(
            Defect.NOT_AN_AUTHORITY, "the first certificate of ca.crt is no CA's"
        )
    return _in_time(pair.certificate, now, lookahead=_lookahead(pair.certificate, required))


def _retired(
    succession: _Succession, now: dt.datetime
) -> Iterator[tuple[Part, CertificateDefect | dt.datetime]]:
    drops = [succession.dropped_from(certificate) for certificate in succession.trusted[1:]]
    if any(drop <= now for drop in drops):
        yield Part.RETIRED, CertificateDefect(Defect.RETIRED, "a replaced CA is trusted no longer")
    elif drops:
        yield Part.RETIRED, min(drops)


@final
@dataclass(frozen=True, slots=True)
class _Leaf:
    usage: Usage
    missing_from: "Callable[[Certificate, Requirements], list[str]]"

    def check(
        self,
        pair: "KeyPair",
        succession: _Succession,
        *,
        required: "Requirements",
        now: dt.datetime,
    ) -> CertificateDefect | dt.datetime:
        decoded = decode_pair(pair)
        if isinstance(decoded, CertificateDefect):
            return decoded
        leaf = decoded.certificate
        if self.usage not in leaf.usages:
            return CertificateDefect(
                Defect.WRONG_USAGE, "the certificate is made for another purpose"
            )
        if missing := self.missing_from(leaf, required):
            return CertificateDefect(
                Defect.NAMES_MISSING, f"the certificate lacks {', '.join(missing)}"
            )
        issuer = succession.issuer_of(leaf)
        if issuer is None:
            return CertificateDefect(
                Defect.UNKNOWN_ISSUER, "the certificate is by a CA that is not trusted"
            )
        if issuer is succession.trusted[0]:
            return _in_time(leaf, now, lookahead=_lookahead(leaf, required))
        return _in_succession(
            leaf, now, succession.signs_from, lookahead=_lookahead(leaf, required)
        )


def _in_succession(
    leaf: Certificate, now: dt.datetime, signs_from: dt.datetime, *, lookahead: dt.timedelta
) -> CertificateDefect | dt.datetime:
    """Judge a leaf by a CA that has been replaced."""
    if now >= signs_from:
        return CertificateDefect(
            Defect.RETIRING_ISSUER, "the certificate is by a CA that was replaced"
        )
    waits = signs_from < leaf.not_after
    result = _in_time(leaf, now, lookahead=dt.timedelta(0) if waits else lookahead)
    return result if isinstance(result, CertificateDefect) else min(result, signs_from)


def _in_time(
    certificate: Certificate, now: dt.datetime, *, lookahead: dt.timedelta
) -> CertificateDefect | dt.datetime:
    if now < certificate.not_before:
        return CertificateDefect(
            Defect.NOT_YET_VALID, f"it is valid from {certificate.not_before:%FT%TZ} only"
        )
    if now >= certificate.not_after:
        return CertificateDefect(Defect.EXPIRED, f"it expired at {certificate.not_after:%FT%TZ}")
    renew_at = certificate.not_after - lookahead
    if now >= renew_at:
        return CertificateDefect(Defect.EXPIRING, f"it expires at {certificate.not_after:%FT%TZ}")
    return renew_at


def _succession(trusted: tuple[Certificate, ...], required: "Requirements") -> _Succession:
    signing = trusted[0]
    start = signing.not_before + BACKDATE
    lookahead = _lookahead(signing, required)
    # No leaf ends while it waits: when the wait begins it has its whole lookahead before it.
    wait = min(lookahead, required.lookahead, required.leaf_lifetime / 3) / 3
    return _Succession(trusted, start, lookahead, start + wait)


def _lookahead(certificate: Certificate, required: "Requirements") -> dt.timedelta:
    lifetime = certificate.not_after - certificate.not_before - BACKDATE
    return max(dt.timedelta(0), min(required.lookahead, lifetime / 3))


def _missing_names(certificate: Certificate, required: "Requirements") -> list[str]:
    return [name for name in required.dns_names if name not in certificate.dns_names] + [
        str(address) for address in required.ip_addresses if address not in certificate.ip_addresses
    ]


def _missing_common_name(certificate: Certificate, required: "Requirements") -> list[str]:
    return [] if certificate.common_names == (required.client_name,) else [required.client_name]
