"""JSON schemas for kubeconform, of the kinds that an API server serves, from what it publishes as its OpenAPI.

Strict, as its own strict validation: no object has a field that its definition does not name.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]

TEMPLATE = "{{.ResourceKind}}{{.KindSuffix}}.json"
"""How kubeconform looks for the schema of a kind."""
_DEFINITIONS = "definitions.json"
_BOTH = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": ["string", "number"],
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": ["string", "integer"],
}
"""Types that OpenAPI v2 calls strings, and that numbers are, too."""


def write_schemas(openapi: Mapping[str, Any], folder: Path) -> str:
    """Write a schema a kind into the folder; return where kubeconform is to look for them."""
    definitions = {name: _strict(name, item) for name, item in openapi["definitions"].items()}
    (folder / _DEFINITIONS).write_text(json.dumps({"definitions": definitions}), encoding="utf-8")
    for name, item in openapi["definitions"].items():
        for kind in item.get("x-kubernetes-group-version-kind", ()):
            reference = {"$ref": f"{_DEFINITIONS}#/definitions/{name}"}
            (folder / _file_name(kind)).write_text(json.dumps(reference), encoding="utf-8")
    return f"{folder}/{TEMPLATE}"


def _strict(name: str, definition: Json) -> Json:
    if name in _BOTH:
        return {"type": _BOTH[name]}
    local = json.loads(json.dumps(definition))
    if "properties" in local:
        local.setdefault("additionalProperties", False)
    return dict(local)


def _file_name(kind: Mapping[str, str]) -> str:
    group = kind["group"].partition(".")[0]
    suffix = f"-{group}-{kind['version']}" if group else f"-{kind['version']}"
    return f"{kind['kind'].lower()}{suffix.lower()}.json"
