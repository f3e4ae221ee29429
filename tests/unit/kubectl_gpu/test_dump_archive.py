"""The file of a dump is read whole, or refused with a sentence: whatever it has in it."""

import dataclasses
import gzip
import io
import json
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.resources import GPU_POOLS, NODES, PODS
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.dumped.dump_archive import (
    CONTENTS,
    DumpedCluster,
    DumpLimits,
    list_file,
    read_dump,
    write_dump,
)
from kubectl_gpu.dumped.dump_source import DumpSource
from kubectl_gpu.errors import ForbiddenError, NotFoundError, UnreadableError
from tests.support.cluster_objects import a_pod_object, a_pool_object
from tests.support.object_source import NOON

PODS_OF_TWO_NAMESPACES = [
    {"metadata": {"name": "a", "namespace": "x", "labels": {"app": "web"}}},
    {"metadata": {"name": "b", "namespace": "y", "labels": {"app": "api"}}},
    {"metadata": {"name": "c", "namespace": "y"}, "spec": {"nodeName": "n1"}},
]


def a_dump(**files: object) -> DumpedCluster:
    lists = {list_file(GPU_POOLS): [a_pool_object()], list_file(PODS): [a_pod_object()]} | files
    return DumpedCluster(
        NOON, "default", {name: json.dumps(content).encode() for name, content in lists.items()}
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "f.tgz"


def test_what_is_written_is_read(path: Path):
    dump = dataclasses.replace(a_dump(), missing={"lists/nodes.core.json": "forbidden"})
    size = write_dump(path, dump)
    assert read_dump(path) == dump
    assert size == path.stat().st_size


def test_the_same_dump_is_the_same_file_which_only_its_owner_reads(path: Path):
    write_dump(path, a_dump())
    first = path.read_bytes()
    write_dump(path, a_dump())
    assert path.read_bytes() == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_a_dump_that_is_cut_anywhere_is_refused(path: Path):
    write_dump(path, a_dump())
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(UnreadableError, match=r"dump .*\.tgz .*; write a new one"):
            read_dump(path)


@given(place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_dump_with_another_byte_is_refused_or_the_same(
    place: int, byte: int, tmp_path_factory: pytest.TempPathFactory
):
    path = tmp_path_factory.mktemp("damaged") / "f.tgz"
    write_dump(path, a_dump())
    damaged = bytearray(path.read_bytes())
    damaged[place % len(damaged)] = byte
    path.write_bytes(damaged)
    try:
        found = read_dump(path)
    except UnreadableError:
        return
    assert found == a_dump()


@given(st.binary(max_size=2000))
def test_any_bytes_are_refused(content: bytes):
    with pytest.raises(UnreadableError):
        read_dump_of(gzip.compress(content))
    with pytest.raises(UnreadableError):
        read_dump_of(content)


def read_dump_of(content: bytes) -> DumpedCluster:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "f.tgz"
        path.write_bytes(content)
        return read_dump(path)


def repacked(path: Path, change: "object") -> None:
    """Write the files of a dump again, with changed headers."""
    write_dump(path, a_dump())
    out = io.BytesIO()
    with tarfile.open(path) as source, tarfile.open(fileobj=out, mode="w:gz") as target:
        for member in source.getmembers():
            content = source.extractfile(member)
            assert content is not None
            change(member)  # type: ignore[operator]
            target.addfile(member, content if member.isreg() else None)
    path.write_bytes(out.getvalue())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"name": "../../etc/passwd"}, id="path upwards"),
        pytest.param({"name": "/etc/passwd"}, id="absolute path"),
        pytest.param({"name": "x" * 300}, id="name of an extended header"),
        pytest.param({"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, id="symbolic link"),
        pytest.param({"type": tarfile.LNKTYPE, "linkname": "dump.json"}, id="hard link"),
        pytest.param({"type": tarfile.CHRTYPE}, id="device"),
        pytest.param({"type": tarfile.DIRTYPE}, id="directory"),
        pytest.param({"pax_headers": {"comment": "x" * 5000}}, id="extended header"),
    ],
)
@pytest.mark.parametrize("where", ["first", "second"])
def test_an_archive_with_other_entries_is_refused(
    change: dict[str, object], where: str, path: Path
):
    def change_one(member: tarfile.TarInfo) -> None:
        if (member.name == CONTENTS) == (where == "first"):
            for name, value in change.items():
                setattr(member, name, value)

    repacked(path, change_one)
    with pytest.raises(UnreadableError):
        read_dump(path)


def test_a_bomb_is_refused_before_it_is_decompressed(path: Path):
    header = tarfile.TarInfo(CONTENTS)
    header.size = 0o77777777777
    path.write_bytes(gzip.compress(header.tobuf() + bytes(1 << 24)))
    with pytest.raises(UnreadableError, match="is no dump"):
        read_dump(path)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (DumpLimits(compressed=100), "is larger than"),
        (DumpLimits(contents=10), "is no dump"),
        (DumpLimits(file=10), "out of place"),
        (DumpLimits(total=2000), "of content"),
        (DumpLimits(files=1), "too many files"),
    ],
)
def test_a_dump_beyond_a_limit_is_refused(limits: DumpLimits, said: str, path: Path):
    write_dump(path, a_dump())
    with pytest.raises(UnreadableError, match=said):
        read_dump(path, limits)


def with_contents(path: Path, **changes: object) -> None:
    write_dump(path, a_dump())
    with tarfile.open(path) as archive:
        entries = [(item.name, archive.extractfile(item).read()) for item in archive]  # type: ignore[union-attr]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in entries:
            is_first = name == CONTENTS
            written = json.dumps(json.loads(content) | changes).encode() if is_first else content
            info = tarfile.TarInfo(name)
            info.size = len(written)
            archive.addfile(info, io.BytesIO(written))
    path.write_bytes(out.getvalue())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 2, "version": "9.1.0"}, "written by version 9.1.0"),
        ({"apiVersion": "cli.gpu.deckhouse.io/v9"}, "is of the format"),
        ({"kind": "PoolList"}, "is of the format"),
        ({"files": []}, "not in its table of contents"),
        ({"files": "all"}, "no readable table of contents"),
        ({"createdAt": "yesterday"}, "no readable table of contents"),
        ({"createdAt": "2026-11-23T12:00:00"}, "time zone"),
    ],
)
def test_a_dump_of_another_version_is_refused(changes: dict[str, object], said: str, path: Path):
    with_contents(path, **changes)
    with pytest.raises(UnreadableError, match=said):
        read_dump(path)


def test_a_missing_dump_and_a_directory_are_refused(tmp_path: Path):
    with pytest.raises(UnreadableError, match="No such file"):
        read_dump(tmp_path / "none.tgz")
    with pytest.raises(UnreadableError, match="directory"):
        read_dump(tmp_path)


def names_of(source: DumpSource, query: ListQuery) -> list[str]:
    return [
        item["metadata"]["name"]
        for page in source.pages(query)
        for item in json.loads(page)["items"]
    ]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        (ListQuery(PODS), ["a", "b", "c"]),
        (ListQuery(PODS, "y"), ["b", "c"]),
        (ListQuery(PODS, labels="app"), ["a", "b"]),
        (ListQuery(PODS, labels="!app"), ["c"]),
        (ListQuery(PODS, labels="app=web"), ["a"]),
        (ListQuery(PODS, labels="app==web"), ["a"]),
        (ListQuery(PODS, labels="app!=web"), ["b", "c"]),
        (ListQuery(PODS, labels="app in (web, api),app!=api"), ["a"]),
        (ListQuery(PODS, labels="app notin (web,api)"), ["c"]),
        (ListQuery(PODS, fields="spec.nodeName=n1"), ["c"]),
        (ListQuery(PODS, fields="spec.nodeName!=n1,metadata.name=a"), ["a"]),
        (ListQuery(PODS, fields="spec.nodeName="), ["a", "b"]),
    ],
)
def test_selectors_choose_from_a_dump_as_from_an_api_server(query: ListQuery, names: list[str]):
    dump = a_dump(**{list_file(PODS): PODS_OF_TWO_NAMESPACES})
    assert names_of(DumpSource(dump, "f.tgz"), query) == names


@pytest.mark.parametrize("selector", ["app in web", "=web", "app=a b", "(app)"])
def test_a_selector_that_is_none_is_refused(selector: str):
    with pytest.raises(UnreadableError, match="no requirement of a selector"):
        names_of(DumpSource(a_dump(), "f.tgz"), ListQuery(PODS, labels=selector))


def test_a_list_that_a_dump_does_not_have_may_not_be_read_and_the_dump_says_why():
    dump = dataclasses.replace(a_dump(), missing={list_file(NODES): "nodes may not be read"})
    with pytest.raises(ForbiddenError, match="nodes may not be read"):
        names_of(DumpSource(dump, "f.tgz"), ListQuery(NODES))


def test_one_object_is_found_by_its_name_and_namespace():
    source = DumpSource(a_dump(**{list_file(PODS): PODS_OF_TWO_NAMESPACES}), "f.tgz")
    assert json.loads(source.object(PODS, "b", namespace="y"))["metadata"]["name"] == "b"
    with pytest.raises(NotFoundError, match="has no Pod b in namespace x"):
        source.object(PODS, "b", namespace="x")


def test_time_stands_still_in_a_dump():
    source = DumpSource(a_dump(), "f.tgz", namespace="team")
    assert (source.now(), source.namespace()) == (NOON, "team")
    assert "2026-11-23 12:00:00 UTC" in source.origin


def test_objects_of_a_dump_may_have_anything_in_place_of_metadata():
    found = [{}, {"metadata": 3}, {"metadata": {"labels": [1], "name": 7}}]
    source = DumpSource(a_dump(**{list_file(PODS): found}), "f.tgz")
    for query in (
        ListQuery(PODS, "x"),
        ListQuery(PODS, labels="app"),
        ListQuery(PODS, fields="a.b=c"),
    ):
        assert list(source.pages(query)) == [b'{"metadata":{},"items":[]}']
    with pytest.raises(NotFoundError):
        source.object(PODS, "b")


def test_a_list_of_something_else_is_damage():
    dump = a_dump(**{list_file(PODS): {"items": 3}})
    with pytest.raises(UnreadableError, match="is damaged"):
        names_of(DumpSource(dump, "f.tgz"), ListQuery(PODS))
