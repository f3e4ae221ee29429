"""What refers to an image: the API with its pages, the tag where there is no API, cosign's older tag."""

from typing import Any

import pytest

from api.image_reference import Digest
from kernelcache.image_format import OCI_INDEX, OCI_MANIFEST, BlobDescriptor
from oci.errors import AddressRefused, RegistryFailed, UnexpectedAnswer, UnusableContent
from oci.registry_client import RegistryClient, referrers_tag, signature_tag
from oci.registry_settings import MAX_REFERRERS
from tests.support.registry_double import Lie, RegistryDouble, Status

pytestmark = pytest.mark.looptime

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"


def refer(registry: RegistryDouble, image: BlobDescriptor, number: int = 0) -> BlobDescriptor:
    manifest = {
        "schemaVersion": 2,
        "artifactType": BUNDLE,
        "subject": {"digest": image.digest},
        "annotations": {"number": str(number)},
    }
    return registry.add_manifest(manifest, tag=None)


def listed(*descriptors: BlobDescriptor) -> dict[str, Any]:
    return {
        "schemaVersion": 2,
        "manifests": [
            {
                "mediaType": descriptor.media_type,
                "digest": descriptor.digest,
                "size": descriptor.size,
                "artifactType": BUNDLE,
            }
            for descriptor in descriptors
        ],
    }


@pytest.fixture
def image(registry: RegistryDouble) -> BlobDescriptor:
    return registry.add_manifest({"schemaVersion": 2, "config": {}, "layers": []})


async def test_the_api_lists_them_with_type_and_annotations(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    signature = refer(registry, image, 7)
    (found,) = await client.referrers(registry.reference(), image.digest)
    assert found.descriptor == signature
    assert (found.artifact_type, found.annotations) == (BUNDLE, {"number": "7"})


async def test_all_pages_are_read(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    registry.content.page_size = 3
    expected = {refer(registry, image, number).digest for number in range(8)}
    found = await client.referrers(registry.reference(), image.digest)
    assert {item.descriptor.digest for item in found} == expected
    assert registry.count("GET", "/referrers/") == 3


@pytest.mark.parametrize("status", [None, 400, 404, 405])
async def test_without_the_api_the_tag_lists_them(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor, status: int | None
) -> None:
    registry.content.has_referrers = False
    if status is not None:
        registry.will_fail(Status(status), "GET", "/referrers/")
    signature = refer(registry, image)
    registry.add_manifest(listed(signature), tag=referrers_tag(image.digest), media_type=OCI_INDEX)
    (found,) = await client.referrers(registry.reference(), image.digest)
    assert found.descriptor == signature


async def test_neither_api_nor_tag_means_none(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    registry.content.has_referrers = False
    assert await client.referrers(registry.reference(), image.digest) == ()
    assert await client.signature_manifest(registry.reference(), image.digest) is None


async def test_a_registry_that_fails_has_not_said_that_there_are_none(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    registry.will_fail(Status(503), "GET", "/referrers/", times=100)
    with pytest.raises(RegistryFailed):
        await client.referrers(registry.reference(), image.digest)


async def test_a_registry_that_answers_something_else_has_not_either(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    registry.will_fail(Lie(content=b"{}"), "GET", "/referrers/", times=100)
    with pytest.raises((UnexpectedAnswer, UnusableContent)):
        await client.referrers(registry.reference(), image.digest)


async def test_there_may_be_only_so_many(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    registry.content.page_size = 50
    for number in range(MAX_REFERRERS + 1):
        refer(registry, image, number)
    with pytest.raises(UnusableContent, match=f"more than {MAX_REFERRERS}"):
        await client.referrers(registry.reference(), image.digest)


async def test_another_host_gets_no_request_for_a_page(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    refer(registry, image)
    registry.will_fail(Lie({"Link": '<https://192.0.2.1/v2/x>; rel="next"'}), "GET", "/referrers/")
    with pytest.raises(AddressRefused, match="another host"):
        await client.referrers(registry.reference(), image.digest)


async def test_the_older_signatures_are_under_a_tag(
    registry: RegistryDouble, client: RegistryClient, image: BlobDescriptor
) -> None:
    signatures = {"schemaVersion": 2, "config": {}, "layers": [{"annotations": {"a": "b"}}]}
    registry.add_manifest(signatures, tag=signature_tag(image.digest), media_type=OCI_MANIFEST)
    found = await client.signature_manifest(registry.reference(), image.digest)
    assert found is not None
    assert b'"annotations"' in found.content


def test_tags_have_the_form_that_cosign_and_the_specification_name() -> None:
    digest = Digest(f"sha256:{'a' * 64}")
    assert referrers_tag(digest) == f"sha256-{'a' * 64}"
    assert signature_tag(digest) == f"sha256-{'a' * 64}.sig"
