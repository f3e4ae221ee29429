"""Reading signatures: one that is broken is a problem of its own, and all together are bounded."""

from typing import Any

import pytest

from api.image_reference import Digest
from api.kinds.gkmcache import Verification
from kernelcache.image_format import OCI_INDEX, BlobDescriptor
from kernelcache.signatures.image_signatures import verify_signatures
from kernelcache.signatures.material import (
    BUNDLE_ARTIFACT_TYPE,
    MAX_SIGNATURE_BYTES,
    MAX_SIGNATURES,
    SIMPLE_SIGNING_TYPE,
)
from kernelcache.signatures.policy import read_signature_policy
from kernelcache.signatures.verification import (
    SignatureFault,
    SignatureRefused,
    SignatureVerified,
    VerificationResult,
)
from oci.errors import RegistryFailed
from oci.registry_client import RegistryClient, referrers_tag, signature_tag
from oci.signature_reading import MAX_TOTAL_BYTES, FoundSignatures, read_signatures
from tests.support.registry_double import Lie, RegistryDouble, Status
from tests.support.sigstore_instance import b64, new_key, payload_of, public_pem
from tests.support.sigstore_instance import sign as sign_content

pytestmark = pytest.mark.looptime

KEY = new_key()
POLICY = read_signature_policy(Verification(keys=[public_pem(KEY)]))


@pytest.fixture
def image(registry: RegistryDouble) -> BlobDescriptor:
    return registry.add_manifest({"schemaVersion": 2, "config": {}, "layers": []})


def payload_layer(
    registry: RegistryDouble, content: bytes, signature: str = "", *, size: int | None = None
) -> dict[str, Any]:
    blob = registry.add_blob(content)
    return {
        "mediaType": SIMPLE_SIGNING_TYPE,
        "digest": blob.digest,
        "size": blob.size if size is None else size,
        "annotations": {
            "dev.cosignproject.cosign/signature": signature or b64(sign_content(KEY, content))
        },
    }


def add_payloads(registry: RegistryDouble, image: Digest, layers: list[dict[str, Any]]) -> None:
    registry.add_manifest({"schemaVersion": 2, "layers": layers}, tag=signature_tag(image))


def add_bundle(registry: RegistryDouble, image: Digest, content: bytes) -> BlobDescriptor:
    blob = registry.add_blob(content)
    layer = {"mediaType": BUNDLE_ARTIFACT_TYPE, "digest": blob.digest, "size": blob.size}
    manifest = {
        "schemaVersion": 2,
        "artifactType": BUNDLE_ARTIFACT_TYPE,
        "layers": [layer],
        "subject": {"digest": image},
    }
    return registry.add_manifest(manifest, tag=None)


async def found_by(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> FoundSignatures:
    return await read_signatures(client, registry.reference(), image.digest)


def result_of(current: FoundSignatures, image: BlobDescriptor) -> VerificationResult:
    return verify_signatures(
        image.digest, current.materials, policy=POLICY, trust_root=None, unread=current.problems
    )


async def test_a_good_one_counts_beside_broken_ones(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    good = payload_layer(registry, payload_of(image.digest))
    missing = payload_layer(registry, b"missing")
    del registry.blobs[missing["digest"]]
    other = payload_layer(registry, b"other bytes")
    registry.blobs[other["digest"]] = b"the bytes of"
    shorter = payload_layer(registry, b"short", size=3)
    add_payloads(registry, image.digest, [missing, other, shorter, good])
    add_bundle(registry, image.digest, b"no bundle")
    current = await found_by(registry, client, image)
    assert isinstance(result_of(current, image), SignatureVerified)
    assert [problem.fault for problem in current.problems] == [SignatureFault.MALFORMED] * 3


async def test_what_could_not_be_read_is_in_the_refusal(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    missing = payload_layer(registry, payload_of(image.digest))
    del registry.blobs[missing["digest"]]
    add_payloads(registry, image.digest, [missing])
    result = result_of(await found_by(registry, client, image), image)
    assert isinstance(result, SignatureRefused)
    assert "404" in result.message
    assert missing["digest"] in result.message


@pytest.mark.parametrize("part", [".sig", "/referrers/", "/blobs/"])
async def test_a_registry_that_fails_has_not_said_that_it_is_unsigned(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor, part: str
) -> None:
    add_payloads(registry, image.digest, [payload_layer(registry, payload_of(image.digest))])
    registry.will_fail(Status(503), "GET", part, times=100)
    with pytest.raises(RegistryFailed):
        await found_by(registry, client, image)


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"layers": [{}]}', b"\xff" * 10])
async def test_a_manifest_of_signatures_that_is_none_is_one_problem(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor, content: bytes
) -> None:
    registry.add_manifest(content, tag=signature_tag(image.digest))
    current = await found_by(registry, client, image)
    assert [problem.fault for problem in current.problems] == [SignatureFault.MALFORMED]
    assert "cannot be read" in current.problems[0].detail


async def test_a_list_of_referrers_that_is_none_is_one_problem(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    registry.will_fail(Lie(content=b'{"manifests": 1}'), "GET", "/referrers/")
    current = await found_by(registry, client, image)
    assert [problem.fault for problem in current.problems] == [SignatureFault.MALFORMED]


async def test_other_referrers_are_not_read(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    """A bill of materials is neither read nor a problem; the type that a list does not say, the manifest says."""
    registry.content.has_referrers = False
    scan = registry.add_manifest({"artifactType": "scan", "layers": []}, tag=None)
    quiet = registry.add_manifest({"artifactType": "quiet", "layers": []}, tag=None)
    bundle = add_bundle(registry, image.digest, b"{}")
    entries = [
        {"mediaType": "", "digest": item.digest, "size": item.size, "artifactType": kind}
        for item, kind in [(scan, "scan"), (quiet, ""), (bundle, "")]
    ]
    registry.add_manifest(
        {"manifests": entries}, tag=referrers_tag(image.digest), media_type=OCI_INDEX
    )
    current = await found_by(registry, client, image)
    assert (len(current.materials), current.problems) == (1, ())
    assert registry.count("GET", scan.digest) == 0
    assert registry.count("GET", quiet.digest) == 1


async def test_only_so_many_bytes_are_read(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    layers = [
        payload_layer(registry, bytes([number]) * MAX_SIGNATURE_BYTES, "MEU=")
        for number in range(12)
    ]
    add_payloads(registry, image.digest, layers)
    current = await found_by(registry, client, image)
    read = MAX_TOTAL_BYTES // MAX_SIGNATURE_BYTES
    assert (len(current.materials), len(current.problems)) == (read, len(layers) - read)
    assert registry.count("GET", "/blobs/") == read


async def test_only_so_many_are_read(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    add_payloads(
        registry,
        image.digest,
        [payload_layer(registry, b"%d" % number, "MEU=") for number in range(MAX_SIGNATURES)],
    )
    for number in range(MAX_SIGNATURES + 6):
        add_bundle(registry, image.digest, b"%d" % number)
    current = await found_by(registry, client, image)
    assert len(current.materials) == MAX_SIGNATURES
    assert registry.count("GET", "/blobs/") == MAX_SIGNATURES
    assert SignatureFault.TOO_MANY in {problem.fault for problem in current.problems}
