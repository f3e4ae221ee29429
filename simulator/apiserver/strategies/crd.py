"""CustomResourceDefinitions: defaults, validation, and conversion into a resource type.

One served version per definition: conversion is missing, and a second served version is refused. Of
the rules for structural schemas, those that generated schemas tend to break are checked: every
field has a type, every array has items, there are no references.
"""

from typing import TYPE_CHECKING, Any, Final

from simulator.apiserver import cel_evaluator
from simulator.apiserver.errors import InvalidField, forbidden_field, invalid_value, required
from simulator.apiserver.resource_types import ResourceType
from simulator.apiserver.schema.structural import StructuralSchema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Json = dict[str, Any]

_SCOPES: Final = ("Cluster", "Namespaced")
_REFUSED_KEYWORDS: Final = ("$ref", "definitions", "patternProperties")


def default(body: Json) -> None:
    """Fill in optional fields, in place."""
    spec = body.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})


def established(body: Json, now: str) -> Json:
    """Return the status of a served definition."""
    names = body["spec"]["names"]
    conditions = [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    return {
        "conditions": [
            {
                "type": type_,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": now,
            }
            for type_, reason, message in conditions
        ],
        "acceptedNames": dict(names),
        "storedVersions": [v["name"] for v in body["spec"]["versions"] if v.get("storage")],
    }


def validate(body: Json, old: Json | None) -> list[InvalidField]:
    """Return the errors of the definition; fields without a check are accepted."""
    spec = body["spec"]
    names, group = spec["names"], spec.get("group", "")
    errors = [
        required(f"spec.{field}")
        for field, value in (
            ("group", group),
            ("names.plural", names.get("plural")),
            ("names.kind", names.get("kind")),
        )
        if not value
    ]
    if spec.get("scope") not in _SCOPES:
        errors.append(required("spec.scope", "should be one of Cluster, Namespaced"))
    name = body["metadata"].get("name", "")
    if not errors and name != f"{names['plural']}.{group}":
        errors.append(
            invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
        )
    errors += _validate_versions(spec.get("versions") or [])
    if old is not None:
        errors += [
            invalid_value(f"spec.{field}", spec.get(field), "field is immutable")
            for field in ("group", "scope")
            if spec.get(field) != old["spec"].get(field)
        ]
    return errors


def _validate_versions(versions: list[Json]) -> "Iterator[InvalidField]":
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid_value(
            "spec.versions",
            [version.get("name") for version in versions],
            "must have exactly one version marked as storage version",
        )
    if sum(bool(version.get("served")) for version in versions) > 1:
        yield forbidden_field(
            "spec.versions", "this API server does not convert, so it serves one version only"
        )
    for index, version in enumerate(versions):
        at = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not isinstance(schema, dict):
            yield required(at, "schemas are required")
        else:
            yield from _validate_structure(schema, at)


def _validate_structure(schema: "Mapping[str, Any]", path: str) -> "Iterator[InvalidField]":
    for keyword in _REFUSED_KEYWORDS:
        if keyword in schema:
            yield forbidden_field(f"{path}.{keyword}", f"{keyword} is not supported")
    untyped = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get(
        "x-kubernetes-int-or-string"
    )
    if "type" not in schema and not untyped:
        yield required(f"{path}.type", "must not be empty for specified object fields")
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        yield required(f"{path}.items", "must be specified")
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        try:
            cel_evaluator.compile_expression(rule["rule"])
        except cel_evaluator.CelError as error:
            at = f"{path}.x-kubernetes-validations[{index}].rule"
            yield invalid_value(at, rule["rule"], str(error))
    if isinstance(schema.get("items"), dict):
        yield from _validate_structure(schema["items"], f"{path}.items")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _validate_structure(
            schema["additionalProperties"], f"{path}.additionalProperties"
        )
    for key, inner in (schema.get("properties") or {}).items():
        yield from _validate_structure(inner, f"{path}.properties[{key}]")


def to_resource(body: Json) -> ResourceType | None:
    """Return the resource type of a valid definition, or None without a served version."""
    spec = body["spec"]
    version = next((item for item in spec["versions"] if item.get("served")), None)
    if version is None:
        return None
    schema = StructuralSchema(version["schema"]["openAPIV3Schema"])
    paths = [item["jsonPath"].lstrip(".") for item in version.get("selectableFields") or ()]
    return ResourceType(
        group=spec["group"],
        version=version["name"],
        plural=spec["names"]["plural"],
        kind=spec["names"]["kind"],
        namespaced=spec["scope"] == "Namespaced",
        has_status="status" in (version.get("subresources") or {}),
        has_generation=True,
        field_labels={path: tuple(path.split(".")) for path in paths},
        shape=schema.shape,
        schema=schema,
        needs_version_to_update=True,
    )
