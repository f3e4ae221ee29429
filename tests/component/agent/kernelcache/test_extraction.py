"""Files of a cache on the disk: names, rights and times of our own, and what is left out or refused."""

import os
import random
import stat
import tarfile
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.kernelcache.content.errors import LayerFault, LayerRefusedError, StoreError, StoreFault
from agent.kernelcache.content.extraction import OWN_TIME_NS, extract_layer
from agent.kernelcache.content.layer_limits import BLOCK_BYTES, ExtractionLimits, FreeSpaceFloor
from kernelcache.image_format import CacheType
from tests.support.cache_layers import (
    MANIFEST,
    PREFIX,
    a_file,
    a_layer,
    a_member,
    a_triton_layer,
)

LIMITS = ExtractionLimits(archive_bytes=64 * 2**20, entries=500)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "files"
    path.mkdir()
    return path


def extract(layer: bytes, directory: Path, cache_type=CacheType.TRITON, limits=LIMITS):
    return extract_layer(iter([layer]), directory, cache_type=cache_type, limits=limits)


def names_below(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*"))


def refusal_of(directory: Path, *members, cache_type=CacheType.TRITON, limits=LIMITS):
    with pytest.raises(LayerRefusedError) as caught:
        extract(a_layer(*members), directory, cache_type, limits)
    return caught.value.fault, str(caught.value)


def test_files_have_rights_and_times_of_our_own(directory: Path):
    layer = a_layer(
        a_member(f"{PREFIX}H", type=tarfile.DIRTYPE, mode=0o2777, uid=5),
        a_file(f"{PREFIX}H/x/kernel.ptx", b"1" * 300_000, mtime=99, uid=1000),
        a_member(f"{PREFIX}H/empty", mode=0o777),
    )
    found = extract(layer, directory)
    assert (found.files, found.size_bytes, found.has_shared_objects) == (2, 300_000, False)
    assert names_below(directory) == ["H", "H/empty", "H/x", "H/x/kernel.ptx"]
    assert (directory / "H/x/kernel.ptx").read_bytes() == b"1" * 300_000
    for path in (directory, *directory.rglob("*")):
        status = path.stat()
        assert stat.S_IMODE(status.st_mode) == (0o555 if path.is_dir() else 0o444)
        assert (status.st_uid, status.st_mtime_ns) == (os.getuid(), OWN_TIME_NS)


def test_the_rest_of_a_base_image_is_left_out(directory: Path):
    layer = a_layer(
        a_member("bin/sh", type=tarfile.SYMTYPE, linkname="/bin/busybox"),
        a_member("dev/null", type=tarfile.CHRTYPE),
        a_member("usr/bin/su", b"x", mode=0o4755),
        a_file("io.triton.cache.old/x"),
        a_file("io.vllm.cache/x"),
        a_file(MANIFEST, b'{"triton": [{"hash": "H"}], "other": 1}'),
        a_file(f"./{PREFIX}/H/./kernel.ptx"),
    )
    extract(layer, directory)
    assert names_below(directory) == ["H", "H/kernel.ptx"]


def test_a_vllm_cache_has_its_own_directory(directory: Path):
    layer = a_layer(a_file("io.vllm.cache/torch_compile_cache/0123456789/rank_0_0/x"))
    extract(layer, directory, CacheType.VLLM)
    assert "torch_compile_cache/0123456789/rank_0_0/x" in names_below(directory)


@pytest.mark.parametrize(
    ("members", "fault", "text"),
    [
        pytest.param(
            [a_member(f"{PREFIX}a", type=kind, linkname="/etc/shadow")],
            LayerFault.BAD_ENTRY,
            f'"{PREFIX}a" is {words}: a cache has files and directories only',
            id=words,
        )
        for kind, words in {
            tarfile.SYMTYPE: "a symbolic link",
            tarfile.LNKTYPE: "a hard link",
            tarfile.CHRTYPE: "a device",
            tarfile.BLKTYPE: "a device",
            tarfile.FIFOTYPE: "a FIFO",
        }.items()
    ]
    + [
        pytest.param(
            [a_member(PREFIX.rstrip("/"), type=tarfile.SYMTYPE, linkname="/etc")],
            LayerFault.BAD_ENTRY,
            '"io.triton.cache" is a symbolic link',
            id="the cache's directory is a link",
        ),
        pytest.param(
            [a_file(PREFIX.rstrip("/"))],
            LayerFault.BAD_ENTRY,
            '"io.triton.cache" is a file',
            id="the cache's directory is a file",
        ),
        pytest.param(
            [a_member(f"{PREFIX}a", b"x", mode=0o4755)],
            LayerFault.BAD_ENTRY,
            f'"{PREFIX}a" has set-uid or set-gid (mode 4755)',
            id="set-uid",
        ),
        pytest.param(
            [a_member(f"{PREFIX}a", b"x", mode=0o2755)],
            LayerFault.BAD_ENTRY,
            "(mode 2755)",
            id="set-gid",
        ),
        pytest.param(
            [a_file(f"{PREFIX}a", b"1"), a_file(f"{PREFIX}./a", b"2")],
            LayerFault.DUPLICATE,
            f'"{PREFIX}a" is there twice, or lies below a file',
            id="a file twice",
        ),
        pytest.param(
            [a_file(f"{PREFIX}a"), a_file(f"{PREFIX}a/b")],
            LayerFault.DUPLICATE,
            f'"{PREFIX}a/b" is there twice, or lies below a file',
            id="a file below a file",
        ),
        pytest.param(
            [a_file(f"{PREFIX}a/b/c"), a_file(f"{PREFIX}a/b")],
            LayerFault.DUPLICATE,
            f'"{PREFIX}a/b" is there twice',
            id="a file over a directory",
        ),
        pytest.param(
            [a_file(f"{PREFIX}a"), a_member(f"{PREFIX}a", type=tarfile.DIRTYPE)],
            LayerFault.DUPLICATE,
            f'"{PREFIX}a" is there twice',
            id="a directory over a file",
        ),
        pytest.param(
            [a_file(f"{PREFIX}{'d/' * 65}x")],
            LayerFault.BAD_NAME,
            "has 65 directories above it; at most 64 are possible",
            id="too deep",
        ),
        pytest.param(
            [a_file(f"{PREFIX}{n}/{'d/' * 60}x") for n in range(10)],
            LayerFault.TOO_MANY_ENTRIES,
            "the layer has more than 500 files and directories, the limit of a cache",
            id="directories that a few entries imply",
        ),
        pytest.param(
            [a_file("io.vllm.cache/x")],
            LayerFault.NO_FILES,
            "the layer has no file below io.triton.cache/: it is no triton cache",
            id="no cache of this type",
        ),
        pytest.param(
            [a_file(MANIFEST, b"{}")],
            LayerFault.BAD_MANIFEST,
            f'{MANIFEST} has no list "triton"',
            id="a manifest without the type",
        ),
        pytest.param(
            [a_file(MANIFEST, b'{"triton": [')],
            LayerFault.BAD_MANIFEST,
            f"{MANIFEST} cannot be read: Input data was truncated",
            id="a manifest that is cut",
        ),
        pytest.param(
            [a_file(MANIFEST, b"[" * 500_000)],
            LayerFault.BAD_MANIFEST,
            f"{MANIFEST} cannot be read: ",
            id="a manifest that is nested",
        ),
        pytest.param(
            [a_file(MANIFEST, bytes(8 * 2**20 + 1))],
            LayerFault.BAD_MANIFEST,
            f"{MANIFEST} has 8388609 bytes; at most 8388608 are read",
            id="a large manifest",
        ),
        pytest.param(
            [a_member(MANIFEST, type=tarfile.SYMTYPE)],
            LayerFault.BAD_MANIFEST,
            f"{MANIFEST} is a symbolic link",
            id="a manifest that is a link",
        ),
        pytest.param(
            [a_file(MANIFEST, b'{"triton": []}')] * 2,
            LayerFault.DUPLICATE,
            f'"{MANIFEST}" is there twice',
            id="two manifests",
        ),
        pytest.param(
            [a_file("io.vllm.manifest/manifest.json", b"{}")],
            LayerFault.BAD_MANIFEST,
            "the image's labels say triton, and its layer has io.vllm.manifest/manifest.json:"
            " build the image from one kind of cache",
            id="manifests of two kinds",
        ),
    ],
)
def test_what_is_no_plain_cache_is_refused(directory: Path, members, fault, text):
    found_fault, found_text = refusal_of(directory, *members)
    assert found_fault is fault
    assert text in found_text


def test_an_entry_beyond_the_limit_of_bytes_is_not_waited_for(directory: Path):
    info, _ = a_file(f"{PREFIX}x")
    info.size = 2**40
    fault, text = refusal_of(directory, (info, b""))
    assert fault is LayerFault.TOO_LARGE
    assert text == "the layer expands to more than 67108864 bytes, the limit of a cache"
    assert names_below(directory) == []


ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00"


@pytest.mark.parametrize(
    ("name", "data", "want"),
    [
        pytest.param("__triton_launcher.so", b"", True, id="by its name"),
        pytest.param("libx.so.1", b"", True, id="by its name with a version"),
        pytest.param("model", ELF + b"\x3e\x00" + bytes(50), True, id="of the processor"),
        pytest.param(
            "kernel.cubin", ELF + b"\xbe\x00" + bytes(50), False, id="of NVIDIA's devices"
        ),
        pytest.param("kernel.hsaco", ELF + b"\xe0\x00" + bytes(50), False, id="of AMD's devices"),
        pytest.param("kernel.ptx", b"\x7fELF", False, id="too short"),
        pytest.param("a.so.d/kernel.ptx", b"", False, id="a directory's name"),
    ],
)
def test_shared_objects_are_found(directory: Path, name, data, want):
    assert extract(a_layer(a_file(f"{PREFIX}{name}", data)), directory).has_shared_objects is want


def test_a_large_layer_takes_little_memory(directory: Path):
    """48 MiB in files of 1 KiB to 16 MiB: what is in memory does not grow with the layer."""
    noise = random.Random(1).randbytes(2**20)
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)

    def chunks() -> Iterator[bytes]:
        for number, mib in enumerate([1, 16, 1, 16, 14]):
            info, _ = a_file(f"{PREFIX}H/{number}")
            info.size = mib * 2**20
            yield packer.compress(info.tobuf(tarfile.GNU_FORMAT))
            for _ in range(mib):
                yield packer.compress(noise)
        yield packer.compress(bytes(1024)) + packer.flush()

    tracemalloc.start()
    try:
        found = extract_layer(chunks(), directory, cache_type=CacheType.TRITON, limits=LIMITS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.size_bytes == 48 * 2**20
    assert peak < 8 * 2**20


def test_a_layer_of_one_byte_chunks_is_the_same(directory: Path):
    layer = a_triton_layer(data=b"\x7fELF" + bytes(1000))
    chunks = (layer[at : at + 1] for at in range(len(layer)))
    extract_layer(chunks, directory, cache_type=CacheType.TRITON, limits=LIMITS)
    assert len(names_below(directory)) == 4


def a_disk(*, free_bytes: int, free_inodes: int) -> FreeSpaceFloor:
    """Return the floor of a disk with 1 GiB and 10,000 inodes of which so much is free."""
    blocks, free = 2**30 // BLOCK_BYTES, free_bytes // BLOCK_BYTES
    found = (BLOCK_BYTES, BLOCK_BYTES, blocks, free, free, 10_000, free_inodes, free_inodes, 0, 255)
    return FreeSpaceFloor(read=lambda _: os.statvfs_result(found))


SMALL_FILES = [
    a_file(f"{PREFIX}{at}/x", b"" if at % 2 else b"1", mtime=0, uid=0) for at in range(40)
]


def test_small_files_count_as_the_blocks_that_they_take(directory: Path):
    found = extract(a_layer(*SMALL_FILES), directory)
    assert found.size_bytes == 20
    assert found.disk_bytes == 80 * BLOCK_BYTES
    taken = sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))
    assert taken <= found.disk_bytes


def test_the_quota_refuses_small_files_by_their_blocks(directory: Path):
    limits = replace(LIMITS, disk_bytes=50 * BLOCK_BYTES)
    fault, text = refusal_of(directory, *SMALL_FILES, limits=limits)
    assert fault is LayerFault.TOO_LARGE
    assert "more of the disk than the 204800 bytes" in text
    assert len(names_below(directory)) <= 51


@pytest.mark.parametrize(
    ("disk", "free"),
    [
        (
            a_disk(free_bytes=100 * 2**20, free_inodes=9_000),
            "104857600 bytes and 9000 inodes free, of which 161061273 bytes and 1000 inodes are kept",
        ),
        (
            a_disk(free_bytes=2**29, free_inodes=1_000),
            "536870912 bytes and 1000 inodes free, of which 161061273 bytes and 1000 inodes are kept",
        ),
    ],
    ids=["bytes", "inodes"],
)
def test_an_extraction_stops_where_the_disk_has_no_more_than_is_kept_free(
    directory: Path, disk: FreeSpaceFloor, free: str
):
    with pytest.raises(StoreError, match=free) as caught:
        extract(a_layer(*SMALL_FILES), directory, limits=replace(LIMITS, floor=disk))
    assert caught.value.fault is StoreFault.FULL
    assert "its first 0 files and 0 directories take 0 bytes" in str(caught.value)
    assert not any(path.is_file() for path in directory.rglob("*"))


def test_a_file_system_that_makes_inodes_as_they_are_needed_has_no_floor_of_them(directory: Path):
    found = (BLOCK_BYTES, BLOCK_BYTES, 2**20, 2**20, 2**20, 0, 0, 0, 0, 255)
    floor = FreeSpaceFloor(read=lambda _: os.statvfs_result(found))
    assert (
        extract(a_layer(*SMALL_FILES), directory, limits=replace(LIMITS, floor=floor)).files == 40
    )
