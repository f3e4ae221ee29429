"""The chart in the tree is what `make chart` writes, and says as much as the models do."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from chart.build import STATIC, build_chart
from chart.tokens import TOKEN

from api.version import VERSION
from manifests.install.values import ChartValues
from server.settings import Settings

CHART = Path(__file__).parents[3] / "charts" / "gpu-control-plane"
INCLUDED = re.compile(r'include "([^"]+)"')
DEFINED = re.compile(r'define "([^"]+)"')


def files_below(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): path.read_text(encoding="utf-8")
        for path in directory.rglob("*")
        if path.is_file()
    }


CHART_FILES = files_below(CHART)
"""What is built, as the first test shows; the others read it, since to build it takes seconds."""


def sections(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the objects of a schema with their properties, by name."""
    yield "values", schema
    for name, item in schema["$defs"].items():
        if "properties" in item:
            yield name, item


def test_chart_in_the_tree_is_what_make_chart_writes():
    assert files_below(CHART) == build_chart()


def test_no_token_is_left():
    assert [path for path, text in CHART_FILES.items() if TOKEN.search(text)] == []


def test_every_helper_that_is_included_is_defined():
    texts = CHART_FILES.values()
    included = {name for text in texts for name in INCLUDED.findall(text)}
    defined = {name for text in texts for name in DEFINED.findall(text)}
    assert included == defined


def test_chart_has_the_version_of_the_program():
    chart = yaml.safe_load(CHART_FILES["Chart.yaml"])
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_values_are_the_defaults_of_the_model():
    values = yaml.safe_load(CHART_FILES["values.yaml"])
    assert values == ChartValues().model_dump(mode="json", by_alias=True)
    assert ChartValues.model_validate(values) == ChartValues()


def test_schema_has_every_setting_with_its_description():
    schema = json.loads(CHART_FILES["values.schema.json"])
    definitions = schema["$defs"]

    def named(model: Any, properties: dict[str, Any]) -> Iterator[str]:
        for name, field in model.model_fields.items():
            yield name
            described = properties[name]
            reference = described.get("$ref", "").rpartition("/")[2]
            assert described.get("description") or definitions[reference]["description"], name
            if hasattr(field.annotation, "model_fields"):
                yield from named(field.annotation, definitions[reference]["properties"])

    names = list(named(Settings, definitions["Settings"]["properties"]))
    assert {"listen", "advertised_address", "leadership", "drain_s"} <= set(names)
    assert len(names) > 60


def test_schema_takes_no_unknown_key_anywhere():
    schema = json.loads(CHART_FILES["values.schema.json"])
    open_ones = [
        name
        for name, section in sections(schema)
        if section.get("additionalProperties") is not False
    ]
    assert open_ones == []


def test_no_ca_bundle_and_no_image_without_a_value_is_in_a_template():
    for path, text in CHART_FILES.items():
        if path.startswith("templates/") and not path.endswith("NOTES.txt"):
            assert "caBundle:" not in text, path
            for line in text.splitlines():
                # Schemas have fields of this name: a name without a value.
                if line.strip().startswith("image: ") and not path.endswith("crds.yaml"):
                    assert "{{" in line, (path, line)


def test_what_is_static_has_no_object():
    """Objects come from the builders, so that they are written once."""
    for path in STATIC.rglob("*"):
        if path.is_file() and path.suffix == ".yaml":
            assert "kind:" not in path.read_text(encoding="utf-8"), path
