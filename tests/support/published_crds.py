"""CustomResourceDefinitions that other projects publish, from the facts that `published_facts` derived of them."""

import json
from typing import Any

from tests.support.published_facts import FOLDER, definition_of, sample_of


def published_crd(name: str) -> dict[str, Any]:
    """Return a definition, such as `nodefeatures.nfd.k8s-sigs.io`."""
    return definition_of(_facts(name))


def published_sample(name: str) -> dict[str, Any]:
    """Return the object that a project documents for a definition of its own."""
    return sample_of(_facts(name))


def _facts(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def faults(body: dict[str, Any], crd: dict[str, Any]) -> list[str]:
    """Return the fields of an object that strict validation by the definition's schema rejects."""
    version = body["apiVersion"].rpartition("/")[2]
    schema = next(item for item in crd["spec"]["versions"] if item["name"] == version)["schema"]
    current = {key: value for key, value in body.items() if key != "metadata"}
    return list(_faults(current, schema["openAPIV3Schema"], ""))


_TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}


def _faults(value: Any, schema: dict[str, Any], path: str) -> "Any":
    kind = schema.get("type")
    if kind and not isinstance(value, _TYPES[kind]):
        yield f"{path}: {value!r} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _faults(item, schema.get("items", {}), f"{path}[{number}]")
    if not isinstance(value, dict):
        return
    for key in set(schema.get("required", ())) - value.keys():
        yield f"{path}.{key}: missing"
    properties, remaining = schema.get("properties", {}), schema.get("additionalProperties")
    for key, item in value.items():
        if key in properties:
            yield from _faults(item, properties[key], f"{path}.{key}")
        elif isinstance(remaining, dict):
            yield from _faults(item, remaining, f"{path}.{key}")
        elif not remaining and not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{key}: unknown field"
