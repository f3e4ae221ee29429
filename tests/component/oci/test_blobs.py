"""Blobs: every byte counted and hashed, resumed after a cut, never more than announced."""

import random

import pytest

from kernelcache.image_format import BlobDescriptor
from oci import errors
from oci.registry_client import RegistryClient
from oci.registry_settings import MAX_SMALL_BLOB_BYTES
from tests.component.oci.conftest import ANONYMOUS, Connect
from tests.support.loop_clock import LoopClock
from tests.support.registry_double import Cut, Drip, Hang, Lie, NoRange, RegistryDouble, Status

pytestmark = pytest.mark.looptime

CONTENT = random.Random(1).randbytes(300_000)  # the same each time


async def read(
    client: RegistryClient, registry: RegistryDouble, descriptor: BlobDescriptor
) -> bytes:
    return b"".join([item async for item in client.blob(registry.reference(), descriptor)])


async def test_a_blob_is_read(registry: RegistryDouble, client: RegistryClient) -> None:
    assert await read(client, registry, registry.add_blob(CONTENT)) == CONTENT


async def test_a_blob_of_no_bytes_is_not_asked_for(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    assert await read(client, registry, registry.add_blob(b"")) == b""
    assert registry.seen == []


@pytest.mark.parametrize("fault", [Cut(after=100_000), Hang(after=100_000)], ids=["cut", "silence"])
async def test_what_breaks_off_goes_on_where_it_was(
    registry: RegistryDouble, client: RegistryClient, fault: Cut | Hang
) -> None:
    blob = registry.add_blob(CONTENT)
    registry.will_fail(fault)
    assert await read(client, registry, blob) == CONTENT
    first, second = registry.seen
    assert "Range" not in first.headers
    start, end = second.headers["Range"].removeprefix("bytes=").split("-")
    assert 0 < int(start) <= 100_000
    assert int(end) == len(CONTENT) - 1


async def test_progress_makes_up_for_failures(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    """More cuts than attempts, each a little further."""
    blob = registry.add_blob(CONTENT)
    registry.will_fail(Cut(after=20_000), times=12)
    assert await read(client, registry, blob) == CONTENT


async def test_without_progress_there_is_an_end(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    blob = registry.add_blob(CONTENT)
    registry.will_fail(Cut(after=1000))
    registry.will_fail(Cut(), times=100)
    with pytest.raises(errors.RegistryUnreachable, match=blob.digest):
        await read(client, registry, blob)
    assert len(registry.seen) == 5


async def test_a_registry_without_ranges_sends_all_again(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    blob = registry.add_blob(CONTENT)
    registry.will_fail(Cut(after=100_000))
    registry.will_fail(NoRange())
    assert await read(client, registry, blob) == CONTENT


async def test_another_range_than_the_one_asked_for_is_refused(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    blob = registry.add_blob(CONTENT)
    registry.will_fail(Cut(after=100_000))
    registry.will_fail(Lie({"Content-Range": "bytes 0-299999/300000"}))
    with pytest.raises(errors.UnexpectedAnswer, match="sends those from 0"):
        await read(client, registry, blob)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(CONTENT[:-1], "has 299999 bytes of it, 300000 are announced", id="fewer"),
        pytest.param(CONTENT + b"x", "has 300001 bytes of it, 300000 are announced", id="more"),
    ],
)
async def test_another_length_is_refused_before_a_byte_is_read(
    registry: RegistryDouble, client: RegistryClient, content: bytes, message: str
) -> None:
    blob = registry.add_blob(CONTENT)
    registry.will_fail(Lie(content=content))
    with pytest.raises(errors.LengthMismatch, match=message):
        await read(client, registry, blob)


async def test_never_more_bytes_are_given_than_announced(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    blob = registry.add_blob(CONTENT)
    registry.will_fail(Lie(content=CONTENT * 3, is_chunked=True))
    given = bytearray()

    async def keep() -> None:
        async for chunk in client.blob(registry.reference(), blob):
            given.extend(chunk)

    with pytest.raises(errors.LengthMismatch, match="more than the 300000 bytes"):
        await keep()
    assert 0 < len(given) <= len(CONTENT)


async def test_too_few_bytes_of_an_unknown_length_are_asked_for_again(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    blob = registry.add_blob(CONTENT)
    registry.will_fail(Lie(content=CONTENT[:1000], is_chunked=True))
    assert await read(client, registry, blob) == CONTENT


async def test_other_bytes_are_refused_at_the_end(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    blob = registry.add_blob(CONTENT)
    registry.will_fail(Lie(content=CONTENT[::-1]))
    with pytest.raises(
        errors.DigestMismatch, match=f"{blob.digest}: its content is sha256:"
    ) as caught:
        await read(client, registry, blob)
    assert not caught.value.is_transient


async def test_a_compressed_answer_is_not_decompressed(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    """The digest is of the bytes on the wire."""
    blob = registry.add_blob(CONTENT)
    registry.will_fail(Lie({"Content-Encoding": "gzip"}))
    assert await read(client, registry, blob) == CONTENT


async def test_a_blob_that_vanishes_in_the_middle_is_missing(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    blob = registry.add_blob(CONTENT)
    registry.will_fail(Cut(after=100_000))
    registry.will_fail(Status(404))
    with pytest.raises(errors.ContentNotFound):
        await read(client, registry, blob)


async def test_a_slow_blob_has_an_end(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    blob = registry.add_blob(CONTENT)
    registry.will_fail(Hang(after=1000), times=1000)
    async with connect(registry, transfer_timeout_s=200.0) as connections:
        client = RegistryClient(connections, ANONYMOUS, clock)
        started = clock.monotonic()
        with pytest.raises(errors.RegistryTimedOut, match="not read within 200 s"):
            await read(client, registry, blob)
    assert 200 <= clock.monotonic() - started <= 235


@pytest.mark.parametrize("code", [200, 404])
async def test_an_answer_in_drops_has_an_end(
    registry: RegistryDouble, connect: Connect, clock: LoopClock, code: int
) -> None:
    """Each drop comes before the time between two reads is over."""
    blob = registry.add_blob(CONTENT)
    registry.will_fail(Drip(code, every_s=20), times=1000)
    async with connect(registry, transfer_timeout_s=200.0, attempts=1) as connections:
        client = RegistryClient(connections, ANONYMOUS, clock)
        started = clock.monotonic()
        with pytest.raises(errors.RegistryTimedOut):
            await read(client, registry, blob)
    assert clock.monotonic() - started == pytest.approx(200 if code == 200 else 60, abs=25)


async def test_a_reader_that_stops_leaves_no_connection(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    blob = registry.add_blob(CONTENT * 20)
    stream = client.blob(registry.reference(), blob)
    assert await anext(stream)
    await stream.aclose()
    assert await read(client, registry, registry.add_blob(b"another")) == b"another"


async def test_a_small_blob_is_not_read_if_it_is_large(
    registry: RegistryDouble, client: RegistryClient
) -> None:
    small = registry.add_blob(b"{}")
    assert await client.small_blob(registry.reference(), small) == b"{}"
    large = BlobDescriptor(media_type="", digest=small.digest, size=MAX_SMALL_BLOB_BYTES + 1)
    seen = len(registry.seen)
    with pytest.raises(errors.ContentTooLarge, match="at most"):
        await client.small_blob(registry.reference(), large)
    assert len(registry.seen) == seen
