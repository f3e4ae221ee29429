"""Texts of a dump that a user hands over steer no terminal, whatever verb prints them in whatever form."""

import dataclasses
import io
import json
from pathlib import Path

import msgspec
import pytest
import yaml

from api.text import printable, printable_json, printable_lines
from kubectl_gpu.command_line import VERBS, run
from kubectl_gpu.dump.dumped_lists import collect
from kubectl_gpu.dumped.dump_archive import answer_file, write_dump
from kubectl_gpu.terminal import Terminal
from kubectl_gpu.watching import gaps_text
from tests.support.object_source import ObjectSource
from tests.support.plugin_cluster import a_fragmented_cluster

BAD = (
    "".join(map(chr, (*range(32), 127, *range(128, 160))))
    + "\u00ad\u061c\u200b\u200e\u200f"
    + ("\u2028\u2029\u202a\u202e\u2060\u2066\u2069\ufeff\U000e0041")
)
"""Control characters, those that turn the direction of text, and those that nobody sees."""
FORGED = "FORGED"
HOSTILE = f"\x1b]0;x\x07{BAD}\n{FORGED}"
NAMES = ("big", "train-a", "train-b", "gpu-0", "gpu-1", "gpu-2", "training", "ml-team")
ASKED = {
    "why": (("why", "-A"), ("why", f"big{HOSTILE}", "-n", "ml-team")),
    "pools": (("pools",),),
    "nodes": (("nodes",),),
    "who": (("who", "-A"),),
    "whatif": (("whatif", "--pool", "training", "--units", "1", "--times", "9"),),
    "check": (("check",),),
    "version": (("version",),),
    "console": (),
    "dump": (),
    **dict.fromkeys(("approve", "move", "release", "drain"), ()),
}
"""The last ones take no dump; what decisions print goes the same way (`Terminal.write`)."""
FORMS = ("", "wide", "json", "yaml", "name")


def a_dump(path: Path, *hostile: str) -> str:
    text = json.dumps(a_fragmented_cluster())
    for name in hostile:
        text = text.replace(json.dumps(name), json.dumps(name + HOSTILE))
    text = text.replace("0/3 nodes are available", json.dumps(HOSTILE)[1:-1])
    dump = collect(ObjectSource(json.loads(text)), namespace="gpu-control-plane")
    version = msgspec.json.encode({"gitVersion": f"v1{HOSTILE}"})
    write_dump(
        path, dataclasses.replace(dump, files={**dump.files, answer_file("/version"): version})
    )
    return f"--from={path}"


def printed_by(arguments: tuple[str, ...], *, has_colours: bool = False) -> str:
    out, err = io.StringIO(), io.StringIO()
    run(list(arguments), Terminal(out, err, has_colours=has_colours))
    return out.getvalue() + err.getvalue()


def bad_in(text: str) -> set[str]:
    return {item for item in text if not item.isprintable() and item != "\n"}


def test_every_verb_is_asked():
    assert set(ASKED) == set(VERBS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("asked", [item for verb in ASKED.values() for item in verb], ids=repr)
def test_no_verb_prints_what_steers_a_terminal(asked: tuple[str, ...], form: str, tmp_path: Path):
    flags = ("-o", form) if form else ()
    for number, hostile in enumerate((NAMES[:3], NAMES)):
        flag = a_dump(tmp_path / f"{number}.tgz", *hostile)
        text = printed_by((*asked, *flags, flag))
        assert bad_in(text) == set()
        assert not any(line.startswith(FORGED) for line in text.splitlines())


def test_dump_is_hostile(tmp_path: Path):
    flag = a_dump(tmp_path / "f.tgz", *NAMES[:3])
    for asked in (("why", "-A"), ("version",)):
        assert FORGED in printed_by((*asked, flag))


def test_colours_are_ours_alone(tmp_path: Path):
    text = printed_by(("why", "-A", a_dump(tmp_path / "f.tgz", *NAMES[:3])), has_colours=True)
    assert "\x1b[1m" in text
    assert text.count("\x1b") == text.count("\x1b[")
    assert "\x1b]" not in text


@pytest.mark.parametrize("has_colours", [True, False])
def test_whatever_is_written_steers_no_terminal_but_by_our_colours(has_colours: bool):
    out = io.StringIO()
    Terminal(out, out, has_colours=has_colours).write(f"\x1b[1m{''.join(BAD)}\x1b[0m\n")
    text = out.getvalue()
    assert bad_in(text.replace("\x1b[1m", "").replace("\x1b[0m", "")) <= {"\t"}
    assert ("\x1b[1m" in text) is has_colours


@pytest.mark.parametrize("bad", sorted(set(BAD)), ids=ascii)
def test_each_such_character_is_replaced_or_escaped(bad: str):
    assert printable(f"a{bad}b") in {"a?b", "a b"}
    assert bad_in(printable_lines(f"a{bad}b")) <= {"\t"}
    assert bad_in(gaps_text([f"a{bad}b"])) == set()
    document = {"a": f"é{bad}b"}
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    assert bad_in(printable_json(text)) == set()
    assert json.loads(printable_json(text)) == document


def test_lines_and_columns_stay_lines_and_columns():
    assert printable_lines("a\tb\n\nc\r\n") == "a\tb\n\nc?\n"
    assert printable("naïve … 漢字 ■") == "naïve … 漢字 ■"


def test_forms_for_programs_say_what_the_cluster_says(tmp_path: Path):
    flag = a_dump(tmp_path / "f.tgz")
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        document = read(printed_by(("version", "-o", form, flag)))
        assert document["kubernetes"] == f"v1{HOSTILE}"
