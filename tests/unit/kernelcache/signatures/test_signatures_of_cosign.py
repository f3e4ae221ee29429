"""What cosign 3.1.3 signed by key is accepted, in both forms, but for Ed25519ph; see tests/support/cosign_samples.py."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from api.image_reference import Digest
from api.kinds.gkmcache import Verification
from kernelcache.signatures import material
from kernelcache.signatures.image_signatures import verify_signatures
from kernelcache.signatures.policy import SignaturePolicy, read_signature_policy
from kernelcache.signatures.public_keys import VerificationKey
from kernelcache.signatures.verification import (
    KeySigner,
    SignatureFault,
    SignatureRefused,
    SignatureVerified,
)
from tests.support.sigstore_instance import new_key, public_pem

FILE = Path(__file__).parents[3] / "data" / "kernelcache" / "cosign-signatures.json"
SAMPLES: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
OTHER_IMAGE = Digest("sha256:" + "0" * 64)


def by_sample(function: Any) -> Any:
    return _each([item for item in SAMPLES if item["key"] != "ed25519"])(function)


def by_sample_of_ed25519(function: Any) -> Any:
    return _each([item for item in SAMPLES if item["key"] == "ed25519"])(function)


def _each(samples: list[dict[str, Any]]) -> Any:
    names = [f"{sample['key']} {sample['form']}" for sample in samples]
    return pytest.mark.parametrize("sample", samples, ids=names)


def material_of(sample: dict[str, Any]) -> material.SignatureMaterial:
    manifest = sample["manifest"].encode()
    if sample["form"] == "bundle":
        blob = material.read_bundle_manifest(manifest)
    else:
        (blob,) = material.read_simple_signing_manifest(manifest)
    content = base64.b64decode(sample["blobs"][blob.digest])
    assert len(content) == blob.size
    return blob.material(content)


def keys_policy(*keys: str) -> SignaturePolicy:
    return read_signature_policy(Verification(keys=list(keys)))


def test_every_kind_of_key_and_both_forms_are_in_the_samples():
    assert {(item["key"], item["form"]) for item in SAMPLES} == {
        (key, form)
        for key in ("ecdsa-p256", "ecdsa-p384", "rsa-2048", "ed25519")
        for form in ("simple-signing", "bundle")
    }


@by_sample
def test_its_signature_is_accepted_by_the_key_that_made_it(sample: dict[str, Any]):
    digest = Digest(sample["digest"])
    policy = keys_policy(public_pem(new_key()), sample["publicKey"])
    result = verify_signatures(digest, [material_of(sample)], policy=policy, trust_root=None)
    fingerprint = VerificationKey.from_pem(sample["publicKey"]).fingerprint
    assert result == SignatureVerified(digest=digest, signer=KeySigner(fingerprint=fingerprint))
    assert result.message == f"{digest} is signed by key {fingerprint}"


@by_sample
def test_a_key_that_was_taken_off_the_list_is_refused(sample: dict[str, Any]):
    digest = Digest(sample["digest"])
    policy = keys_policy(public_pem(new_key()))
    result = verify_signatures(digest, [material_of(sample)], policy=policy, trust_root=None)
    assert result == SignatureRefused(
        digest=digest,
        fault=SignatureFault.UNKNOWN_KEY,
        message=f"{digest}: not accepted: no listed key has made it",
    )


@by_sample
def test_a_signature_of_another_image_is_refused(sample: dict[str, Any]):
    policy = keys_policy(sample["publicKey"])
    result = verify_signatures(OTHER_IMAGE, [material_of(sample)], policy=policy, trust_root=None)
    fingerprint = policy.keys[0].fingerprint
    assert result == SignatureRefused(
        digest=OTHER_IMAGE,
        fault=SignatureFault.OTHER_IMAGE,
        message=f"{OTHER_IMAGE}: not accepted: key {fingerprint} has signed another image,"
        f" {sample['digest']}",
    )


@by_sample_of_ed25519
def test_ed25519ph_which_cosign_uses_for_ed25519_keys_is_refused_by_name(sample: dict[str, Any]):
    digest = Digest(sample["digest"])
    policy = keys_policy(sample["publicKey"])
    result = verify_signatures(digest, [material_of(sample)], policy=policy, trust_root=None)
    assert result == SignatureRefused(
        digest=digest,
        fault=SignatureFault.UNKNOWN_KEY,
        message=f"{digest}: not accepted: no listed key has made it; of the listed Ed25519 key,"
        " signatures of cosign (Ed25519ph) cannot be verified: sign with a key of ECDSA or RSA",
    )
