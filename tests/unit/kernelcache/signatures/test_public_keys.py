"""Which keys are supported, and what each of them verifies."""

import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kernelcache.signatures.public_keys import MAX_PEM_LENGTH, PublicKeyError, VerificationKey
from tests.support.sigstore_instance import new_key, public_der, public_pem

CONTENT = b"content"
RSA_KEY = rsa.generate_private_key(65537, 2048)


def ecdsa(curve: ec.EllipticCurve, algorithm: hashes.HashAlgorithm) -> tuple[str, bytes]:
    key = ec.generate_private_key(curve)
    return public_pem(key), key.sign(CONTENT, ec.ECDSA(algorithm))


def rsa_signed(scheme: Any) -> tuple[str, bytes]:
    return public_pem(RSA_KEY), RSA_KEY.sign(CONTENT, scheme, hashes.SHA256())


def ed25519_signed() -> tuple[str, bytes]:
    key = ed25519.Ed25519PrivateKey.generate()
    return public_pem(key), key.sign(CONTENT)


@pytest.mark.parametrize(
    "signed",
    [
        pytest.param(ecdsa(ec.SECP256R1(), hashes.SHA256()), id="P-256"),
        pytest.param(ecdsa(ec.SECP384R1(), hashes.SHA384()), id="P-384"),
        pytest.param(ecdsa(ec.SECP384R1(), hashes.SHA256()), id="P-384 with SHA-256"),
        pytest.param(rsa_signed(padding.PKCS1v15()), id="RSA"),
        pytest.param(ed25519_signed(), id="Ed25519"),
    ],
)
def test_a_supported_key_verifies_its_own_signature_of_this_content_only(
    signed: tuple[str, bytes],
):
    pem, signature = signed
    key = VerificationKey.from_pem(pem)
    assert key.has_signed(signature, CONTENT)
    assert not key.has_signed(signature, CONTENT + b" ")
    assert not key.has_signed(signature[:-1], CONTENT)
    assert not key.has_signed(b"", CONTENT)
    assert not VerificationKey.of(new_key().public_key()).has_signed(signature, CONTENT)


@pytest.mark.parametrize(
    "signed",
    [
        pytest.param(ecdsa(ec.SECP256R1(), hashes.SHA384()), id="P-256 with SHA-384"),
        pytest.param(ecdsa(ec.SECP256R1(), hashes.SHA1()), id="P-256 with SHA-1"),
        pytest.param(
            rsa_signed(padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)),
            id="RSA-PSS",
        ),
    ],
)
def test_the_signature_does_not_choose_the_algorithm(signed: tuple[str, bytes]):
    pem, signature = signed
    assert not VerificationKey.from_pem(pem).has_signed(signature, CONTENT)


def test_a_digest_is_verified_without_its_content():
    key = new_key()
    digest = hashlib.sha256(CONTENT).digest()
    signature = key.sign(digest, ec.ECDSA(Prehashed(hashes.SHA256())))
    verification = VerificationKey.of(key.public_key())
    assert verification.has_signed_digest(signature, digest)
    assert verification.has_signed(signature, CONTENT)
    assert not verification.has_signed_digest(signature, bytes(32))


def test_the_fingerprint_is_that_of_the_public_key_in_der_form():
    key = new_key()
    found = VerificationKey.from_pem(public_pem(key))
    assert found.fingerprint == f"SHA256:{hashlib.sha256(public_der(key)).hexdigest()}"
    assert VerificationKey.from_der(public_der(key)).fingerprint == found.fingerprint


PRIVATE = new_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    ("pem", "message"),
    [
        pytest.param("", "0 PEM blocks: list each public key as an element of its own", id="empty"),
        pytest.param(
            public_pem(new_key()) * 2,
            "2 PEM blocks: list each public key as an element of its own",
            id="two keys",
        ),
        pytest.param(
            PRIVATE, "a private key: replace it, and list its public key", id="private key"
        ),
        pytest.param(
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
            "no public key in PEM form (-----BEGIN PUBLIC KEY-----)",
            id="no key inside",
        ),
        pytest.param(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "no public key in PEM form (-----BEGIN PUBLIC KEY-----)",
            id="certificate",
        ),
        pytest.param(
            " " * (MAX_PEM_LENGTH + 1),
            f"more than {MAX_PEM_LENGTH} characters: one public key is shorter",
            id="too long",
        ),
        pytest.param(
            "-----BEGIN \ud800",
            "no public key in PEM form (-----BEGIN PUBLIC KEY-----)",
            id="lone surrogate",
        ),
        pytest.param(
            public_pem(ec.generate_private_key(ec.SECP521R1())),
            "the curve secp521r1: P-256 and P-384 are supported",
            id="P-521",
        ),
        pytest.param(
            public_pem(rsa.generate_private_key(65537, 1024)),
            "RSA of 1024 bits: 2048 to 8192 are supported",
            id="short RSA",
        ),
        pytest.param(
            public_pem(dsa.generate_private_key(1024)),
            "a key of another kind than ECDSA, RSA and Ed25519",
            id="DSA",
        ),
    ],
)
def test_another_text_is_refused_without_being_repeated(pem: str, message: str):
    with pytest.raises(PublicKeyError) as raised:
        VerificationKey.from_pem(pem)
    assert str(raised.value) == message


def test_der_that_is_no_key_is_refused():
    with pytest.raises(PublicKeyError, match=r"^no public key in DER form$"):
        VerificationKey.from_der(b"\0")


def test_an_exponent_with_which_a_verification_takes_long_is_refused():
    modulus = rsa.generate_private_key(65537, 2048).public_key().public_numbers().n
    key = rsa.RSAPublicNumbers(e=2**2000 + 1, n=modulus).public_key()
    with pytest.raises(PublicKeyError, match="RSA with an exponent above 4294967296"):
        VerificationKey.of(key)
