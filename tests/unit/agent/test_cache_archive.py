"""The archive in a layer: every header, name and end that is refused, with its message; and the forms that tools write."""

import gzip
import tarfile
import zlib
from collections.abc import Iterator

import pytest

from agent.kernelcache.content.archive import EntryKind, read_entries
from agent.kernelcache.content.errors import LayerFault, LayerRefusedError
from agent.kernelcache.content.gzip_stream import GzipStream
from agent.kernelcache.content.layer_limits import ExtractionLimits
from tests.support.cache_layers import Member, a_file, a_layer, a_member, an_archive

LIMITS = ExtractionLimits(archive_bytes=64 * 2**20, entries=1000)
LONG = "/".join(["d" * 200] * 3)


def entries_of(
    layer: bytes, chunk_bytes: int = 1000, limits: ExtractionLimits = LIMITS
) -> list[tuple[str, EntryKind, int]]:
    chunks = (layer[at : at + chunk_bytes] for at in range(0, len(layer), chunk_bytes))
    stream = GzipStream(chunks, limits)
    return [(entry.name, entry.kind, entry.size) for entry in read_entries(stream, limits)]


def refusal_of(layer: bytes, limits: ExtractionLimits = LIMITS) -> tuple[LayerFault, str]:
    with pytest.raises(LayerRefusedError) as caught:
        entries_of(layer, limits=limits)
    return caught.value.fault, str(caught.value)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 100_000])
def test_entries_of_each_format_and_chunk_size(form, chunk_bytes):
    name = "a" * 90 + "/" + "b" * 90 if form == tarfile.USTAR_FORMAT else f"{LONG}/kernel.ptx"
    layer = a_layer(
        a_member("./top/", type=tarfile.DIRTYPE), a_file("top//./x", b"1" * 700), a_file(name),
        form=form,
    )  # fmt: skip
    assert entries_of(layer, chunk_bytes) == [
        ("top", EntryKind.DIRECTORY, 0),
        ("top/x", EntryKind.FILE, 700),
        (name, EntryKind.FILE, 6),
    ]


def test_a_layer_of_several_gzip_members_is_read_to_its_end():
    archive = an_archive([a_file("a", b"1" * 5000), a_file("b", b"2" * 5000)])
    parts = [archive[at : at + 700] for at in range(0, len(archive), 700)]
    layer = b"".join(map(gzip.compress, [*parts, b""]))
    for chunk_bytes in (1, 13, 4096):
        assert [name for name, _, _ in entries_of(layer, chunk_bytes)] == ["a", "b"]


@pytest.mark.parametrize(
    ("layer", "fault", "text"),
    [
        pytest.param(b"", LayerFault.CUT, "the layer is empty", id="empty"),
        pytest.param(
            an_archive([a_file("a")]),
            LayerFault.NOT_GZIP,
            "the layer is not gzip: it begins with 61 00 00 00, not with 1f 8b",
            id="a plain tar",
        ),
        pytest.param(
            b"\x28\xb5\x2f\xfd" + bytes(100),
            LayerFault.ZSTD,
            "the layer is compressed with zstd: push the image with gzip (buildah push"
            " --compression-format gzip, docker buildx build --output compression=gzip)",
            id="zstd",
        ),
        pytest.param(
            a_layer(a_file("a"))[:-9],
            LayerFault.CUT,
            "the layer is cut: its gzip data ends after ",
            id="a cut gzip",
        ),
        pytest.param(
            a_layer(a_file("a")) + b"garbage",
            LayerFault.TRAILING_DATA,
            "the layer has data behind its gzip data, from byte ",
            id="garbage behind it",
        ),
        pytest.param(
            a_layer(a_file("a"))[:-8] + bytes(8),
            LayerFault.DAMAGED,
            "the layer's gzip data is damaged within its first ",
            id="a wrong check sum",
        ),
        pytest.param(
            gzip.compress(an_archive([a_file("a")], has_end=False)),
            LayerFault.CUT,
            "the archive is cut: it has no mark of its end (a block of zeros)",
            id="an archive without an end",
        ),
        pytest.param(
            gzip.compress(an_archive([a_file("a", b"1" * 600)])[:1000]),
            LayerFault.CUT,
            "the archive ends 536 bytes before the end of an entry",
            id="an archive that ends in an entry",
        ),
        pytest.param(
            gzip.compress(an_archive([a_file("a")]) + b"x"),
            LayerFault.TRAILING_DATA,
            "the archive has data behind its end, at byte 2048",
            id="data behind the archive",
        ),
        pytest.param(
            gzip.compress(an_archive([a_file("a")], has_end=False) + b"\1" * 512 + bytes(1024)),
            LayerFault.DAMAGED,
            "the archive is damaged: the header at byte 1024 is none (",
            id="a damaged header in the middle, which tarfile takes for the end",
        ),
    ],
)
def test_a_damaged_layer_is_refused_with_one_message(layer, fault, text):
    found_fault, found_text = refusal_of(layer)
    assert found_fault is fault
    assert found_text.startswith(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("../etc/x", '"../etc/x" has a part ".."', id="C9: a parent"),
        pytest.param("a/../../x", '"a/../../x" has a part ".."', id="C9: a parent inside"),
        pytest.param("/etc/x", '"/etc/x" is absolute', id="C9: absolute"),
        pytest.param("a/" + "x" * 256, "has a part of more than 255 bytes", id="a long part"),
        pytest.param(
            "x/" * 2047 + "xx", "has 4096 bytes; at most 4095 are possible", id="a long name"
        ),
        pytest.param("a\nb", r'"a\nb" has control characters', id="a line feed"),
        pytest.param("a\udc80", r'"a\udc80" is not UTF-8', id="not UTF-8"),
    ],
)
def test_a_name_outside_the_rules_is_refused_wherever_it_is(name, text):
    """G14."""
    fault, found = refusal_of(a_layer(a_member(name), form=tarfile.GNU_FORMAT))
    assert fault is LayerFault.BAD_NAME
    assert text in found


def pax(key: str, value: object, kind: bytes = tarfile.XHDTYPE) -> Member:
    body = f" {key}={value}\n".encode()
    length = next(n for n in range(len(body), len(body) + 9) if len(body) + len(str(n)) == n)
    return a_member("pax", str(length).encode() + body, type=kind)


@pytest.mark.parametrize(
    ("members", "fault", "text"),
    [
        pytest.param(
            [a_member("pax", b"11 path=../x\n", type=tarfile.XHDTYPE), a_file("a")],
            LayerFault.DAMAGED,
            "a pax header's record has a wrong length",
            id="a wrong length",
        ),
        pytest.param(
            [pax("path", "../x"), a_file("a")],
            LayerFault.BAD_NAME,
            '"../x" has a part ".."',
            id="C9: a parent by pax",
        ),
        pytest.param(
            [pax("path", "\0x"), a_file("a")],
            LayerFault.BAD_NAME,
            "has control characters",
            id="a NUL",
        ),
        pytest.param(
            [pax("size", "-1"), a_file("a")],
            LayerFault.DAMAGED,
            "a pax header's size is no number",
            id="a negative size",
        ),
        pytest.param(
            [pax("size", "9" * 19), a_file("a")],
            LayerFault.TOO_LARGE,
            "expands to more than 67108864 bytes",
            id="a size that is too large is not waited for",
        ),
        pytest.param(
            [pax("a", "b"), pax("a", "b"), a_file("a")],
            LayerFault.DAMAGED,
            "two pax headers follow each other",
            id="a chain, at which tarfile calls itself",
        ),
        pytest.param(
            [pax("path", "x", tarfile.XGLTYPE), a_file("a")],
            LayerFault.DAMAGED,
            "a global pax header has a path or a size",
            id="one path for all",
        ),
        pytest.param(
            [pax("a", "b")], LayerFault.DAMAGED, "an entry that is not there", id="no entry"
        ),
        pytest.param(
            [pax("a", "b" * 65_530), a_file("a")],
            LayerFault.DAMAGED,
            "an extended header has 65539 bytes; at most 65536 are read",
            id="a large header",
        ),
        pytest.param(
            [pax("GNU.sparse.size", 10_000), a_file("a")],
            LayerFault.BAD_ENTRY,
            "sparse and continued files are not extracted",
            id="sparse by pax",
        ),
        pytest.param(
            [a_member("a", type=b"S")], LayerFault.BAD_ENTRY, "has the type S", id="sparse by GNU"
        ),
        pytest.param(
            [a_member("a", b"12345", type=tarfile.SYMTYPE)],
            LayerFault.DAMAGED,
            '"a" is a symbolic link, and has 5 bytes',
            id="a link with data, on which readers disagree",
        ),
    ],
)
def test_headers_outside_the_rules_are_refused(members, fault, text):
    found_fault, found_text = refusal_of(a_layer(*members, form=tarfile.GNU_FORMAT))
    assert found_fault is fault
    assert text in found_text


def test_a_bomb_of_zeros_is_refused_early():
    """1 GiB of zeros as one file, within the limit of a cache: it is refused by how much it expands."""
    taken = 0

    def bomb() -> Iterator[bytes]:
        nonlocal taken
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        info, _ = a_file("bomb")
        info.size = 2**30
        data = info.tobuf(tarfile.GNU_FORMAT)
        for _ in range(1024):
            chunk = packer.compress(data)
            taken += len(chunk)
            yield chunk
            data = bytes(2**20)

    limits = ExtractionLimits()
    with pytest.raises(LayerRefusedError, match="the layer expands too much") as caught:
        list(read_entries(GzipStream(bomb(), limits), limits))
    assert caught.value.fault is LayerFault.EXPANDS
    assert taken < 200_000


def test_ten_million_entries_are_refused_early():
    taken = 0

    def many() -> Iterator[bytes]:
        nonlocal taken
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        info, _ = a_file("x", b"")
        block = info.tobuf(tarfile.GNU_FORMAT) * 1000
        for _ in range(10_000):
            taken += 1000
            yield packer.compress(block) + packer.flush(zlib.Z_SYNC_FLUSH)

    limits = ExtractionLimits(entries=20_000)
    with pytest.raises(LayerRefusedError, match="more than 20000 files and directories") as caught:
        list(read_entries(GzipStream(many(), limits), limits))
    assert caught.value.fault is LayerFault.TOO_MANY_ENTRIES
    assert taken <= 22_000


def test_global_headers_without_an_entry_are_counted():
    layer = a_layer(*[pax("a", "b", tarfile.XGLTYPE)] * 1001, form=tarfile.GNU_FORMAT)
    fault, _ = refusal_of(layer)
    assert fault is LayerFault.TOO_MANY_ENTRIES
