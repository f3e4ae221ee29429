"""docs/node-software.md names every key of a ClusterPolicy's spec, and what counts where it is left out."""

import re
from pathlib import Path

import pytest

from api.crd.openapi import crd_schema
from api.kinds.nvidia.clusterpolicy import ClusterPolicy, ClusterPolicySpec
from api.kinds.nvidia.operand_block import Switchable
from tests.support.nvidia.stricter_rules import RULES

PAGE = (Path(__file__).parents[3] / "docs" / "node-software.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \| (on|off)? ?\|", PAGE, re.MULTILINE))
EARLY = PAGE.partition("## Rules that speak early")[2].partition("## Status")[0]
WITHOUT_EFFECT = {"psp", "kataManager"}


def test_page_says_of_every_key_what_it_does():
    assert list(ROWS)
    assert set(ROWS) == set(crd_schema(ClusterPolicy)["properties"]["spec"]["properties"])


def snake(name: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


@pytest.mark.parametrize("key", sorted(ROWS))
def test_page_says_what_counts_where_a_key_is_left_out(key):
    block = getattr(ClusterPolicySpec(), snake(key))
    if key == "validator":
        expected = "on"  # it has no switch
    elif isinstance(block, Switchable) and key not in WITHOUT_EFFECT:
        expected = "on" if block.is_enabled else "off"
    else:
        expected = ""
    assert ROWS[key] == expected


def test_page_lists_as_many_early_rules_as_there_are():
    """Two rules on precompiled drivers share a row."""
    rows = re.findall(r"^\| (?!Refused|---)", EARLY, re.MULTILINE)
    assert len(rows) == len(RULES) - 1
