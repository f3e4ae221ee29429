"""Renewal of the faulty parts of a bundle, each by its own function.

Keys and serials are fresh at every call, so two replicas never make the same; the Secret
decides between them (`certs.rotation`).
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from cryptography import x509

from certs.issuance import issue_authority, issue_client, issue_serving, new_key
from certs.pem import CertificateDefect, DecodedPair, decode_pair
from certs.validity import Part, RenewalNeeded, StillGood, needs_renewal, still_trusted

if TYPE_CHECKING:
    import datetime as dt

    from certs.bundle import Bundle, Requirements

_MAX_TRUSTED = 4
"""An ordinary rotation trusts two CAs. Should something make CAs again and again, as a clock
gone wild, the Secret and caBundle must not grow without end."""


def renew(
    bundle: "Bundle", needed: "RenewalNeeded", *, required: "Requirements", now: "dt.datetime"
) -> "Bundle":
    """Return the bundle with every faulty part replaced; good parts stay as they are."""
    if needed.concerns(Part.AUTHORITY):
        bundle = _with_new_authority(bundle, required, now)
    elif needed.concerns(Part.RETIRED):
        bundle = replace(bundle, trust_pem=_trust(bundle, required, now))
    # What is to be done to the leaves depends on the authorities that are trusted now.
    match needs_renewal(bundle, required, now):
        case StillGood():
            return bundle
        case RenewalNeeded() as leaves:
            return _with_new_leaves(bundle, leaves, required=required, now=now)


def _with_new_authority(bundle: "Bundle", required: "Requirements", now: "dt.datetime") -> "Bundle":
    made = issue_authority(
        new_key(),
        serial=x509.random_serial_number(),
        now=now,
        lifetime=required.authority_lifetime,
    )
    return replace(
        bundle,
        trust_pem=made.certificate_pem + _trust(bundle, required, now, at_most=_MAX_TRUSTED - 1),
        authority_key_pem=made.key_pem,
    )


def _with_new_leaves(
    bundle: "Bundle", needed: "RenewalNeeded", *, required: "Requirements", now: "dt.datetime"
) -> "Bundle":
    authority = _signing(bundle)
    if needed.concerns(Part.SERVING):
        made = issue_serving(
            authority, new_key(), serial=x509.random_serial_number(), now=now, required=required
        )
        bundle = replace(bundle, serving=made)
    if needed.concerns(Part.CLIENT):
        made = issue_client(
            authority, new_key(), serial=x509.random_serial_number(), now=now, required=required
        )
        bundle = replace(bundle, client=made)
    return bundle


def _signing(bundle: "Bundle") -> DecodedPair:
    authority = decode_pair(bundle.authority)
    assert not isinstance(authority, CertificateDefect), "an unusable authority was replaced before"
    return authority


def _trust(
    bundle: "Bundle", required: "Requirements", now: "dt.datetime", *, at_most: int = _MAX_TRUSTED
) -> bytes:
    return b"".join(
        certificate.pem for certificate in still_trusted(bundle, required, now)[:at_most]
    )
