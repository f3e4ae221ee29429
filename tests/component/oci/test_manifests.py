"""Tags to digests, manifests by digest, indices by platform."""

import pytest

from api.image_reference import Digest
from kernelcache.image_format import MAX_MANIFEST_BYTES, OCI_INDEX, OCI_MANIFEST, BlobDescriptor
from oci.errors import (
    ContentNotFound,
    ContentTooLarge,
    DigestMismatch,
    PlatformMissing,
    RateLimited,
    RegistryFailed,
    RegistryTimedOut,
    RegistryUnreachable,
    UnexpectedAnswer,
    UnusableContent,
)
from oci.platforms import ImagePlatform
from oci.registry_client import RegistryClient
from simulator.registry.content import sha256
from tests.support.loop_clock import LoopClock
from tests.support.registry_double import Cut, Hang, Lie, RegistryDouble, Status

pytestmark = pytest.mark.looptime

IMAGE = {"schemaVersion": 2, "config": {}, "layers": []}
AMD64 = ImagePlatform()
ABSENT = Digest(f"sha256:{'0' * 64}")


def an_index(*entries: tuple[BlobDescriptor, str]) -> dict[str, object]:
    """Return an index of images and their platforms, as os/architecture; "" for none."""
    return {
        "schemaVersion": 2,
        "mediaType": OCI_INDEX,
        "manifests": [
            {
                "mediaType": item.media_type,
                "digest": item.digest,
                "size": item.size,
                **(
                    {"platform": dict(zip(("os", "architecture"), text.split("/"), strict=True))}
                    if text
                    else {}
                ),
            }
            for item, text in entries
        ],
    }


async def test_a_tag_is_resolved_by_head_alone(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    expected = registry.add_manifest(IMAGE)
    assert await client.resolve(registry.reference()) == expected
    assert [item.method for item in registry.seen] == ["HEAD"]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Status(405), id="HEAD is not allowed"),
        pytest.param(Lie(without="Docker-Content-Digest"), id="HEAD says no digest"),
        pytest.param(
            Lie({"Docker-Content-Digest": "md5:1"}), id="HEAD says another kind of digest"
        ),
        pytest.param(Lie({"Content-Type": "text/html"}), id="HEAD says no type of a manifest"),
    ],
)
async def test_without_a_useful_head_the_manifest_is_read_and_hashed(
    registry: RegistryDouble, client: RegistryClient, fault: Status | Lie
) -> None:
    expected = registry.add_manifest(IMAGE)
    registry.will_fail(fault, "HEAD")
    assert await client.resolve(registry.reference()) == expected


async def test_a_digest_in_the_header_that_the_body_has_not_is_refused(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    registry.add_manifest(IMAGE)
    registry.will_fail(Status(405), "HEAD")
    registry.will_fail(Lie({"Docker-Content-Digest": ABSENT}))
    with pytest.raises(DigestMismatch, match=ABSENT):
        await client.resolve(registry.reference())


async def test_another_digest_than_the_one_asked_for_is_refused(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    found = registry.add_manifest(IMAGE)
    registry.will_fail(Lie({"Docker-Content-Digest": ABSENT}), "HEAD")
    with pytest.raises(DigestMismatch):
        await client.resolve(registry.reference().with_digest(found.digest))


async def test_a_manifest_is_compared_with_its_digest(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    found = registry.add_manifest(IMAGE)
    registry.will_fail(
        Lie(content=b'{"schemaVersion": 2, "evil": 1}', without="Docker-Content-Digest")
    )
    with pytest.raises(DigestMismatch) as caught:
        await client.manifest(registry.reference(), found.digest)
    assert str(caught.value).startswith(
        f"{registry.host}/team/cache:1@{found.digest}: the registry"
    )
    assert sha256(await client.manifest(registry.reference(), found.digest)) == found.digest


async def test_a_manifest_without_end_is_not_read_to_its_end(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    found = registry.add_manifest(b"{" + b" " * MAX_MANIFEST_BYTES)
    with pytest.raises(ContentTooLarge, match=f"more than {MAX_MANIFEST_BYTES} bytes"):
        await client.manifest(registry.reference(), found.digest)


async def test_what_is_not_there_is_not_asked_for_again(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    with pytest.raises(ContentNotFound, match="check the name, and whether a pull secret"):
        await client.resolve(registry.reference())
    assert len(registry.seen) == 1


async def test_a_page_of_a_proxy_is_no_manifest(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    registry.add_manifest(b"<html>", media_type="text/html")
    with pytest.raises(UnusableContent, match="text/html"):
        await client.resolve(registry.reference())


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param(Status(429), RateLimited, id="429"),
        pytest.param(Status(500), RegistryFailed, id="500"),
        pytest.param(Status(503, text="<html>" + "x" * 10_000), RegistryFailed, id="503, a page"),
        pytest.param(Cut(), RegistryUnreachable, id="no answer"),
        pytest.param(Cut(after=5), RegistryUnreachable, id="cut"),
        pytest.param(Hang(), RegistryTimedOut, id="silence"),
        pytest.param(Hang(after=5), RegistryTimedOut, id="silence in the middle"),
    ],
)
async def test_what_passes_is_tried_again_some_times(
    registry: RegistryDouble,
    client: RegistryClient,
    fault: Status | Cut | Hang,
    kind: type[Exception],
) -> None:
    found = registry.add_manifest(IMAGE)
    registry.will_fail(fault)
    assert await client.manifest(registry.reference(), found.digest)
    registry.will_fail(fault, times=100)
    with pytest.raises(kind) as caught:
        await client.manifest(registry.reference(), found.digest)
    assert found.digest in str(caught.value)
    assert len(str(caught.value)) < 1024


async def test_the_registry_says_how_long_to_wait(
    registry: RegistryDouble, client: RegistryClient, clock: LoopClock
) -> None:
    registry.add_manifest(IMAGE)
    registry.will_fail(Status(429, {"Retry-After": "40"}), "HEAD")
    started = clock.monotonic()
    await client.resolve(registry.reference())
    assert clock.monotonic() - started >= 40


async def test_a_registry_that_asks_for_an_hour_is_not_waited_for(
    registry: RegistryDouble, client: RegistryClient, clock: LoopClock
) -> None:
    registry.will_fail(Status(429, {"Retry-After": "3600"}), "HEAD", times=100)
    started = clock.monotonic()
    with pytest.raises(RateLimited):
        await client.resolve(registry.reference())
    assert len(registry.seen) == 1
    assert clock.monotonic() - started < 1


async def test_the_whole_operation_has_an_end(
    registry: RegistryDouble, client: RegistryClient, clock: LoopClock
) -> None:
    registry.will_fail(Hang(), "HEAD", times=100)
    started = clock.monotonic()
    with pytest.raises(RegistryTimedOut, match="not done within 60 s"):
        await client.resolve(registry.reference())
    assert clock.monotonic() - started == pytest.approx(60, abs=1)


async def test_an_index_leads_to_the_image_of_the_platform(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    amd64 = registry.add_manifest(IMAGE, tag=None)
    arm64 = registry.add_manifest({**IMAGE, "annotations": {"a": "b"}}, tag=None)
    index = registry.add_manifest(
        an_index((arm64, "linux/arm64"), (amd64, "linux/amd64")), media_type=OCI_INDEX
    )
    for platform, expected in ((AMD64, amd64), (ImagePlatform(architecture="arm64"), arm64)):
        found = await client.image_manifest(registry.reference(), index.digest, platform)
        assert found.descriptor == expected
        assert sha256(found.content) == expected.digest


async def test_an_image_that_is_in_no_index_is_for_every_platform(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    image = registry.add_manifest(IMAGE)
    found = await client.image_manifest(registry.reference(), image.digest, AMD64)
    assert found.descriptor == image


async def test_an_index_without_the_platform_says_what_it_has(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    image = registry.add_manifest(IMAGE, tag=None)
    index = registry.add_manifest(an_index((image, "linux/arm64")), media_type=OCI_INDEX)
    with pytest.raises(PlatformMissing, match="no image for linux/amd64; it has linux/arm64"):
        await client.image_manifest(registry.reference(), index.digest, AMD64)


async def test_an_index_in_an_index_is_refused(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    inner = registry.add_manifest(an_index(), tag=None, media_type=OCI_INDEX)
    index = registry.add_manifest(an_index((inner, "linux/amd64")), media_type=OCI_INDEX)
    with pytest.raises(UnusableContent, match="names another index"):
        await client.image_manifest(registry.reference(), index.digest, AMD64)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        pytest.param(b"[]", "malformed", id="not an object"),
        pytest.param(b"{" * 10_000, "malformed", id="nested without end"),
        pytest.param({"layers": [{}] * 129}, "129 layers; at most 128", id="layers"),
        pytest.param({"layers": [], "manifests": []}, "both an index and an image", id="both"),
        pytest.param({"mediaType": OCI_INDEX}, "no list of manifests", id="no list"),
    ],
)
async def test_a_manifest_that_is_none_has_its_message(
    registry: RegistryDouble, client: RegistryClient, manifest: object, message: str
) -> None:
    found = registry.add_manifest(manifest, media_type=OCI_MANIFEST)
    with pytest.raises(UnusableContent, match=message):
        await client.image_manifest(registry.reference(), found.digest, AMD64)


async def test_a_redirected_error_is_not_taken_for_a_manifest(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    registry.will_fail(Status(418, text="teapot"), "HEAD")
    registry.will_fail(Status(418, text="teapot"))
    with pytest.raises(UnexpectedAnswer, match="418"):
        await client.resolve(registry.reference())
