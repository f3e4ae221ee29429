"""What is signed here: the bytes that cosign signs, accepted by our own verification, beside what was there."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from api.image_reference import Digest, ImageReference, parse_image_reference
from api.kinds.gkmcache import Verification
from kernelcache.image_format import BlobDescriptor
from kernelcache.signatures import image_signing
from kernelcache.signatures.image_signatures import verify_signatures
from kernelcache.signatures.material import (
    BUNDLE_ARTIFACT_TYPE,
    MAX_SIGNATURES,
    SIMPLE_SIGNING_TYPE,
    SignatureMaterial,
    SigstoreBundle,
    SimpleSigning,
    read_bundle_manifest,
    read_simple_signing_manifest,
)
from kernelcache.signatures.policy import SignaturePolicy, read_signature_policy
from kernelcache.signatures.signing_keys import SigningKey, SigningKeyError
from kernelcache.signatures.verification import SignatureFault, SignatureRefused
from tests.support.sigstore_instance import new_key, public_pem

FILE = Path(__file__).parents[3] / "data" / "kernelcache" / "cosign-signatures.json"
SAMPLES: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
DIGEST = Digest("sha256:" + "a" * 64)
IMAGE = ImageReference(registry="registry.example.com", repository="team/cache", tag="1")
KEYS: dict[str, Callable[[], Any]] = {
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
}
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


def pem_of(key: Any, *, password: str = "", form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    pem: bytes = key.private_bytes(Encoding.PEM, form, encryption)
    return pem


def a_signing_key() -> SigningKey:
    return SigningKey.from_pem(pem_of(new_key()))


def a_blob(letter: str, media_type: str = SIMPLE_SIGNING_TYPE) -> BlobDescriptor:
    return BlobDescriptor(media_type=media_type, digest=Digest("sha256:" + letter * 64), size=7)


def policy_of(*keys: Any) -> SignaturePolicy:
    return read_signature_policy(Verification(keys=[public_pem(key) for key in keys]))


def sample_of(form: str) -> tuple[dict[str, Any], bytes]:
    """Return the sample of P-256 in the form, and the content of its one blob."""
    (found,) = [item for item in SAMPLES if (item["key"], item["form"]) == ("ecdsa-p256", form)]
    (content,) = found["blobs"].values()
    return found, base64.b64decode(content)


def both_forms(key: SigningKey) -> list[SignatureMaterial]:
    signed = image_signing.sign_payload(key, IMAGE, DIGEST)
    return [
        SimpleSigning(payload=signed.payload, signature=signed.signature),
        SigstoreBundle(content=image_signing.sign_bundle(key, DIGEST)),
    ]


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("name", KEYS)
def test_both_forms_are_accepted_by_the_key_and_by_no_other(name: str, form: PrivateFormat):
    private = KEYS[name]()
    key = SigningKey.from_pem(pem_of(private, form=form))
    for material in both_forms(key):
        result = verify_signatures(
            DIGEST, [material], policy=policy_of(new_key(), private), trust_root=None
        )
        assert result.message == f"{DIGEST} is signed by key {key.public.fingerprint}"
        other = verify_signatures(DIGEST, [material], policy=policy_of(new_key()), trust_root=None)
        assert isinstance(other, SignatureRefused)
        image = Digest("sha256:" + "b" * 64)
        replayed = verify_signatures(image, [material], policy=policy_of(private), trust_root=None)
        assert isinstance(replayed, SignatureRefused)
        assert replayed.fault is SignatureFault.OTHER_IMAGE


def test_the_signed_payload_is_letter_by_letter_that_of_cosign():
    sample, content = sample_of("simple-signing")
    name = json.loads(content)["critical"]["identity"]["docker-reference"]
    reference = parse_image_reference(name)
    signed = image_signing.sign_payload(a_signing_key(), reference, Digest(sample["digest"]))
    assert signed.payload == content


def test_the_signed_envelope_is_letter_by_letter_that_of_cosign():
    sample, content = sample_of("bundle")
    ours = json.loads(image_signing.sign_bundle(a_signing_key(), Digest(sample["digest"])))
    theirs = json.loads(content)
    assert list(ours) == list(theirs)
    assert list(ours["verificationMaterial"]["publicKey"]) == ["hint"]
    for field in ("payload", "payloadType"):
        assert ours["dsseEnvelope"][field] == theirs["dsseEnvelope"][field]


def test_the_hint_of_a_bundle_is_made_of_the_key_as_cosign_makes_it():
    sample, content = sample_of("bundle")
    hint = json.loads(content)["verificationMaterial"]["publicKey"]["hint"]
    policy = read_signature_policy(Verification(keys=[sample["publicKey"]]))
    assert base64.b64decode(hint).hex() == policy.keys[0].fingerprint.removeprefix("SHA256:")
    key = a_signing_key()
    ours = json.loads(image_signing.sign_bundle(key, DIGEST))["verificationMaterial"]["publicKey"][
        "hint"
    ]
    assert base64.b64decode(ours).hex() == key.public.fingerprint.removeprefix("SHA256:")


def test_the_manifest_of_a_bundle_says_what_that_of_cosign_says():
    sample, _ = sample_of("bundle")
    theirs = json.loads(sample["manifest"])
    del theirs["annotations"]["org.opencontainers.image.created"]
    image, layer, config = (
        BlobDescriptor(
            media_type=item["mediaType"], digest=Digest(item["digest"]), size=item["size"]
        )
        for item in (theirs["subject"], theirs["layers"][0], theirs["config"])
    )
    ours = image_signing.bundle_manifest(image, config, layer)
    del theirs["config"]["artifactType"]
    assert json.loads(ours) == theirs
    assert read_bundle_manifest(ours).descriptor == layer


def test_a_signature_is_added_behind_those_of_others():
    sample, _ = sample_of("simple-signing")
    present = sample["manifest"].encode()
    layers = image_signing.payload_layers(present, a_blob("c"), "MEU=")
    assert layers[:-1] == json.loads(present)["layers"]
    config = BlobDescriptor(media_type="x", digest=DIGEST, size=2)
    blobs = read_simple_signing_manifest(image_signing.payloads_manifest(config, layers))
    assert [blob.digest for blob in blobs][1:] == [a_blob("c").digest]
    assert blobs[1].signature == "MEU="
    listed = json.loads(image_signing.payloads_config(layers))["rootfs"]["diff_ids"]
    assert listed == [blob.digest for blob in blobs]


def test_a_full_manifest_takes_no_more():
    layer = {"mediaType": SIMPLE_SIGNING_TYPE, "digest": DIGEST, "size": 1, "annotations": {}}
    present = json.dumps({"layers": [layer] * MAX_SIGNATURES}).encode()
    with pytest.raises(image_signing.SignatureListError, match=f"has {MAX_SIGNATURES} signatures"):
        image_signing.payload_layers(present, a_blob("c"), "MEU=")


@pytest.mark.parametrize(
    "present", [b"", b"[]", b"{}", b'{"layers": 1, "manifests": [1]}', b"\xff"]
)
def test_what_is_no_list_of_signatures_is_not_overwritten(present: bytes):
    with pytest.raises(image_signing.SignatureListError, match="the manifest of signatures"):
        image_signing.payload_layers(present, a_blob("c"), "MEU=")
    with pytest.raises(image_signing.SignatureListError, match="the list of referrers"):
        image_signing.grown_referrers(present, a_blob("c", MANIFEST_TYPE))


def test_a_list_of_referrers_grows_once_by_each():
    scan = {"mediaType": MANIFEST_TYPE, "digest": DIGEST, "size": 5, "artifactType": "scan"}
    present = json.dumps({"manifests": [scan]}).encode()
    bundle = a_blob("c", MANIFEST_TYPE)
    grown = image_signing.grown_referrers(present, bundle)
    first, second = json.loads(grown)["manifests"]
    assert first == scan
    assert (second["digest"], second["artifactType"]) == (bundle.digest, BUNDLE_ARTIFACT_TYPE)
    assert image_signing.grown_referrers(grown, bundle) == grown
    assert json.loads(image_signing.grown_referrers(None, bundle))["manifests"] == [second]


def test_an_encrypted_key_needs_its_password():
    private = new_key()
    content = pem_of(private, password="a word")
    assert SigningKey.from_pem(content, password="a word").public == policy_of(private).keys[0]
    with pytest.raises(SigningKeyError, match="set GPU_SIGNING_PASSWORD"):
        SigningKey.from_pem(content)
    with pytest.raises(SigningKeyError, match="with the password in GPU_SIGNING_PASSWORD"):
        SigningKey.from_pem(content, password="another")


def test_a_password_that_is_not_needed_does_no_harm():
    private = new_key()
    key = SigningKey.from_pem(pem_of(private), password="a word")
    assert key.public == policy_of(private).keys[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "no private key in PEM form", id="nothing"),
        pytest.param(b"\xff\x00", "no private key in PEM form", id="binary"),
        pytest.param(public_pem(new_key()).encode(), "no private key", id="public key"),
        pytest.param(b"x" * 20_000, "more than 16384 bytes", id="large"),
        pytest.param(
            b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "a private key that cannot be read",
            id="broken",
        ),
        pytest.param(
            b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n",
            "cosign's own form",
            id="cosign",
        ),
        pytest.param(pem_of(ed25519.Ed25519PrivateKey.generate()), "another kind", id="Ed25519"),
        pytest.param(pem_of(dsa.generate_private_key(2048)), "another kind", id="DSA"),
        pytest.param(
            pem_of(ec.generate_private_key(ec.SECP521R1())), "P-256 and P-384", id="P-521"
        ),
        pytest.param(
            pem_of(rsa.generate_private_key(65537, 1024)), "RSA of 1024 bits", id="RSA-1024"
        ),
    ],
)
def test_what_is_no_signing_key_has_one_message(content: bytes, message: str):
    with pytest.raises(SigningKeyError, match=message):
        SigningKey.from_pem(content)


def test_a_key_is_never_shown():
    key = SigningKey.from_pem(pem_of(new_key()))
    assert "PRIVATE" not in repr(key)
    assert "0x" not in repr(key)
