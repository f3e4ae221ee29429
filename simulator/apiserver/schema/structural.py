"""Structural schemas of custom resources: prune, default, validate.

In the order of the API server. `metadata`, `apiVersion` and `kind` of the root are handled
elsewhere. The rules themselves are in `rules` and `cel_rules`.
"""

from typing import TYPE_CHECKING, Any, final

import msgspec

from simulator.apiserver.errors import InvalidField
from simulator.apiserver.schema import cel_rules
from simulator.apiserver.schema import list_types as shapes
from simulator.apiserver.schema.rules import (
    FREE,
    ROOT_FIELDS,
    allowed_field,
    keeps_unknown,
    typed_faults,
    validate,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


Json = dict[str, Any]


@final
class StructuralSchema:
    """The schema of one version of a custom resource."""

    def __init__(self, root: "Mapping[str, Any]") -> None:
        properties = {
            key: value
            for key, value in root.get("properties", {}).items()
            if key not in ROOT_FIELDS
        }
        self._root: Json = {**root, "properties": properties}
        self._root["required"] = [key for key in root.get("required", ()) if key in properties]
        self._rules = cel_rules.CelRules.from_schema(self._root)

    @property
    def shape(self) -> Json:
        return {
            **self._root,
            "properties": {**self._root["properties"], "metadata": shapes.METADATA},
        }

    def prune(self, body: Json) -> list[str]:
        """Drop unknown fields in place and return their paths, sorted."""
        unknown: list[str] = []
        content = _content(body)
        _prune(content, self._root, "", unknown=unknown)
        _write_back(content, body)
        return sorted(unknown)

    def default(self, body: Json, *, is_applied: bool = False) -> None:
        """Fill in defaults in place; nulls that the schema does not allow count as absent.

        In what an apply results in, they count so only where there is a default.
        """
        content = _content(body)
        _default(content, self._root, is_applied=is_applied)
        _write_back(content, body)

    def validate(self, body: Json, old: Json | None) -> list[InvalidField]:
        """Return the errors of the object, or of the change from the older one."""
        errors = list(validate(_content(body), self._root, ""))
        if self._rules is not None:
            errors += cel_rules.validate_object(self._rules, body, old, errors=errors)
        return errors

    def typed_fault(self, config: Json) -> str | None:
        """Return why the configuration cannot be applied at all, or None."""
        return next(typed_faults(_content(config), self._root, ""), None)


def _content(body: Json) -> Json:
    return {key: value for key, value in body.items() if key not in ROOT_FIELDS}


def _write_back(content: Json, body: Json) -> None:
    for key in [key for key in body if key not in ROOT_FIELDS]:
        del body[key]
    body.update(content)


def _items(schema: "Mapping[str, Any]") -> "Mapping[str, Any]":
    if keeps_unknown(schema) and "items" not in schema:
        return FREE
    found: Mapping[str, Any] = schema.get("items", {})
    return found


def _prune(value: object, schema: "Mapping[str, Any]", path: str, *, unknown: list[str]) -> None:
    if isinstance(value, dict):
        for key in list(value):
            at = f"{path}.{key}" if path else key
            inner = allowed_field(schema, key)
            if inner is None:
                del value[key]
                unknown.append(at)
            else:
                _prune(value[key], inner, at, unknown=unknown)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _prune(item, _items(schema), f"{path}[{index}]", unknown=unknown)


def _default(value: object, schema: "Mapping[str, Any]", *, is_applied: bool) -> None:
    if isinstance(value, dict):
        _default_fields(value, schema, is_applied=is_applied)
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            _default(list(value.values()), {"items": more}, is_applied=is_applied)
    elif isinstance(value, list):
        for item in value:
            _default(item, schema.get("items", {}), is_applied=is_applied)


def _default_fields(value: Json, schema: "Mapping[str, Any]", *, is_applied: bool) -> None:
    keeps_nulls = is_applied or keeps_unknown(schema)
    for key, inner in schema.get("properties", {}).items():
        if key in value and value[key] is None and not inner.get("nullable"):
            if keeps_nulls and "default" not in inner:
                continue
            del value[key]
        if key not in value and inner.get("default") is not None:
            value[key] = msgspec.json.decode(msgspec.json.encode(inner["default"]))
        if key not in value:
            continue
        # 1.0 is the integer 1 in JSON.
        number = value[key]
        if inner.get("type") == "integer" and isinstance(number, float) and number.is_integer():
            value[key] = int(number)
        _default(value[key], inner, is_applied=is_applied)
