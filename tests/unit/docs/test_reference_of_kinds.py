"""docs/reference/custom-resources.md is made from the schemas that the API server gets.

UPDATE_GOLDEN=1 .venv/bin/pytest -q tests/unit/docs   # writes the pages of the reference
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from manifests.caches.crds import build_cache_crds
from manifests.install.crds import build_crds
from server.configuration.config_definition import build_config_crd
from tests.support.reference_page import cell, check_page, code, table

Schema = Mapping[str, Any]
DEFINITIONS: list[dict[str, Any]] = [
    *build_crds(),
    build_config_crd(),
    *build_cache_crds(),
]
HEAD = """\
# Custom resources
Made from the schemas of the kinds by `make golden`; `kubectl explain` prints the same texts.

Fields without a default may be left out unless they are *required*. `[]` stands for each item of a list or each value of a mapping. The API server refuses an object that breaks a rule of its kind, with the text that is shown here.
"""
BOUNDS = {
    "minimum": "≥ {}",
    "maximum": "≤ {}",
    "minItems": "≥ {} items",
    "maxItems": "≤ {} items",
    "minLength": "≥ {} characters",
    "maxLength": "≤ {} characters",
    "maxProperties": "≤ {} keys",
}


OF_KUBERNETES = (
    ".conditions[].status",
    ".matchExpressions[].operator",
    ".requirements[].operator",
    ".taints[].effect",
)
"""Enumerations of Kubernetes' own types, whose values its documentation describes."""


def kind_of(definition: Schema) -> str:
    return str(definition["spec"]["names"]["kind"])


def schema_of(definition: Schema) -> Schema:
    found: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def fields_in(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """Yield path, schema and whether it is required, for each field below spec and status."""
    required = set(schema.get("required", ()))
    for name, nested in schema.get("properties", {}).items():
        if path or name in {"spec", "status"}:
            below = f"{path}.{name}".removeprefix(".")
            yield below, nested, name in required
            yield from fields_in(nested, below)
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            yield from fields_in(schema[keyword], f"{path}[]")


def rules_in(schema: Schema, path: str = "") -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path, rule["message"] if "message" in rule else rule["messageExpression"]
    for name, nested in schema.get("properties", {}).items():
        yield from rules_in(nested, f"{path}.{name}".removeprefix("."))
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            yield from rules_in(schema[keyword], f"{path}[]")


def type_of(schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(code(value) for value in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        found = "integer or string"
    elif schema["type"] == "array":
        items = type_of(schema["items"])
        found = f"list of ({items})" if "," in items else f"list of {items}"
    elif "additionalProperties" in schema:
        found = f"mapping to {type_of(schema['additionalProperties'])}"
    else:
        found = str(schema["type"])
    bounds = [text.format(schema[name]) for name, text in BOUNDS.items() if name in schema]
    if "pattern" in schema:
        bounds.append(f"matches {code(schema['pattern'])}")
    return ", ".join([found, *bounds])


def default_of(schema: Schema, *, is_required: bool) -> str:
    if is_required:
        return "*required*"
    if "default" not in schema or isinstance(schema["default"], dict):
        return ""
    value = schema["default"]
    return code(str(value).lower() if isinstance(value, bool) else str(value))


def row_of(path: str, schema: Schema, *, is_required: bool) -> tuple[str, str, str, str]:
    default = default_of(schema, is_required=is_required)
    return code(path), type_of(schema), default, cell(schema.get("description", ""))


def chapter(definition: Schema, twins: Mapping[str, str]) -> str:
    spec, names, kind = definition["spec"], definition["spec"]["names"], kind_of(definition)
    schema = schema_of(definition)
    scope = "in a namespace" if spec["scope"] == "Namespaced" else "cluster-scoped"
    words = [names["plural"], *names.get("shortNames", ())]
    version = spec["versions"][0]
    lines = [
        f"\n## {kind}",
        f"{cell(schema['description'])} `{spec['group']}/{version['name']}`, {scope};"
        f" {', '.join(f'`kubectl get {word}`' for word in words)}.",
    ]
    if selectable := [field["jsonPath"][1:] for field in version.get("selectableFields", ())]:
        lines.append(
            f"Field selectors: {', '.join(map(code, selectable))} (Kubernetes 1.31 and newer)."
        )
    if twin := twins.get(kind):
        lines.append(f"\nIts fields are those of [{twin}](#{twin.lower()}).")
        return "\n".join(lines) + "\n"
    rows = [row_of(path, field, is_required=must) for path, field, must in fields_in(schema)]
    lines += ["", table(("field", "type", "default", "description"), rows)]
    if rules := dict.fromkeys(rules_in(schema)):
        lines += [
            "Rules:\n",
            *(f"* {code(path) or 'object'}: {cell(text)}" for path, text in rules),
        ]
        lines.append("")
    return "\n".join(lines)


def twins_in(definitions: list[dict[str, Any]]) -> dict[str, str]:
    """Return kind -> an earlier kind with the same fields."""
    found: dict[str, str] = {}
    for number, definition in enumerate(definitions):
        for earlier in definitions[:number]:
            same = schema_of(earlier)["properties"] == schema_of(definition)["properties"]
            if same and kind_of(earlier) not in found:
                found[kind_of(definition)] = kind_of(earlier)
    return found


def page() -> str:
    twins = twins_in(DEFINITIONS)
    return HEAD + "".join(chapter(item, twins) for item in DEFINITIONS)


def test_the_reference_has_every_field_as_the_schema_has_it():
    check_page("custom-resources.md", page())


@pytest.mark.parametrize(
    "definition",
    # Descriptions of settings say what the values mean in a sentence.
    [item for item in DEFINITIONS if kind_of(item) != "GPUControlPlaneConfig"],
    ids=kind_of,
)
def test_every_value_of_an_enumeration_is_described(definition: dict[str, Any]):
    """As every field is (`tests/unit/api/test_schema.py`)."""
    silent = [
        f"{path}: {value}"
        for path, field, _ in fields_in(schema_of(definition))
        if not path.endswith(OF_KUBERNETES)
        for value in field.get("enum", ())
        if f"{value}: " not in field.get("description", "")
    ]
    assert silent == []


def test_kinds_with_the_same_fields_are_found():
    assert twins_in(DEFINITIONS) == {
        "ClusterGKMCache": "GKMCache",
        "ClusterGKMCacheNode": "GKMCacheNode",
    }
