"""Pushing: blobs that are missing, then the manifest; once more from the start where an upload breaks off."""

import json

import pytest

from kernelcache.image_format import OCI_MANIFEST
from oci import errors
from oci.blob_source import BlobSource
from oci.registry_push import RegistryPush
from simulator.registry.content import sha256
from tests.component.oci.conftest import Connect, a_login
from tests.support.loop_clock import LoopClock
from tests.support.registry_double import Cut, Lie, RegistryDouble, Status

pytestmark = pytest.mark.looptime

LAYER = BlobSource.of("application/octet-stream", b"layer" * 1000)
MANIFEST = BlobSource.of(OCI_MANIFEST, json.dumps({"schemaVersion": 2}).encode())


def is_there(registry: RegistryDouble) -> bool:
    content = registry.manifests.get(("team/cache", "1"), ("", b""))[1]
    return (
        sha256(content) == MANIFEST.descriptor.digest and LAYER.descriptor.digest in registry.blobs
    )


async def test_the_manifest_comes_after_its_blobs(
    registry: RegistryDouble, push: RegistryPush
) -> None:
    pushed = await push.push(registry.reference(), [LAYER], MANIFEST)
    assert pushed == MANIFEST.descriptor
    assert is_there(registry)
    assert [item.method for item in registry.seen] == ["HEAD", "POST", "PUT", "PUT"]
    assert registry.seen[2].headers["Content-Length"] == "5000"
    assert registry.seen[2].query["state"] == "x"


async def test_a_second_push_sends_the_manifest_alone(
    registry: RegistryDouble, push: RegistryPush
) -> None:
    await push.push(registry.reference(), [LAYER], MANIFEST)
    registry.seen.clear()
    await push.push(registry.reference(), [LAYER], MANIFEST)
    assert [item.method for item in registry.seen] == ["HEAD", "PUT"]


async def test_a_blob_that_the_registry_finds_by_its_digest_is_not_sent(
    registry: RegistryDouble, push: RegistryPush
) -> None:
    registry.content.can_mount = True
    registry.will_fail(Status(404), "HEAD", "/blobs/")
    registry.add_blob(b"layer" * 1000)
    await push.push(registry.reference(), [LAYER], MANIFEST)
    assert [item.method for item in registry.seen] == ["HEAD", "POST", "PUT"]
    assert registry.seen[1].query == {"mount": LAYER.descriptor.digest}


async def test_a_blob_of_another_length_is_sent_again(
    registry: RegistryDouble, push: RegistryPush
) -> None:
    registry.blobs[LAYER.descriptor.digest] = b"cut"
    await push.push(registry.reference(), [LAYER], MANIFEST)
    assert is_there(registry)


@pytest.mark.parametrize(
    ("fault", "method"),
    [
        pytest.param(Cut(), "HEAD", id="HEAD cut"),
        pytest.param(Cut(), "POST", id="POST cut"),
        pytest.param(Cut(), "PUT", id="PUT cut"),
        pytest.param(Status(503), "PUT", id="PUT 503"),
        pytest.param(Status(429, {"Retry-After": "3"}), "POST", id="POST 429"),
    ],
)
async def test_an_upload_that_breaks_off_begins_again(
    registry: RegistryDouble, push: RegistryPush, fault: Cut | Status, method: str
) -> None:
    registry.will_fail(fault, method, "/blobs/", times=2)
    registry.will_fail(fault, "PUT", "/manifests/")
    await push.push(registry.reference(), [LAYER], MANIFEST)
    assert is_there(registry)


async def test_uploads_have_an_end(registry: RegistryDouble, push: RegistryPush) -> None:
    registry.will_fail(Status(500), "PUT", "/blobs/", times=100)
    with pytest.raises(errors.RegistryFailed, match=LAYER.descriptor.digest):
        await push.push(registry.reference(), [LAYER], MANIFEST)
    assert registry.count("PUT", "/blobs/") == 5
    assert not is_there(registry)


async def test_a_refused_upload_is_not_repeated(
    registry: RegistryDouble, push: RegistryPush
) -> None:
    registry.will_fail(Status(413, text="too large"), "PUT", "/blobs/")
    with pytest.raises(errors.UnexpectedAnswer, match="413 to PUT; check"):
        await push.push(registry.reference(), [LAYER], MANIFEST)


async def test_what_is_stored_is_what_was_sent(
    registry: RegistryDouble, push: RegistryPush
) -> None:
    other = f"sha256:{'0' * 64}"
    registry.will_fail(Lie({"Docker-Content-Digest": other}), "PUT", "/manifests/")
    with pytest.raises(errors.DigestMismatch, match=f"has stored {other}"):
        await push.push(registry.reference(), [LAYER], MANIFEST)


async def test_a_token_for_pushing_is_asked_for(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    registry.auth = "token"
    async with connect(registry) as connections:
        push = RegistryPush(connections, a_login(registry.host), clock)
        await push.push(registry.reference(), [LAYER], MANIFEST)
        registry.tokens.clear()
        # The stream of the blob is used up by a first PUT that needs a new token.
        registry.blobs.clear()
        await push.push(registry.reference(), [LAYER], MANIFEST)
    assert is_there(registry)


async def test_without_the_right_nothing_is_pushed(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    registry.will_fail(Status(403), "POST", times=100)
    async with connect(registry) as connections:
        push = RegistryPush(connections, a_login(registry.host), clock)
        with pytest.raises(errors.AccessDenied):
            await push.push(registry.reference(), [LAYER], MANIFEST)
    assert registry.count("POST", "/blobs/") == 1


async def test_another_host_for_uploads_gets_no_credentials(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    async with RegistryDouble() as store, connect(registry, store) as connections:
        registry.auth = "basic"
        registry.content.upload_location = f"{store.url}/v2/x/blobs/uploads/1"
        push = RegistryPush(connections, a_login(registry.host), clock)
        await push.push(registry.reference(), [LAYER], MANIFEST)
        (seen,) = store.seen
    assert seen.body == b"layer" * 1000
    assert "Authorization" not in seen.headers


async def test_an_upload_to_plain_http_is_refused(
    registry: RegistryDouble, push: RegistryPush
) -> None:
    registry.content.upload_location = "http://192.0.2.1/upload"
    with pytest.raises(errors.AddressRefused, match="without TLS"):
        await push.push(registry.reference(), [LAYER], MANIFEST)


async def test_without_a_tag_the_digest_is_the_name(
    registry: RegistryDouble, push: RegistryPush
) -> None:
    await push.push(registry.reference(tag=None), [LAYER], MANIFEST)
    assert registry.seen[-1].path.endswith(f"/manifests/{MANIFEST.descriptor.digest}")
