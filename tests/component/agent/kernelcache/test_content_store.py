"""The content store: one copy of a digest, names, what a start finds, and one message for each way to lose it."""

import asyncio
import datetime as dt
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.kernelcache.content.content_store import ContentStore, open_store
from agent.kernelcache.content.errors import LayerRefusedError, StoreError, StoreFault
from agent.kernelcache.content.layer_limits import BLOCK_BYTES, ExtractionLimits
from api.cache_name import CacheName
from api.image_reference import Digest
from kernelcache.image_format import CacheType
from tests.support.cache_layers import HASH, LayerSource, SetClock, a_triton_layer

A, B = (Digest("sha256:" + item * 64) for item in "ab")
TEAM = CacheName(namespace="team", name="cache")
CLUSTER = CacheName(namespace="", name="cache")
LIMITS = ExtractionLimits()


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "caches"


@pytest.fixture
def opened(root: Path, clock: SetClock) -> Iterator[Callable[[], ContentStore]]:
    stores: list[ContentStore] = []

    def open_again() -> ContentStore:
        while stores:
            stores.pop().close()
        stores.append(open_store(root, clock))
        return stores[0]

    yield open_again
    for store in stores:
        store.close()


async def add(store: ContentStore, digest: Digest = A, layer: bytes | None = None):
    source = LayerSource(a_triton_layer() if layer is None else layer)
    return await store.add(digest, CacheType.TRITON, source, limits=LIMITS)


def tree_of(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def move(path: Path, name: str) -> None:
    path.rename(path.with_name(name))


def refusal(fault: StoreFault, text: str):
    return pytest.raises(
        StoreError, check=lambda error: error.fault is fault and text in str(error)
    )


async def test_a_content_is_there_after_a_restart(opened, root: Path, clock: SetClock):
    content = await add(opened())
    assert (content.files, content.size_bytes, content.has_shared_objects) == (2, 12, False)
    assert content.extracted_at == clock.now
    store = opened()
    assert store.contents == {A: content}
    assert (store.files_of(A) / f"{HASH}0/kernel.ptx").read_bytes() == b"kernel"
    assert names_in(root / "tmp") == []


async def test_a_record_of_an_older_version_is_measured_and_one_of_a_newer_is_read(
    opened, root: Path
):
    content = await add(opened())
    record = root / "content" / A.replace(":", "-") / "content.json"
    fields = json.loads(record.read_bytes())
    assert (fields["sizeBytes"], fields.pop("diskBytes")) == (12, 4 * BLOCK_BYTES)
    for written in (fields, fields | {"diskBytes": 4 * BLOCK_BYTES, "ofTheNextVersion": 1}):
        record.write_text(json.dumps(written))
        os.utime(record, (content.used_at.timestamp(),) * 2)
        assert opened().contents == {A: content}


async def test_a_second_cache_of_the_same_digest_is_not_pulled_again(opened, root: Path):
    store = opened()
    await add(store)
    before = tree_of(root)
    source = LayerSource(a_triton_layer())
    await store.add(A, CacheType.TRITON, source, limits=LIMITS)
    await store.set_names({TEAM: A, CLUSTER: A})
    assert source.opened == 0
    assert [item for item in tree_of(root) if item != "names.json"] == before


async def test_two_that_want_a_digest_at_once_pull_it_once(opened):
    store = opened()
    source = LayerSource(a_triton_layer())
    found = await asyncio.gather(
        *(store.add(A, CacheType.TRITON, source, limits=LIMITS) for _ in range(3))
    )
    assert source.opened == 1
    assert len(set(found)) == 1


async def test_caches_of_one_name_in_both_scopes_are_two(opened):
    store = opened()
    await add(store, A)
    await add(store, B)
    await store.set_names({TEAM: A, CLUSTER: B})
    assert opened().names == {TEAM: A, CLUSTER: B}


async def test_a_name_is_bound_only_to_what_is_there(opened):
    store = opened()
    with refusal(StoreFault.ABSENT, f"GKMCache team/cache is not bound to {A}"):
        await store.set_names({TEAM: A})
    assert store.names == {}


async def test_a_bound_content_is_not_removed(opened):
    store = opened()
    await add(store)
    await store.set_names({TEAM: A})
    with refusal(StoreFault.BUSY, f"{A} is not removed: GKMCache team/cache is bound to it"):
        await store.remove(A)
    await store.set_names({})
    await store.remove(A)
    await store.remove(A)
    assert store.contents == {}
    with refusal(StoreFault.ABSENT, f"{A} is not in the store"):
        store.files_of(A)


async def test_the_same_names_are_not_written_again(opened, root: Path):
    """A quiet node writes nothing."""
    store = opened()
    await add(store)
    await store.set_names({TEAM: A})
    before = (root / "names.json").stat().st_ino
    await store.set_names({TEAM: A})
    assert (root / "names.json").stat().st_ino == before


async def test_the_last_use_outlives_a_restart(opened, clock: SetClock):
    store = opened()
    extracted = await add(store)
    clock.now += dt.timedelta(hours=5)
    store.mark_used(A)
    assert store.contents[A].used_at == clock.now
    found = opened().contents[A]
    assert (found.extracted_at, found.used_at) == (extracted.extracted_at, clock.now)


async def test_a_refused_layer_leaves_nothing(opened, root: Path):
    store = opened()
    before = tree_of(root)
    with pytest.raises(LayerRefusedError, match="the layer is cut"):
        await add(store, layer=a_triton_layer()[:-1])
    assert tree_of(root) == before
    assert names_in(root / "tmp") == names_in(root / "content") == []


async def test_a_stream_that_fails_at_its_end_leaves_nothing(opened, root: Path):
    """A wrong digest is known at the end of the stream: the content must not appear before."""
    store = opened()
    source = LayerSource(a_triton_layer(), failure=ConnectionResetError("wrong digest"))
    with pytest.raises(ConnectionResetError, match="wrong digest"):
        await store.add(A, CacheType.TRITON, source, limits=LIMITS)
    assert store.contents == {}
    assert names_in(root / "tmp") == names_in(root / "content") == []
    await add(store)


async def test_an_extraction_that_is_cancelled_leaves_nothing(opened, root: Path):
    store = opened()
    begun, never = asyncio.Event(), asyncio.Event()

    class Slow(LayerSource):
        async def _stream(self):
            yield self.layer[:200]
            begun.set()
            await never.wait()

    source = Slow(a_triton_layer())
    async with asyncio.TaskGroup() as group:
        adding = group.create_task(store.add(A, CacheType.TRITON, source, limits=LIMITS))
        await begun.wait()
        adding.cancel()
    # The thread ends by itself; the executor is the one that it runs in.
    await asyncio.get_running_loop().shutdown_default_executor()
    assert names_in(root / "tmp") == names_in(root / "content") == []
    assert store.contents == {}


async def test_a_large_layer_is_not_read_ahead_without_bound(opened):
    """Four MiB are between the registry and the disk, however slow the disk."""
    store = opened()
    read = 0

    class Endless(LayerSource):
        async def _stream(self):
            nonlocal read
            while True:
                read += 2**20
                yield bytes(2**20)

    with pytest.raises(LayerRefusedError, match="the layer is not gzip"):
        await store.add(A, CacheType.TRITON, Endless(b""), limits=LIMITS)
    assert read <= 6 * 2**20


async def test_what_an_ended_process_left_is_removed(opened, root: Path):
    store = opened()
    await add(store)
    left = root / "tmp" / "tmpabc" / "files"
    left.mkdir(parents=True)
    (left / "x").touch()
    left.chmod(0o555)
    (root / "tmp" / "link").symlink_to(root / "content")
    (root / ".names-abc.new").touch()
    assert opened().contents.keys() == {A}
    assert tree_of(root / "tmp") == []
    assert not (root / ".names-abc.new").exists()


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut"),
        pytest.param(None, id="missing"),
        pytest.param(b"\xff\xfe", id="no text"),
    ],
)
async def test_a_content_without_its_record_is_not_served_and_can_be_replaced(opened, root, record):
    store = opened()
    await add(store)
    await store.set_names({TEAM: A})
    path = root / "content" / f"sha256-{'a' * 64}" / "content.json"
    path.unlink()
    if record is not None:
        path.write_bytes(record)
    store = opened()
    assert (store.contents, store.damaged, store.names) == ({}, {A}, {})
    with refusal(StoreFault.DAMAGED, "is damaged: it is removed once no pod uses it"):
        await add(store)
    await store.remove(A)
    await add(store)
    assert opened().contents.keys() == {A}


async def test_a_content_that_was_removed_by_hand_is_known_to_be_gone(opened, root: Path):
    store = opened()
    await add(store)
    (root / "content" / f"sha256-{'a' * 64}").rename(root / "elsewhere")
    with refusal(StoreFault.DAMAGED, "is damaged"):
        store.files_of(A)
    assert (store.contents, store.damaged) == ({}, {A})
    await store.remove(A)
    await add(store)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"[", id="cut"),
        pytest.param(
            b'[{"namespace": "..", "name": "x", "digest": "sha256:%s"}]' % (b"a" * 64),
            id="C9: a name that leaves the root",
        ),
    ],
)
async def test_names_that_cannot_be_read_are_bound_again(opened, root: Path, content: bytes):
    await add(opened())
    (root / "names.json").write_bytes(content)
    store = opened()
    assert store.names == {}
    await store.set_names({TEAM: A})
    assert opened().names == {TEAM: A}


async def test_only_one_process_has_the_store(root: Path, clock: SetClock):
    """C8: one owner."""
    first = open_store(root, clock)
    with refusal(StoreFault.IN_USE, f"{root} is in use by another process"):
        open_store(root, clock)
    first.close()
    open_store(root, clock).close()


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_lost_store_is_noticed_by_each_method(opened, root: Path, is_replaced: bool):
    store = opened()
    await add(store)
    move(root, "gone")
    if is_replaced:
        open_store(root, SetClock()).close()
        text = "is not the directory that was opened: it was replaced or mounted over; restart"
    else:
        text = "it was removed or replaced: restart the agent"
    with refusal(StoreFault.LOST, text):
        await add(store, B)
    with refusal(StoreFault.LOST, text):
        await store.set_names({TEAM: A})
    with refusal(StoreFault.LOST, text):
        store.files_of(A)
    with refusal(StoreFault.LOST, text):
        store.mark_used(A)
    with refusal(StoreFault.LOST, text):
        await store.remove(A)


@pytest.mark.parametrize("place", ["content", "tmp", "lock"])
def test_a_link_in_the_place_of_a_part_is_refused(root: Path, clock: SetClock, place: str):
    open_store(root, clock).close()
    path = root / place
    path.rename(root.with_name("moved"))
    path.symlink_to(root.with_name("moved"))
    with refusal(StoreFault.FAILED, f"the store of kernel caches {root} cannot be used"):
        open_store(root, clock)


def test_a_file_in_the_place_of_the_store_is_refused(root: Path, clock: SetClock):
    root.write_text("")
    with refusal(StoreFault.FAILED, f"{root} cannot be used"):
        open_store(root, clock)


async def test_a_foreign_directory_is_left_alone(opened, root: Path):
    opened()
    for name in ("lost+found", f"sha256-{'A' * 64}", f"sha512-{'a' * 64}"):
        (root / "content" / name).mkdir()
    store = opened()
    assert (store.contents, store.damaged) == ({}, frozenset())
    assert len(names_in(root / "content")) == 3
