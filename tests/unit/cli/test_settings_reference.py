"""docs/settings.md is made from the model; what other documents say of settings is true of it.

UPDATE_GOLDEN=1 .venv/bin/pytest -q tests/unit/cli   # writes the reference
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.setting_fields import SettingField, setting_fields
from server.settings import Settings

DOCS = Path(__file__).resolve().parents[3] / "docs"
REFERENCE = DOCS / "settings.md"
FIELDS = setting_fields(Settings.model_json_schema())
BY_NAME = {field.name: field for field in FIELDS}
ROW = re.compile(r"\| `([a-z_.]+)` \| ([^|]*) \|")
HEAD = """\
# Settings
Made from the settings' model by `make golden`; `gpu-control-plane serve --help` prints the same.

A setting comes from a flag, a variable of the environment, the settings file (`--settings FILE`) or its default, in this order of precedence:
```console
$ gpu-control-plane serve --listen.port 9443 --show-settings
$ GPU_CONTROL_PLANE_LISTEN__PORT=9443 gpu-control-plane serve --show-settings
```
In the file it is `listen: {port: 9443}`. In flags and variables, commas separate the items of a list and the `key=value` pairs of a mapping; JSON is taken for each, and for objects it is the only form. `serve` does not start with an unknown name or a wrong value: it prints one line with the setting, its source, and the nearest name or the values that are possible.
"""


def reference() -> str:
    lines = [HEAD]
    is_open = False
    for field in FIELDS:
        if field.is_section:
            lines.append(
                f"\n{'#' * (len(field.path) + 1)} {field.name}\n{escaped(field.description)}\n"
            )
            is_open = False
            continue
        if not is_open:
            lines += ["| setting | type | default | |", "|---|---|---|---|"]
            is_open = True
        lines.append(row_of(field))
    return "\n".join(lines) + "\n"


def row_of(field: SettingField) -> str:
    default = f"`{field.default_text}`" if field.default_text else ""
    expects = re.sub(r"(?<=that matches )(\S+)", r"`\1`", escaped(field.expects))
    cells = (f"`{field.name}`", expects, default, escaped(field.description))
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def test_the_reference_has_every_setting_as_the_model_has_it():
    if os.environ.get("UPDATE_GOLDEN"):
        REFERENCE.write_text(reference(), encoding="utf-8")
    assert REFERENCE.read_text(encoding="utf-8") == reference()


def rows() -> Iterator[tuple[str, str]]:
    """Yield the rows of the tables of settings in documents for people: name, default."""
    for path in DOCS.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        for table in re.findall(r"\| setting \| default \|.*\n\|[-|]+\n((?:\|.*\n)+)", text):
            yield from ROW.findall(table)


ROWS = list(rows())


def test_there_are_tables_to_check():
    assert len(ROWS) > 5


@pytest.mark.parametrize(("name", "default"), ROWS, ids=[name for name, _ in ROWS])
def test_a_table_of_settings_has_names_and_defaults_of_the_model(name: str, default: str):
    assert name in BY_NAME
    if quoted := re.fullmatch("`([^`]*)`", default):
        assert quoted[1] == BY_NAME[name].default_text
