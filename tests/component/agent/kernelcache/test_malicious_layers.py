"""Random and malicious layers: nothing outside of the directory, only declared errors, bounded memory.

Members are drawn from what attacks are made of, some bytes of the archive or of the layer are changed, and the whole
is cut or continued. The oracle is a walk of the directory and of what lies beside it.
"""

import gzip
import os
import shutil
import stat
import tarfile
import tempfile
import tracemalloc
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.kernelcache.content.errors import LayerRefusedError
from agent.kernelcache.content.extraction import extract_layer
from agent.kernelcache.content.layer_limits import ExtractionLimits
from kernelcache.image_format import CacheType
from tests.support.cache_layers import MANIFEST, PREFIX, a_file, a_member, an_archive

EXAMPLES = 200
LONG_EXAMPLES = 20_000
LIMITS = ExtractionLimits(archive_bytes=2**20, entries=40)
MOST_BYTES = 4 * 2**20
"""Of an extraction; hypothesis itself keeps what it has tried."""
CANARY = "canary"

PARTS = st.sampled_from(
    ["a", "b", "..", ".", "", "x.so", "é", "\udcff", "\n", "canary", "d" * 255, "e" * 256, "files"]
)
NAMES = st.one_of(
    st.builds(
        "".join,
        st.tuples(
            st.sampled_from([PREFIX, f"./{PREFIX}", "/", "../", "", f"{PREFIX}../", "//"]),
            st.lists(PARTS, max_size=4).map("/".join),
        ),
    ),
    st.sampled_from([MANIFEST, PREFIX, "io.vllm.manifest/manifest.json", "/etc/x", ".."]),
)
KINDS = st.sampled_from([*b"0000005", 0, *b"123456789ABDKLMNSVXgxz"]).map(
    lambda item: bytes([item])
)
DATA = st.one_of(
    st.binary(max_size=600),
    st.sampled_from(
        [
            b"",
            b'{"triton": []}',
            b"16 path=../../x\n",
            b"13 path=/a/b\n",
            b"15 size=999999\n",
            b"27 GNU.sparse.realsize=999\n",
            b"99999999 a=b\n",
            b"0" * 900,
            b"1" * 20_000,
            b"../../canary\0",
        ]
    ),
)
MEMBERS = st.builds(
    a_member,
    NAMES,
    DATA,
    type=KINDS,
    mode=st.sampled_from([0o644, 0o777, 0o4755, 0o2755, 0, 0o7777]),
    linkname=st.sampled_from(["", "../canary", "/etc/shadow", "a"]),
)
PLAIN_MEMBERS = st.builds(
    a_file,
    st.sampled_from([f"{PREFIX}{name}" for name in ("p", "q/r", "q/s.so", "t/u/v", "w" * 120)]),
    st.binary(max_size=2000),
)
CHANGES = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=2)
ENDS = st.one_of(st.just(b""), st.binary(max_size=40), st.integers(-600, -1))


def changed(data: bytes, changes, end) -> bytes:
    out = bytearray(data)
    for at, value in changes:
        if at < len(out):
            out[at] = value
    return bytes(out[:end]) if isinstance(end, int) else bytes(out + end)


@st.composite
def layers(draw) -> bytes:
    form = draw(st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    plain = draw(st.lists(PLAIN_MEMBERS, max_size=3, unique_by=lambda item: item[0].name))
    odd = draw(st.lists(MEMBERS, max_size=draw(st.sampled_from([0, 1, 5]))))
    archive = an_archive([*plain, *odd], form)
    what = draw(st.sampled_from(["as it is", "as it is", "archive", "layer"]))
    if what == "archive":
        archive = changed(archive, draw(CHANGES), draw(ENDS))
    layer = gzip.compress(archive, 1, mtime=0)
    return changed(layer, draw(CHANGES), draw(ENDS)) if what == "layer" else layer


def assert_only_plain_files(directory: Path) -> None:
    for path in (directory, *directory.rglob("*")):
        status = path.lstat()
        is_plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        assert is_plain, path
        assert status.st_uid == os.getuid()
        assert status.st_mode & (stat.S_ISUID | stat.S_ISGID) == 0


def walk_of(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_no_layer_writes_elsewhere_or_fails_in_another_way(is_long: bool, tmp_path: Path):
    outcomes = {"extracted": 0, "refused": 0}

    @settings(
        max_examples=LONG_EXAMPLES if is_long else EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(layer=layers(), chunk_bytes=st.sampled_from([1, 100, 5000]))
    def check(layer: bytes, chunk_bytes: int) -> None:
        place = Path(tempfile.mkdtemp(dir=tmp_path))
        (place / CANARY).write_bytes(b"alive")
        directory = place / "files"
        directory.mkdir()
        chunks = (layer[at : at + chunk_bytes] for at in range(0, len(layer), chunk_bytes))
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        try:
            found = extract_layer(chunks, directory, cache_type=CacheType.TRITON, limits=LIMITS)
        except LayerRefusedError as error:
            outcomes["refused"] += 1
            text = str(error)
        else:
            text = ""
            outcomes["extracted"] += 1
            files = [path for path in directory.rglob("*") if path.is_file()]
            assert len(files) == found.files
            assert sum(path.stat().st_size for path in files) == found.size_bytes
        assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES
        assert text.isprintable()
        assert len(text) < 1000
        assert_only_plain_files(directory)
        assert walk_of(place) == {CANARY, "files"}
        assert (place / CANARY).read_bytes() == b"alive"
        shutil.rmtree(place)

    tracemalloc.start()
    try:
        check()
    finally:
        tracemalloc.stop()
    assert walk_of(tmp_path) == set()
    assert min(outcomes.values()) >= 5, outcomes
