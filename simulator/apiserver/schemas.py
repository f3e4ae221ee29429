"""Structural schemas of custom resources: prune, default, validate.

In the order in which the API server does it. `metadata`, `apiVersion` and `kind` of the root are
left to the rest of the server. CEL rules (`x-kubernetes-validations`) are not evaluated: what a rule
forbids is accepted here. Patterns run on Python's engine, not on RE2.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from simulator.apiserver import fields, shapes
from simulator.apiserver.errors import (
    FieldError,
    duplicate_value,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported_value,
    wrong_type,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Json = dict[str, Any]
Schema = "Mapping[str, Any]"

_ROOT_FIELDS: Final = frozenset({"metadata", "apiVersion", "kind"})
_DATE_TIME: Final = re.compile(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")
_UUID: Final = re.compile(r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$")
_FORMATS: Final[dict[str, re.Pattern[str]]] = {"date-time": _DATE_TIME, "uuid": _UUID}
_INTEGER_BITS: Final = {"int32": 31, "int64": 63}


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@final
class StructuralSchema:
    """The schema of one version of a custom resource."""

    def __init__(self, root: "Mapping[str, Any]") -> None:
        properties = {
            key: value
            for key, value in root.get("properties", {}).items()
            if key not in _ROOT_FIELDS
        }
        self._root: Json = {**root, "properties": properties}
        self._root["required"] = [key for key in root.get("required", ()) if key in properties]

    @property
    def shape(self) -> Json:
        """Return the schema as a shape, with metadata."""
        return {
            **self._root,
            "properties": {**self._root["properties"], "metadata": shapes.METADATA},
        }

    def prune(self, body: Json) -> list[str]:
        """Drop unknown fields in place and return their paths, sorted."""
        unknown: list[str] = []
        content = _content(body)
        _prune(content, self._root, "", unknown)
        _write_back(content, body)
        return sorted(unknown)

    def default(self, body: Json) -> None:
        """Fill in defaults in place; nulls that the schema does not allow count as absent."""
        content = _content(body)
        _default(content, self._root)
        _write_back(content, body)

    def validate(self, body: Json) -> list[FieldError]:
        """Return what is wrong with the object."""
        return list(_validate(_content(body), self._root, ""))

    def typed_fault(self, config: Json) -> str | None:
        """Say why the configuration cannot be applied at all, or None: types and unknown fields."""
        return next(_untyped(_content(config), self._root, ""), None)


def _content(body: Json) -> Json:
    return {key: value for key, value in body.items() if key not in _ROOT_FIELDS}


def _write_back(content: Json, body: Json) -> None:
    for key in [key for key in body if key not in _ROOT_FIELDS]:
        del body[key]
    body.update(content)


def _keeps_unknown(schema: "Mapping[str, Any]") -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def _allowed(schema: "Mapping[str, Any]", key: str) -> "Mapping[str, Any] | None":
    """Return the schema of a field, free where anything goes, None where it is unknown."""
    if key in schema.get("properties", {}):
        found: Mapping[str, Any] = schema["properties"][key]
        return found
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        return more
    if more or _keeps_unknown(schema):
        return {"x-kubernetes-preserve-unknown-fields": True}
    if schema.get("x-kubernetes-embedded-resource") and key in _ROOT_FIELDS:
        return {"x-kubernetes-preserve-unknown-fields": True}
    return None


def _prune(value: object, schema: "Mapping[str, Any]", path: str, unknown: list[str]) -> None:
    if isinstance(value, dict):
        for key in list(value):
            at = f"{path}.{key}" if path else key
            inner = _allowed(schema, key)
            if inner is None:
                del value[key]
                unknown.append(at)
            else:
                _prune(value[key], inner, at, unknown)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            _prune(each, schema.get("items", {}), f"{path}[{index}]", unknown)


def _default(value: object, schema: "Mapping[str, Any]") -> None:
    if isinstance(value, dict):
        _default_fields(value, schema)
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            for key, each in value.items():
                if key not in schema.get("properties", {}):
                    _default(each, more)
    elif isinstance(value, list):
        for each in value:
            _default(each, schema.get("items", {}))


def _default_fields(value: Json, schema: "Mapping[str, Any]") -> None:
    for key, inner in schema.get("properties", {}).items():
        if key in value and value[key] is None and not inner.get("nullable"):
            if _keeps_unknown(schema) and "default" not in inner:
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
        _default(value[key], inner)


def _type_name(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _has_type(value: object, wanted: str) -> bool:
    found = _type_name(value)
    return found == wanted or (found == "integer" and wanted == "number")


def _validate(value: object, schema: "Mapping[str, Any]", path: str) -> "Iterator[FieldError]":
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string"):
        wanted = ["integer", "string"]
    else:
        wanted = [schema["type"]] if "type" in schema else []
    if wanted and not any(_has_type(value, each) for each in wanted):
        name = _type_name(value)
        text = f'{path} in body must be of type {",".join(wanted)}: "{name}"'
        yield wrong_type(path, name, text)
        if not isinstance(value, dict | list):
            yield from _validate_enum(value, schema, path)
        return
    match value:
        case dict():
            yield from _validate_object(value, schema, path)
        case list():
            yield from _validate_list(value, schema, path)
        case str():
            yield from _validate_string(value, schema, path)
        case bool():
            pass
        case int() | float():
            yield from _validate_number(value, schema, path)
    yield from _validate_enum(value, schema, path)
    yield from _validate_combined(value, schema, path)


def _validate_enum(value: object, schema: "Mapping[str, Any]", path: str) -> "Iterator[FieldError]":
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported_value(path, value, schema["enum"])


def _validate_object(value: Json, schema: "Mapping[str, Any]", path: str) -> "Iterator[FieldError]":
    if (limit := schema.get("maxProperties")) is not None and len(value) > limit:
        yield too_many(path, len(value), limit)
    if (limit := schema.get("minProperties")) is not None and len(value) < limit:
        yield invalid_value(
            path, len(value), f"{path} in body should have at least {limit} properties"
        )
    for key in schema.get("required", ()):
        if key not in value:
            yield required(f"{path}.{key}" if path else key)
    for key, each in value.items():
        inner = _allowed(schema, key)
        if inner is not None:
            yield from _validate(each, inner, f"{path}.{key}" if path else key)


def _validate_list(
    value: list[Any], schema: "Mapping[str, Any]", path: str
) -> "Iterator[FieldError]":
    if (limit := schema.get("maxItems")) is not None and len(value) > limit:
        yield too_many(path, len(value), limit)
    if (limit := schema.get("minItems")) is not None and len(value) < limit:
        yield invalid_value(path, len(value), f"{path} in body should have at least {limit} items")
    items = schema.get("items", {})
    for index, each in enumerate(value):
        yield from _validate(each, items, f"{path}[{index}]")
    for index, duplicate in _duplicates(value, schema):
        yield duplicate_value(f"{path}[{index}]", duplicate)


def _duplicates(value: list[Any], schema: "Mapping[str, Any]") -> "Iterator[tuple[int, object]]":
    keys, items = shapes.list_keys(schema), schema.get("items", {})
    if not keys and not shapes.is_set(schema):
        return
    seen: set[str] = set()
    for index, each in enumerate(value):
        element = fields.item_element(each, keys, items) if keys else fields.member_element(each)
        if element in seen:
            yield index, msgspec.json.decode(element[2:])
        seen.add(element)


def _validate_string(value: str, schema: "Mapping[str, Any]", path: str) -> "Iterator[FieldError]":
    if (limit := schema.get("maxLength")) is not None and len(value) > limit:
        yield too_long(path, limit)
    if (limit := schema.get("minLength")) is not None and len(value) < limit:
        yield invalid_value(path, value, f"{path} in body should be at least {limit} chars long")
    if (pattern := schema.get("pattern")) is not None and not _compiled(pattern).search(value):
        yield invalid_value(path, value, f"{path} in body should match '{pattern}'")
    expression = _FORMATS.get(schema.get("format", ""))
    if expression is not None and not expression.match(value):
        yield wrong_type(
            path, value, f'{path} in body must be of type {schema["format"]}: "{value}"'
        )


def _validate_number(
    value: float, schema: "Mapping[str, Any]", path: str
) -> "Iterator[FieldError]":
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None:
        if schema.get("exclusiveMinimum") and value <= low:
            yield invalid_value(path, value, f"{path} in body should be greater than {low}")
        elif value < low:
            yield invalid_value(
                path, value, f"{path} in body should be greater than or equal to {low}"
            )
    if high is not None:
        if schema.get("exclusiveMaximum") and value >= high:
            yield invalid_value(path, value, f"{path} in body should be less than {high}")
        elif value > high:
            yield invalid_value(
                path, value, f"{path} in body should be less than or equal to {high}"
            )
    if (step := schema.get("multipleOf")) and value % step:
        yield invalid_value(path, value, f"{path} in body should be a multiple of {step}")
    bits = _INTEGER_BITS.get(schema.get("format", ""))
    if bits and not -(2**bits) <= value < 2**bits:
        text = f"Checked value must be of type integer with format {schema['format']} in {path}"
        yield invalid_value("<nil>", "", text)


def _validate_combined(
    value: object, schema: "Mapping[str, Any]", path: str
) -> "Iterator[FieldError]":
    for each in schema.get("allOf", ()):
        yield from _validate(value, each, path)
    if alternatives := schema.get("anyOf"):
        if all(list(_validate(value, each, path)) for each in alternatives):
            yield invalid_value(path, "", f'"{path}" must validate at least one schema (anyOf)')
    if alternatives := schema.get("oneOf"):
        fitting = sum(not list(_validate(value, each, path)) for each in alternatives)
        if fitting != 1:
            found = "none valid" if not fitting else f"{fitting} valid"
            yield invalid_value(
                path, "", f'"{path}" must validate one and only one schema (oneOf). Found {found}'
            )
    if (opposite := schema.get("not")) and not list(_validate(value, opposite, path)):
        yield invalid_value(path, "", f'"{path}" must not validate the schema (not)')


_TYPED: Final = {
    "integer": "numeric (int or float)",
    "number": "numeric (int or float)",
    "string": "string",
    "boolean": "boolean",
    "array": "list",
    "object": "map",
}


def _untyped(value: object, schema: "Mapping[str, Any]", path: str) -> "Iterator[str]":
    wanted = schema.get("type")
    if value is None or schema.get("x-kubernetes-int-or-string") or wanted is None:
        return
    found = _type_name(value)
    if not _has_type(value, wanted) and not {found, wanted} <= {"integer", "number"}:
        yield f"{path}: expected {_TYPED[wanted]}, got {found}"
    elif isinstance(value, dict):
        for key, each in value.items():
            inner = _allowed(schema, key)
            if inner is None:
                yield f"{path}.{key}: field not declared in schema"
            else:
                yield from _untyped(each, inner, f"{path}.{key}")
    elif isinstance(value, list):
        yield from _untyped_list(value, schema, path)


def _untyped_list(value: list[Any], schema: "Mapping[str, Any]", path: str) -> "Iterator[str]":
    items = schema.get("items", {})
    keys = shapes.list_keys(schema)
    for index, each in enumerate(value):
        yield from _untyped(each, items, f"{path}[{index}]")
        if keys and fields.item_element(each, keys, items) == "k:{}":
            names = msgspec.json.encode(list(keys)).decode()
            yield (
                f"{path}: element {index}: associative list with keys has an element that omits all "
                f"key fields {names} (and doesn't have default values for any key fields)"
            )
    for _, duplicate in _duplicates(value, schema):
        shown = msgspec.json.encode(duplicate).decode()
        yield f"{path}: duplicate entries for key [={shown}]"
