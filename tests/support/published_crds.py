"""CustomResourceDefinitions as their projects publish them, in a folder beside the repository; tests skip without it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "crds"


def published_crd(name: str) -> dict[str, Any]:
    """Return a definition, such as `nodefeatures.nfd.k8s-sigs.io`."""
    file = FOLDER / f"{name}.yaml"
    if not file.exists():
        pytest.skip(f"no published definition of {name}: {file} is absent", allow_module_level=True)
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def faults(body: dict[str, Any], crd: dict[str, Any]) -> list[str]:
    """Return the fields of an object that strict validation by the definition's schema rejects."""
    version = body["apiVersion"].rpartition("/")[2]
    schema = next(one for one in crd["spec"]["versions"] if one["name"] == version)["schema"]
    shown = {key: value for key, value in body.items() if key != "metadata"}
    return list(_faults(shown, schema["openAPIV3Schema"], ""))


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
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
    for key, item in value.items():
        if key in properties:
            yield from _faults(item, properties[key], f"{path}.{key}")
        elif isinstance(rest, dict):
            yield from _faults(item, rest, f"{path}.{key}")
        elif not rest and not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{key}: unknown field"
