"""The signers that are accepted: listed keys, and listed identities with their issuers (W1).

An identity is compared as a whole, letter by letter; there are no patterns. A policy that lists nobody does not
exist: without a key and an identity nothing can be proven, and any signer of a public authority would do.
"""

from dataclasses import dataclass
from typing import final

from api.kinds.gkmcache import MAX_IDENTITIES, MAX_KEYS, SignerIdentity, Verification
from api.text import truncate
from kernelcache.signatures.public_keys import PublicKeyError, VerificationKey


class SignaturePolicyError(ValueError):
    """The listed keys and identities make no policy; the message names the element, as the user knows it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignaturePolicy:
    """The accepted signers; there is at least one.

    16 keys and 64 signatures are 1,024 verifications, some 0.4 s of one core with P-384: a user can cause them.
    """

    keys: tuple[VerificationKey, ...]
    identities: frozenset[SignerIdentity]


def read_signature_policy(verification: Verification) -> SignaturePolicy:
    """Return the policy of a `spec.verification`, or of the cluster's default.

    The API server has judged the former by its schema, and nobody the latter: both are checked.

    Raises:
        SignaturePolicyError: a key or an identity is unusable, or there are none or too many.
    """
    texts, listed = verification.keys or [], verification.identities or []
    if not texts and not listed:
        raise SignaturePolicyError(
            "verification lists neither keys nor identities: list the public keys or the identities"
            " whose signatures are accepted"
        )
    for name, number, limit in (
        ("keys", len(texts), MAX_KEYS),
        ("identities", len(listed), MAX_IDENTITIES),
    ):
        if number > limit:
            raise SignaturePolicyError(
                f"verification.{name} has {number} elements; at most {limit} are possible"
            )
    for index, identity in enumerate(listed):
        _check_name(f"verification.identities[{index}].subject", identity.subject)
        _check_name(f"verification.identities[{index}].issuer", identity.issuer)
    return SignaturePolicy(
        keys=tuple(_key(index, text) for index, text in enumerate(texts)),
        identities=frozenset(listed),
    )


def _key(index: int, text: str) -> VerificationKey:
    try:
        return VerificationKey.from_pem(text)
    except PublicKeyError as error:
        raise SignaturePolicyError(f"verification.keys[{index}] is {error}") from None


def _check_name(field: str, name: str) -> None:
    if not name.strip():
        raise SignaturePolicyError(f"{field} is empty: subject and issuer are both required")
    if "*" in name:
        raise SignaturePolicyError(
            f'{field} is "{truncate(name)}": it is compared as a whole, patterns with * are not possible;'
            " list each identity"
        )
