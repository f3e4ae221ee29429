"""A retired setting is refused by its name, from every source, with what to do."""

import re
from pathlib import Path
from typing import Any

import pytest

from manifests.install.values import ChartValues
from server.retired_settings import RETIRED
from server.setting_fields import VARIABLE_PREFIX, setting_fields
from server.settings import BadSettingsError, Settings, load_settings
from server.values_file import build_installation
from tests.support.settings_file import a_file

DOCS = Path(__file__).parents[3] / "docs"
NAMES = {field.name for field in setting_fields(Settings.model_json_schema())}


def nested(name: str) -> dict[str, Any]:
    settings: Any = "given"
    for part in reversed(name.split(".")):
        settings = {part: settings}
    assert isinstance(settings, dict)
    return settings


def test_every_source_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, advice in RETIRED.items():
        file = a_file(tmp_path, nested(name))
        with pytest.raises(BadSettingsError) as of_file:
            load_settings([], file)
        assert str(of_file.value) == f"{file}: {name}: no setting any more: {advice}"
        flag = f"--{name.replace('_', '-')}"
        with pytest.raises(BadSettingsError) as of_flag:
            load_settings([flag, "given"], None)
        assert str(of_flag.value) == f"{flag}: no setting any more: {advice}"
        variable = f"{VARIABLE_PREFIX}{name.replace('.', '__').upper()}"
        monkeypatch.setenv(variable, "given")
        with pytest.raises(BadSettingsError) as of_variable:
            load_settings([], None)
        monkeypatch.delenv(variable)
        assert str(of_variable.value) == f"{variable}: no setting any more: {advice}"
        with pytest.raises(BadSettingsError) as of_values:
            build_installation(ChartValues(settings=nested(name)), namespace="gpu")
        assert str(of_values.value) == f"settings.{name}: no setting any more: {advice}"


def test_a_setting_of_a_retired_section_is_refused_as_the_section():
    with pytest.raises(BadSettingsError, match=r"^--scheduler\.deployment: no setting any more: "):
        load_settings(["--scheduler.deployment", "other"], None)


def test_what_is_retired_is_no_setting_and_what_takes_its_place_is_one():
    for name, advice in RETIRED.items():
        assert not any(current == name or current.startswith(f"{name}.") for current in NAMES), name
        assert set(re.findall(r"`([a-z_.]+)`", advice)) <= NAMES


def test_no_page_names_one():
    named = re.compile(rf"`({'|'.join(re.escape(name) for name in RETIRED if '.' in name)})\b")
    pages = [*DOCS.rglob("*.md")]
    assert len(pages) > 20
    assert [page.name for page in pages if named.search(page.read_text(encoding="utf-8"))] == []
