"""Private keys that sign images: those whose signatures both cosign and `public_keys` verify.

All sign SHA-256: `cosign verify --key` (3.1.3) takes it for every key unless it is given another hash, so that it
refuses what `cosign sign` makes of P-384, with SHA-384, and accepts what is made here. Ed25519 is missing, because
cosign verifies Ed25519ph only, which `cryptography` does not have.
"""

from dataclasses import dataclass, field
from typing import Final, Self, final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from kernelcache.signatures.public_keys import MAX_PEM_LENGTH, PublicKeyError, VerificationKey

PASSWORD_VARIABLE: Final = "GPU_SIGNING_PASSWORD"  # noqa: S105  # the name of the variable
_OF_COSIGN: Final = (b"ENCRYPTED SIGSTORE PRIVATE KEY", b"ENCRYPTED COSIGN PRIVATE KEY")


class SigningKeyError(ValueError):
    """The content is no key that signs here; the message says why, and has no part of the content."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A private key."""

    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = field(repr=False)
    public: VerificationKey

    @classmethod
    def new(cls) -> Self:
        """Return a key that did not exist before, ECDSA with P-256."""
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(key=key, public=VerificationKey.of(key.public_key()))

    @classmethod
    def from_pem(cls, content: bytes, *, password: str = "") -> Self:
        """Return the key of a PEM file, with its password where it is encrypted.

        Raises:
            SigningKeyError: it is something else, is not supported, or the password is another.
        """
        if len(content) > MAX_PEM_LENGTH:
            raise SigningKeyError(f"more than {MAX_PEM_LENGTH} bytes: one private key is shorter")
        if any(name in content for name in _OF_COSIGN):
            raise SigningKeyError(
                "in cosign's own form, which only cosign reads: give the key in PEM form (PKCS #8)"
                " that was imported, or one made by openssl"
            )
        if b"PRIVATE KEY-----" not in content:
            raise SigningKeyError("no private key in PEM form (-----BEGIN PRIVATE KEY-----)")
        is_encrypted = b"ENCRYPTED" in content
        if is_encrypted and not password:
            raise SigningKeyError(f"encrypted: set {PASSWORD_VARIABLE} to its password")
        try:
            key = load_pem_private_key(content, password.encode() if is_encrypted else None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            why = f"not readable with the password in {PASSWORD_VARIABLE}" if is_encrypted else None
            raise SigningKeyError(why or "a private key that cannot be read") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise SigningKeyError("a key of another kind than ECDSA and RSA, which cosign verifies")
        try:
            public = VerificationKey.of(key.public_key())
        except PublicKeyError as error:
            raise SigningKeyError(str(error)) from None
        return cls(key=key, public=public)

    @property
    def public_pem(self) -> str:
        """The public key, as `spec.verification.keys` takes it."""
        public = self.key.public_key()
        return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def sign(self, content: bytes) -> bytes:
        """Return the signature, ECDSA's in DER."""
        match self.key:
            case ec.EllipticCurvePrivateKey() as key:
                return key.sign(content, ec.ECDSA(hashes.SHA256()))
            case rsa.RSAPrivateKey() as key:
                return key.sign(content, padding.PKCS1v15(), hashes.SHA256())
