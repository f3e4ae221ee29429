"""Completion: verbs, flags, and the names that a cluster has."""

import io
from pathlib import Path

import pytest

from kubectl_gpu.command_line import VERBS, run
from kubectl_gpu.completion.completed_words import flags_in
from kubectl_gpu.dump.dumped_lists import collect
from kubectl_gpu.dumped.dump_archive import write_dump
from kubectl_gpu.terminal import Terminal
from tests.support.object_source import ObjectSource
from tests.support.plugin_cluster import a_fragmented_cluster


def completed(*words: str) -> list[str]:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    terminal = Terminal(out, io.StringIO())
    assert run(["__complete", *words], terminal) == 0
    assert not terminal.err.getvalue()  # type: ignore[attr-defined]
    out.seek(0)
    return out.read().splitlines()


@pytest.fixture
def dump(tmp_path: Path) -> str:
    path = tmp_path / "f.tgz"
    inventories = [
        {"kind": "GPUNodeInventory", "metadata": {"name": f"gpu-{number}"}} for number in range(3)
    ]
    objects = [
        *a_fragmented_cluster(),
        *inventories,
        {"kind": "Namespace", "metadata": {"name": "ml-team"}},
    ]
    write_dump(path, collect(ObjectSource(objects), namespace="gpu-control-plane"))
    return f"--from={path}"


def test_verbs_come_first_with_what_they_do():
    *lines, directive = completed("")
    assert [line.split("\t")[0] for line in lines] == sorted(VERBS)
    assert all(line.split("\t")[1] for line in lines)
    assert directive == ":4"


def test_a_verb_that_is_begun_is_completed():
    assert [line.split("\t")[0] for line in completed("wh")] == ["whatif", "who", "why", ":4"]
    assert completed("xyz") == [":4"]
    assert len(completed()) == len(VERBS) + 1


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_flags_are_those_of_the_help(verb: str, capsys: pytest.CaptureFixture[str]):
    names = [line.split("\t")[0] for line in completed(verb, "--")]
    assert {"--help", "--context"} <= set(names)
    with pytest.raises(SystemExit):
        run([verb, "--help"], Terminal(io.StringIO(), io.StringIO()))
    assert sorted(flag.names[-1] for flag in flags_in(capsys.readouterr().out)) == names[:-1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("pools", ""), ["training", ":4"]),
        (("pools", "x"), [":4"]),
        (("nodes", "gpu-1"), ["gpu-1", ":4"]),
        (("why", "-n", "ml-team", ""), ["big", "train-a", "train-b", ":4"]),
        (("why", "-A", "b"), ["big", ":4"]),
        (("why", "-n", ""), ["ml-team", ":4"]),
        (("who", "--pool", "t"), ["training", ":4"]),
        (("whatif", "--cordon", "gpu-"), ["gpu-0", "gpu-1", "gpu-2", ":4"]),
        (("whatif", "-f", ""), [":0"]),
        (("pools", "-o", "w"), ["wide", ":4"]),
        (("pools", "--output", ""), ["json", "name", "table", "wide", "yaml", ":4"]),
        (("dump", "-o", ""), [":0"]),
        (("check", "--context", ""), [":4"]),
        (("check", ""), [":4"]),
    ],
)
def test_names_come_from_the_cluster(words: tuple[str, ...], expected: list[str], dump: str):
    verb, *others = words
    flag = [] if verb == "dump" else [dump]
    assert completed(verb, *flag, *others) == expected


def test_a_cluster_that_cannot_be_read_has_no_names():
    assert completed("pools", "--from=/nonexistent", "") == [":4"]


def test_names_of_a_cluster_are_one_line_each(tmp_path: Path):
    path = tmp_path / "f.tgz"
    evil = {"kind": "GPUPool", "metadata": {"name": "a\n:0\x1b[31m"}, "spec": {}}
    write_dump(path, collect(ObjectSource([evil]), namespace="gpu-control-plane"))
    assert len(completed("pools", f"--from={path}", "")) == 2
