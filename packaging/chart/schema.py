"""values.schema.json: the values, and every setting of the server, with their descriptions."""

import json
from typing import Any, Final

from manifests.install.values import ChartValues
from server.retired_settings import RETIRED
from server.settings import Settings

Json = dict[str, Any]

_MAPS_OF_NAMES: Final = ("properties", "$defs")
_DATA: Final = ("default", "const", "enum")

_DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""Known to every Helm 3 and 4."""
_GLOBAL: Final = {"type": "object", "description": "Values of a parent chart, which are not used."}


def schema_text() -> str:
    return json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n"


def build_schema() -> Json:
    values, settings = ChartValues.model_json_schema(), Settings.model_json_schema()
    own, theirs = values.pop("$defs"), settings.pop("$defs")
    if shared := own.keys() & theirs.keys():
        raise ValueError(f"values and settings have classes of one name: {sorted(shared)}")
    for section in (values, *own.values()):
        section["required"] = _required(section)
    definitions = own | theirs
    settings["description"] = values["properties"]["settings"]["description"]
    values["properties"] |= {"settings": {"$ref": "#/$defs/Settings"}, "global": _GLOBAL}
    definitions["Settings"] = settings
    _allow_retired(definitions)
    schema = _without_titles(
        {"$schema": _DIALECT, **values, "$defs": dict(sorted(definitions.items()))}
    )
    assert isinstance(schema, dict)
    return schema


def _allow_retired(definitions: Json) -> None:
    """Let retired settings pass: `checks.yaml` refuses them, and says what to do, which no schema can."""
    for name, advice in RETIRED.items():
        *sections, retired = name.split(".")
        properties = definitions["Settings"]["properties"]
        for section in sections:
            found = properties[section]
            if "$ref" in found:
                found = definitions[found["$ref"].rpartition("/")[2]]
            else:  # a value, that was a section before
                found |= {"type": ["string", "object"], "minProperties": 1}
                found |= {"additionalProperties": False, "properties": found.get("properties", {})}
            properties = found["properties"]
        properties[retired] = {"description": f"No setting any more: {advice}."}


def _required(section: Json) -> list[str]:
    """Return the members that templates cannot do without: a null in a values file removes one."""
    return [
        name
        for name, schema in section["properties"].items()
        if "$ref" in schema or schema.get("type") in {"integer", "boolean"}
    ]


def _without_titles(schema: object, *, is_names: bool = False) -> object:
    """Leave out titles, which repeat names, and defaults of sections, which repeat those of their members.

    `is_names` is a map by names of properties.
    """
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = {"default", "title"} if "$ref" in schema else {"title"}
    return {
        key: value
        if key in _DATA and not is_names
        else _without_titles(value, is_names=not is_names and key in _MAPS_OF_NAMES)
        for key, value in schema.items()
        if is_names or key not in left_out
    }
