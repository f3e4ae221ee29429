"""Which blobs a manifest of signatures names."""

import json
from typing import Any

import pytest

from kernelcache.signatures.material import (
    BUNDLE_ARTIFACT_TYPE,
    MAX_SIGNATURE_BYTES,
    MAX_SIGNATURE_MANIFEST_BYTES,
    MAX_SIGNATURES,
    SignatureMaterialError,
    SigstoreBundle,
    SimpleSigning,
    read_bundle_manifest,
    read_simple_signing_manifest,
)

DIGEST = "sha256:" + "a" * 64
PAYLOAD_TYPE = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = {"dev.cosignproject.cosign/signature": "AAAA"}


def layer(kind: str, **changed: Any) -> dict[str, Any]:
    return {"mediaType": kind, "digest": DIGEST, "size": 7, **changed}


def manifest(*layers: dict[str, Any]) -> bytes:
    return json.dumps({"schemaVersion": 2, "layers": layers}).encode()


def test_a_payload_is_read_with_the_annotations_of_its_layer():
    annotations = SIGNATURE | {
        "dev.sigstore.cosign/certificate": "PEM",
        "dev.sigstore.cosign/chain": "not read",
        "dev.sigstore.cosign/bundle": "{}",
    }
    (blob,) = read_simple_signing_manifest(manifest(layer(PAYLOAD_TYPE, annotations=annotations)))
    assert (blob.digest, blob.size) == (DIGEST, 7)
    assert blob.material(b"payload") == SimpleSigning(
        payload=b"payload", signature="AAAA", certificate="PEM", log_bundle="{}"
    )


def test_layers_that_are_no_signatures_are_left_out():
    found = read_simple_signing_manifest(
        manifest(
            layer("application/x", annotations=SIGNATURE),
            layer(PAYLOAD_TYPE),
            layer(PAYLOAD_TYPE, annotations=SIGNATURE),
        )
    )
    assert len(found) == 1


def test_a_bundle_is_the_only_layer():
    blob = read_bundle_manifest(manifest(layer(BUNDLE_ARTIFACT_TYPE)))
    assert blob.material(b"{}") == SigstoreBundle(content=b"{}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            manifest(), f"it has 0 layers; one of type {BUNDLE_ARTIFACT_TYPE} is needed", id="none"
        ),
        pytest.param(
            manifest(layer("application/x")),
            f"it has 1 layers; one of type {BUNDLE_ARTIFACT_TYPE} is needed",
            id="another type",
        ),
        pytest.param(
            manifest(layer(BUNDLE_ARTIFACT_TYPE, digest="md5:é")),
            'the layer\'s digest "md5:?" is no SHA-256 digest',
            id="another digest",
        ),
        pytest.param(b"{}", "Object missing required field `layers`", id="no manifest"),
        pytest.param(
            b" " * (MAX_SIGNATURE_MANIFEST_BYTES + 1), "more than 4194304 bytes", id="too large"
        ),
    ],
)
def test_a_manifest_without_one_bundle_is_refused(content: bytes, message: str):
    with pytest.raises(SignatureMaterialError) as raised:
        read_bundle_manifest(content)
    assert str(raised.value) == f"the manifest of signatures cannot be read: {message}"


@pytest.mark.parametrize("size", [-1, MAX_SIGNATURE_BYTES + 1])
def test_a_signature_that_is_too_large_is_not_even_read(size: int):
    with pytest.raises(SignatureMaterialError) as raised:
        read_bundle_manifest(manifest(layer(BUNDLE_ARTIFACT_TYPE, size=size)))
    assert str(raised.value) == (
        f"the signature in {DIGEST} has {size} bytes; at most 1048576 are possible"
    )


def test_too_many_signatures_are_not_even_read():
    one = layer(PAYLOAD_TYPE, annotations=SIGNATURE)
    assert len(read_simple_signing_manifest(manifest(*[one] * MAX_SIGNATURES))) == MAX_SIGNATURES
    with pytest.raises(SignatureMaterialError) as raised:
        read_simple_signing_manifest(manifest(*[one] * (MAX_SIGNATURES + 1)))
    assert str(raised.value) == (
        "the manifest has 65 signatures; at most 64 are possible: remove those that are not needed"
    )
