"""YAML as people read it."""

import yaml

from manifests.yaml import render


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
