"""Texts of a cluster read on the page as they are written: nothing in them turns or hides what is beside it."""

import json
import unicodedata

import pytest

from api.text import legible_json
from console.data.streams.event_bytes import change_event, snapshot_head
from console.edge.console_answers import row_answer
from console.rows import PodDetail, ViewerRow, WaitingRow

HOSTILE = "pod \u202ednuof\u2066\u200b\x9b\u2028 é…漢"
LEGIBLE = "pod ?dnuof???? é…漢"


def test_events_and_answers_have_no_text_that_turns_another() -> None:
    row = WaitingRow(namespace="a", name=HOSTILE, pool="p", units=1, created="")
    event = change_event("now", {"waiting": {"a/b": row}}).decode()
    assert LEGIBLE in event
    assert HOSTILE not in event
    head = snapshot_head(ViewerRow(name=HOSTILE), [HOSTILE], origin="x", at="", since="").decode()
    assert head.count(LEGIBLE) == 2
    body = row_answer(PodDetail(name=HOSTILE, row=row)).body
    assert isinstance(body, bytes)
    assert json.loads(body)["name"] == LEGIBLE


@pytest.mark.parametrize("category", ["Cc", "Cf", "Zl", "Zp"])
def test_no_character_of_these_kinds_is_left(category: str) -> None:
    """Format controls of single scripts beside: they are part of words."""
    common = [
        chr(code)
        for code in (*range(0x7F, 0x600), 0x61C, *range(0x2000, 0x2070), 0xFEFF, 0xE0001)
        if unicodedata.category(chr(code)) == category
    ]
    encoded = json.dumps(common, ensure_ascii=False).encode()
    assert set(json.loads(legible_json(encoded))) <= {"?"}


def test_what_is_legible_is_left_alone() -> None:
    for text in ("plain", "naïve … 漢字 ■", "a\\u001b"):
        encoded = json.dumps(text, ensure_ascii=False).encode()
        assert legible_json(encoded) == encoded
