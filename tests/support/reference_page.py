"""Pages of docs/reference: made from the code, compared with what is stored, and written where UPDATE_GOLDEN is set."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
_CODE = re.compile(r"(`[^`]*`)")


def check_page(name: str, text: str) -> None:
    """Compare the stored page with the text of the code, or store the text."""
    page = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN"):
        page.write_text(text, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Return a text as a cell shows it; paragraphs become lines, and code stays as it is."""
    parts = _CODE.split(text.replace("|", "\\|"))
    escaped = [part if part.startswith("`") else part.replace("<", "&lt;") for part in parts]
    return "<br>".join(line for line in "".join(escaped).split("\n\n") if line)


def code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`" if text else ""
