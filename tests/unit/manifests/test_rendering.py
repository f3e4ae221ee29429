"""YAML as people read it."""

from typing import Any

import pytest
import yaml

from cli.installed_objects import build_groups
from manifests.install.values import ChartValues
from manifests.yaml import UNLIMITED, ManifestDumper, render
from server.values_file import build_installation


def test_keys_stay_in_the_order_of_the_builder():
    assert render([{"kind": "B", "apiVersion": "a"}]) == "---\nkind: B\napiVersion: a\n"


def test_value_used_twice_is_written_twice():
    shared = {"a": 1}
    assert render([{"w": shared, "x": shared}]) == "---\nw:\n  a: 1\nx:\n  a: 1\n"


def test_text_of_several_lines_is_a_block():
    rendered = render([{"text": "one\ntwo\n"}])
    assert rendered == "---\ntext: |\n  one\n  two\n"
    assert yaml.safe_load(rendered) == {"text": "one\ntwo\n"}


def test_text_that_looks_like_something_else_is_quoted():
    assert yaml.safe_load(render([{"a": "10", "b": "true", "c": "1e3"}])) == {
        "a": "10",
        "b": "true",
        "c": "1e3",
    }


def test_a_letter_that_kubectl_takes_for_a_boolean_is_quoted():
    assert render([{"a": ["y", "N", "yes", "x"]}]) == "---\na:\n- 'y'\n- 'N'\n- 'yes'\n- x\n"


class PureDumper(yaml.SafeDumper):
    """What a Python without libyaml writes with."""

    ignore_aliases = ManifestDumper.ignore_aliases
    represent_str = ManifestDumper.represent_str


PureDumper.add_representer(str, PureDumper.represent_str)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [100, UNLIMITED])
def test_both_emitters_of_yaml_write_the_same(width: int):
    """Without libyaml the emitter in Python writes: a manifest that is stored does not depend on it."""
    documents: list[Any] = [
        document
        for group in build_groups(build_installation(ChartValues(), namespace="gpu"))
        if not group.name.endswith("crds")
        for document in group.objects
    ]
    documents += [{"text": "# é — a\n\n  b: 'c'\n", "long": "a 'word' " * 40, "tab": "a\tb "}]
    assert len(documents) > 50
    assert render(documents, width=width) == yaml.dump_all(
        documents,
        Dumper=PureDumper,
        explicit_start=True,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=width,
    )
