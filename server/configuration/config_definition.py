"""CustomResourceDefinition of GPUControlPlaneConfig, whose spec has the schema of the settings' model.

API servers take structural schemas only: no references, no unions, a type everywhere. There are no defaults in it: the
object has what was given, and a later version may have better defaults. Unknown fields are kept in every section:
otherwise the API server drops them for each client that does not ask for strict validation, and nobody learns of
the misspelt setting. The server refuses them by name, with the nearest one that exists.

An API server makes null of a map that loses its last member by an apply, and refuses that. So a section may be
null, which means the same as an empty one. A mapping is atomic, one value that an apply replaces: null or a missing
one would mean its default, which may have members.
"""

from typing import TYPE_CHECKING, Any, Final

from api.kinds.gpucontrolplaneconfig import GPUControlPlaneConfig
from manifests import constants
from manifests.custom_resource import AGE, CustomResource, build_definitions, condition_column
from server.configuration.config_source import FLAGS
from server.settings import Settings
from telemetry.conditions import ConfigCondition

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

_KEPT: Final = (
    "enum",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "required",
    "type",
)
_NULL: Final = {"type": "null"}
_KIND: Final = CustomResource(
    model=GPUControlPlaneConfig,
    plural="gpucontrolplaneconfigs",
    short_names=("gconfig",),
    categories=(),  # users have no use for it
    columns=(
        condition_column("Applied", ConfigCondition.APPLIED.value),
        condition_column("Restart", ConfigCondition.RESTART_NEEDED.value),
        condition_column("Refused", ConfigCondition.REFUSED.value),
        condition_column("Why", ConfigCondition.APPLIED.value, field="message", is_wide=True),
        AGE,
    ),
)


def build_config_crd(annotations: "Mapping[str, str] | None" = None) -> Json:
    (definition,) = build_definitions([_KIND], annotations)
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    described = schema["properties"]["spec"]["description"]
    spec = settings_schema()
    schema["properties"]["spec"] = {**spec, "description": described}
    schema["x-kubernetes-validations"] = [
        {
            "rule": f"self.metadata.name == '{constants.NAME}'",
            "message": f"the settings are those of the only GPUControlPlaneConfig, {constants.NAME}",
        }
    ]
    return definition


def settings_schema() -> Json:
    """Return the structural schema of the settings that an object may have."""
    schema = Settings.model_json_schema()
    found = _structural(schema, schema["$defs"])
    for name in FLAGS:
        del found["properties"][name]
    return found


def _structural(schema: Json, definitions: Json) -> Json:
    if "$ref" in schema:
        named = definitions[schema["$ref"].rpartition("/")[2]]
        return _structural({**named, **_described(schema)}, definitions)
    if "anyOf" in schema:
        (value,) = (item for item in schema["anyOf"] if item != _NULL)
        found = _structural({**value, **_described(schema)}, definitions) | {"nullable": True}
        return {**found, "enum": [*found["enum"], None]} if "enum" in found else found
    found = {key: schema[key] for key in _KEPT if key in schema} | _described(schema)
    if isinstance(found["type"], list):  # of integer and string
        del found["type"]
        return found | {"x-kubernetes-int-or-string": True}
    if "exclusiveMinimum" in schema:
        found |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    if "items" in schema:
        found["items"] = _structural(schema["items"], definitions)
    if "properties" in schema:
        inner = {
            name: _structural(value, definitions) for name, value in schema["properties"].items()
        }
        found["properties"] = {
            name: value | {"nullable": True} if "properties" in value else value
            for name, value in inner.items()
        }
        found["x-kubernetes-preserve-unknown-fields"] = True
    elif found["type"] == "object":
        # A pattern of keys has no place in a structural schema: the server checks it.
        values = schema.get("additionalProperties") or next(
            iter(schema["patternProperties"].values())
        )
        found["additionalProperties"] = _structural(values, definitions)
        found["x-kubernetes-map-type"] = "atomic"
    return found


def _described(schema: Json) -> Json:
    """Return the description in one line: its text is broken at the width of the source."""
    return {key: " ".join(schema[key].split()) for key in ("description",) if key in schema}
