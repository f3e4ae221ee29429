"""Public keys of signers and logs, and what they have signed.

The algorithm follows from the key, never from the signature: P-256 and RSA sign SHA-256, P-384 signs SHA-384 or
(with releases of cosign before 3) SHA-256, Ed25519 signs the content itself. RSA is PKCS #1 v1.5.
Ed25519ph, the choice of cosign for Ed25519 keys, is missing in `cryptography` 50, and so here.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final, Self, final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
"""Larger ones take milliseconds each, and a user lists them."""
_MAX_RSA_EXPONENT: Final = 2**32
"""All tools use 65,537; a verification takes as long as the exponent has bits."""
MAX_PEM_LENGTH: Final = 16_384

SupportedKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey


class PublicKeyError(ValueError):
    """The text is no key that is supported; the message says why, and has no part of the text."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationKey:
    """A public key that is supported."""

    key: SupportedKey = field(repr=False)
    fingerprint: str
    """`SHA256:` and the hash of the key's SubjectPublicKeyInfo in hex, as `openssl pkey -pubin -outform DER |
    sha256sum` prints it."""

    @classmethod
    def from_pem(cls, pem: str) -> Self:
        """Return the key of a PEM text with one block.

        Raises:
            PublicKeyError: the text is something else, or the key is not supported.
        """
        if len(pem) > MAX_PEM_LENGTH:
            raise PublicKeyError(
                f"more than {MAX_PEM_LENGTH} characters: one public key is shorter"
            )
        if "PRIVATE KEY" in pem:
            raise PublicKeyError("a private key: replace it, and list its public key")
        blocks = pem.count("-----BEGIN ")
        if blocks != 1:
            raise PublicKeyError(
                f"{blocks} PEM blocks: list each public key as an element of its own"
            )
        try:
            key = serialization.load_pem_public_key(pem.encode())
        except (ValueError, UnsupportedAlgorithm):
            raise PublicKeyError("no public key in PEM form (-----BEGIN PUBLIC KEY-----)") from None
        return cls.of(key)

    @classmethod
    def from_der(cls, content: bytes) -> Self:
        """Return the key of a SubjectPublicKeyInfo.

        Raises:
            PublicKeyError: as for `from_pem`.
        """
        try:
            key = serialization.load_der_public_key(content)
        except (ValueError, UnsupportedAlgorithm):
            raise PublicKeyError("no public key in DER form") from None
        return cls.of(key)

    @classmethod
    def of(cls, key: object) -> Self:
        """Return the key, checked.

        Raises:
            PublicKeyError: the kind, the curve or the size is not supported.
        """
        match key:
            case ec.EllipticCurvePublicKey():
                if not isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1):
                    raise PublicKeyError(
                        f"the curve {key.curve.name}: P-256 and P-384 are supported"
                    )
            case rsa.RSAPublicKey():
                if not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
                    raise PublicKeyError(
                        f"RSA of {key.key_size} bits: {MIN_RSA_BITS} to {MAX_RSA_BITS} are supported"
                    )
                if key.public_numbers().e > _MAX_RSA_EXPONENT:
                    raise PublicKeyError(
                        f"RSA with an exponent above {_MAX_RSA_EXPONENT}: a verification would take too long"
                    )
            case ed25519.Ed25519PublicKey():
                pass
            case _:
                raise PublicKeyError("a key of another kind than ECDSA, RSA and Ed25519")
        content = key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return cls(key=key, fingerprint=f"SHA256:{hashlib.sha256(content).hexdigest()}")

    @property
    def is_ed25519(self) -> bool:
        return isinstance(self.key, ed25519.Ed25519PublicKey)

    def has_signed(self, signature: bytes, content: bytes) -> bool:
        return any(
            _is_valid(self.key, signature, content, algorithm=algorithm)
            for algorithm in _algorithms_of(self.key)
        )

    def has_signed_digest(self, signature: bytes, sha256: bytes) -> bool:
        """Say whether it has signed the content with this SHA-256 digest of 32 bytes.

        False for Ed25519, which signs the content itself.
        """
        if self.is_ed25519:
            return False
        return _is_valid(self.key, signature, sha256, algorithm=Prehashed(hashes.SHA256()))


def _algorithms_of(key: SupportedKey) -> "tuple[hashes.HashAlgorithm, ...]":
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP384R1):
        return (hashes.SHA384(), hashes.SHA256())
    return (hashes.SHA256(),)


def _is_valid(
    key: SupportedKey,
    signature: bytes,
    content: bytes,
    *,
    algorithm: "hashes.HashAlgorithm | Prehashed",
) -> bool:
    """Say whether the signature is valid; Ed25519 has an algorithm of its own."""
    try:
        match key:
            case ec.EllipticCurvePublicKey():
                key.verify(signature, content, ec.ECDSA(algorithm))
            case rsa.RSAPublicKey():
                key.verify(signature, content, padding.PKCS1v15(), algorithm)
            case ed25519.Ed25519PublicKey():
                key.verify(signature, content)
    except InvalidSignature:
        return False
    return True
