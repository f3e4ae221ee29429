"""Refusals of signatures by key: what was signed, by whom, and how much there may be of it."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from api.image_reference import Digest
from api.kinds.gkmcache import Verification
from api.text import MAX_MESSAGE_LENGTH
from kernelcache.signatures.image_signatures import verify_signatures
from kernelcache.signatures.material import (
    MAX_SIGNATURE_BYTES,
    MAX_SIGNATURES,
    SignatureMaterial,
    SigstoreBundle,
    SimpleSigning,
)
from kernelcache.signatures.policy import SignaturePolicy, read_signature_policy
from kernelcache.signatures.verification import (
    SignatureFault,
    SignatureRefused,
    SignatureVerified,
    VerificationResult,
)
from tests.support.sigstore_instance import (
    b64,
    envelope_of,
    key_bundle,
    material_of,
    new_key,
    payload_of,
    public_pem,
    sign,
    statement_of,
)

DIGEST = Digest("sha256:" + "a" * 64)
OTHER = "sha256:" + "b" * 64
KEY, FOREIGN_KEY = new_key(), new_key()
POLICY = read_signature_policy(Verification(keys=[public_pem(KEY)]))
SIGNER = f"key {POLICY.keys[0].fingerprint}"


def result_of(
    *signatures: SignatureMaterial, policy: SignaturePolicy = POLICY
) -> VerificationResult:
    return verify_signatures(DIGEST, signatures, policy=policy, trust_root=None)


def refused(*signatures: SignatureMaterial) -> tuple[SignatureFault, str]:
    result = result_of(*signatures)
    assert isinstance(result, SignatureRefused)
    assert result.digest == DIGEST
    return result.fault, result.message.removeprefix(f"{DIGEST}: ")


def simple(payload: bytes, key: Any = KEY) -> SimpleSigning:
    return SimpleSigning(payload=payload, signature=b64(sign(key, payload)))


def in_envelope(payload: bytes, key: Any = KEY, **options: Any) -> SigstoreBundle:
    return material_of(key_bundle(dsseEnvelope=envelope_of(key, payload, **options)))


def of_message(digest: str, key: Any = KEY, algorithm: str = "SHA2_256") -> SigstoreBundle:
    content = bytes.fromhex(digest.removeprefix("sha256:"))
    signature = key.sign(content, ec.ECDSA(Prehashed(hashes.SHA256())))
    return material_of(
        key_bundle(
            messageSignature={
                "messageDigest": {"algorithm": algorithm, "digest": b64(content)},
                "signature": b64(signature),
            }
        )
    )


GOOD = [
    pytest.param(simple(payload_of(DIGEST)), id="older form"),
    pytest.param(in_envelope(statement_of(DIGEST)), id="envelope"),
    pytest.param(of_message(DIGEST), id="message"),
]


@pytest.mark.parametrize("material", GOOD)
def test_a_signature_by_a_listed_key_is_accepted(material: SignatureMaterial):
    assert isinstance(result_of(material), SignatureVerified)


@pytest.mark.parametrize("material", GOOD)
def test_one_good_signature_among_others_is_enough(material: SignatureMaterial):
    others: list[SignatureMaterial] = [
        simple(payload_of(DIGEST), FOREIGN_KEY),
        SigstoreBundle(content=b"{"),
    ]
    assert isinstance(result_of(*others, material, *others), SignatureVerified)


def test_an_image_without_signatures_is_refused():
    assert refused() == (SignatureFault.NONE_AT_ALL, "not accepted: it has no signature")


REFUSED = [
    pytest.param(
        simple(payload_of(OTHER)),
        SignatureFault.OTHER_IMAGE,
        f"{SIGNER} has signed another image, {OTHER}",
        id="payload of another image",
    ),
    pytest.param(
        in_envelope(statement_of(OTHER)),
        SignatureFault.OTHER_IMAGE,
        f"{SIGNER} has signed another image, {OTHER}",
        id="statement of another image",
    ),
    pytest.param(
        of_message(OTHER),
        SignatureFault.OTHER_IMAGE,
        f"{SIGNER} has signed another image, {OTHER}",
        id="message of another image",
    ),
    pytest.param(
        simple(payload_of(DIGEST), FOREIGN_KEY),
        SignatureFault.UNKNOWN_KEY,
        "no listed key has made it",
        id="key that is not listed",
    ),
    pytest.param(
        in_envelope(statement_of(DIGEST), FOREIGN_KEY),
        SignatureFault.UNKNOWN_KEY,
        "no listed key has made it",
        id="envelope by a key that is not listed",
    ),
    pytest.param(
        SimpleSigning(payload=payload_of(DIGEST), signature=b64(sign(KEY, payload_of(OTHER)))),
        SignatureFault.UNKNOWN_KEY,
        "no listed key has made it",
        id="payload under another signature",
    ),
    pytest.param(
        SimpleSigning(payload=payload_of(DIGEST), signature="not base64!"),
        SignatureFault.MALFORMED,
        "it is not in Base64",
        id="signature outside Base64",
    ),
    pytest.param(
        simple(b"[1]"),
        SignatureFault.MALFORMED,
        f"what {SIGNER} has signed is no payload of an image",
        id="malformed payload",
    ),
    pytest.param(
        simple(b"[" * 100_000),
        SignatureFault.MALFORMED,
        f"what {SIGNER} has signed is no payload of an image",
        id="payload of deep lists",
    ),
    pytest.param(
        simple(payload_of(DIGEST, kind="a\nparking ticket")),
        SignatureFault.UNSUPPORTED,
        f'{SIGNER} has signed a "a?parking ticket", not an image',
        id="payload of another type",
    ),
    pytest.param(
        in_envelope(b"{}"),
        SignatureFault.MALFORMED,
        f"what {SIGNER} has signed is no in-toto statement",
        id="malformed statement",
    ),
    pytest.param(
        in_envelope(statement_of(DIGEST, "https://slsa.dev/provenance/v1")),
        SignatureFault.UNSUPPORTED,
        f'{SIGNER} has made an attestation of type "https://slsa.dev/provenance/v1",'
        " not a signature",
        id="attestation",
    ),
    pytest.param(
        in_envelope(statement_of(DIGEST), payload_type="text/plain"),
        SignatureFault.UNSUPPORTED,
        f'{SIGNER} has signed an envelope with "text/plain", not with application/vnd.in-toto+json',
        id="envelope of another type",
    ),
    pytest.param(
        of_message(DIGEST, algorithm="SHA2_512"),
        SignatureFault.UNSUPPORTED,
        'it signs a digest of type "SHA2_512", not of SHA2_256',
        id="message by another hash",
    ),
    pytest.param(
        material_of(key_bundle() | {"mediaType": "application/x"}),
        SignatureFault.UNSUPPORTED,
        'it is a bundle of type "application/x", not of v0.3',
        id="bundle of another version",
    ),
    pytest.param(
        material_of(key_bundle()),
        SignatureFault.MALFORMED,
        "its bundle needs either an envelope or a signature of a message",
        id="bundle without content",
    ),
    pytest.param(
        material_of(
            key_bundle(dsseEnvelope=envelope_of(KEY, statement_of(DIGEST)) | {"signatures": []})
        ),
        SignatureFault.MALFORMED,
        "its envelope has 0 signatures, and needs one",
        id="envelope without a signature",
    ),
    pytest.param(
        SigstoreBundle(content=b"\xff"),
        SignatureFault.MALFORMED,
        "it is no sigstore bundle",
        id="bundle that is no JSON",
    ),
    pytest.param(
        SigstoreBundle(
            content=in_envelope(statement_of(DIGEST)).content.replace(b'"any"', b'"\xff"')
        ),
        SignatureFault.MALFORMED,
        "it is no sigstore bundle",
        id="bundle outside UTF-8, in a member that is not used",
    ),
    pytest.param(
        SigstoreBundle(content=b" " * (MAX_SIGNATURE_BYTES + 1)),
        SignatureFault.TOO_LARGE,
        f"it has {MAX_SIGNATURE_BYTES + 1} bytes; at most {MAX_SIGNATURE_BYTES} are possible",
        id="bundle that is too large",
    ),
    pytest.param(
        SimpleSigning(
            payload=payload_of(DIGEST),
            signature=b64(sign(KEY, payload_of(DIGEST))),
            certificate="x" * MAX_SIGNATURE_BYTES,
        ),
        SignatureFault.TOO_LARGE,
        None,
        id="annotations that are too large",
    ),
]


@pytest.mark.parametrize(("material", "fault", "detail"), REFUSED)
def test_a_refusal_is_exact(material: SignatureMaterial, fault: SignatureFault, detail: str | None):
    found, message = refused(material)
    assert found is fault
    if detail is not None:
        assert message == f"not accepted: {detail}"


def test_a_statement_about_several_images_is_of_each_of_them():
    statement = json.loads(statement_of(OTHER))
    statement["subject"].append({"digest": {"sha256": DIGEST.removeprefix("sha256:")}})
    assert isinstance(result_of(in_envelope(json.dumps(statement).encode())), SignatureVerified)


@pytest.mark.parametrize(
    "subject", [[], [{"digest": {"sha512": "a" * 64}}]], ids=["none", "sha512"]
)
def test_a_statement_about_no_sha256_digest_is_refused(subject: list[Any]):
    statement = json.loads(statement_of(DIGEST)) | {"subject": subject}
    fault, _ = refused(in_envelope(json.dumps(statement).encode()))
    assert fault is SignatureFault.OTHER_IMAGE


def test_ed25519_cannot_sign_a_digest_alone():
    key = ed25519.Ed25519PrivateKey.generate()
    content = bytes.fromhex(DIGEST.removeprefix("sha256:"))
    bundle = key_bundle(
        messageSignature={
            "messageDigest": {"algorithm": "SHA2_256", "digest": b64(content)},
            "signature": b64(key.sign(content)),
        }
    )
    result = result_of(
        material_of(bundle), policy=read_signature_policy(Verification(keys=[public_pem(key)]))
    )
    assert isinstance(result, SignatureRefused)


def test_64_signatures_are_verified_and_65_are_not():
    foreign = simple(payload_of(DIGEST), FOREIGN_KEY)
    good = simple(payload_of(DIGEST))
    assert isinstance(result_of(*[foreign] * (MAX_SIGNATURES - 1), good), SignatureVerified)
    assert refused(*[foreign] * MAX_SIGNATURES, good) == (
        SignatureFault.TOO_MANY,
        "not accepted: it has 65 signatures; at most 64 are possible: remove those that are not"
        " needed",
    )


def test_the_problem_that_came_closest_names_the_refusal_and_all_are_told_once():
    fault, message = refused(
        SigstoreBundle(content=b"{"),
        simple(payload_of(DIGEST), FOREIGN_KEY),
        simple(payload_of(OTHER)),
        simple(payload_of(DIGEST), FOREIGN_KEY),
    )
    assert fault is SignatureFault.OTHER_IMAGE
    assert message == (
        f"none of 4 signatures is accepted: {SIGNER} has signed another image, {OTHER};"
        " no listed key has made it; it is no sigstore bundle"
    )


def test_a_message_fits_into_an_event():
    materials = [simple(payload_of(DIGEST, kind=f"{number} " * 80)) for number in range(60)]
    result = result_of(*materials)
    assert isinstance(result, SignatureRefused)
    assert len(result.message) <= MAX_MESSAGE_LENGTH
