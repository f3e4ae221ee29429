"""Rules of a structural schema: violations by an object, and configurations that cannot be applied.

Pure functions over plain values. CEL rules are in `cel_rules`. Patterns run on Python's engine, not
on RE2.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from simulator.apiserver.errors import (
    InvalidField,
    duplicate_value,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported_value,
    wrong_type,
)
from simulator.apiserver.schema import fields
from simulator.apiserver.schema import list_types as shapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Json = dict[str, Any]

FREE: Final[Json] = {"x-kubernetes-preserve-unknown-fields": True}
"""The schema of what may be anything."""
ROOT_FIELDS: Final = frozenset({"metadata", "apiVersion", "kind"})
_DATE_TIME: Final = re.compile(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")
_UUID: Final = re.compile(r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$")
_FORMATS: Final[dict[str, re.Pattern[str]]] = {"date-time": _DATE_TIME, "uuid": _UUID}
_INTEGER_BITS: Final = {"int32": 31, "int64": 63}


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def keeps_unknown(schema: "Mapping[str, Any]") -> bool:
    """Return whether fields outside the schema are kept."""
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def allowed_field(schema: "Mapping[str, Any]", key: str) -> "Mapping[str, Any] | None":
    """Return the schema of a field, the free schema if any field is allowed, None for an unknown one."""
    if key in schema.get("properties", {}):
        found: Mapping[str, Any] = schema["properties"][key]
        return found
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        return more
    if more or keeps_unknown(schema):
        return FREE
    if schema.get("x-kubernetes-embedded-resource") and key in ROOT_FIELDS:
        return FREE
    return None


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


def _has_type(value: object, allowed: str) -> bool:
    found = _type_name(value)
    return found == allowed or (found == "integer" and allowed == "number")


def validate(value: object, schema: "Mapping[str, Any]", path: str) -> "Iterator[InvalidField]":
    """Yield the errors of a value; `path` names it in the messages."""
    if value is None and schema.get("nullable"):
        return
    fault = _type_fault(value, schema, path)
    if fault is None:
        yield from _validate_content(value, schema, path)
        yield from _validate_enum(value, schema, path)
        yield from _validate_combined(value, schema, path)
        return
    yield fault
    if not isinstance(value, dict | list):
        yield from _validate_enum(value, schema, path)


def _type_fault(value: object, schema: "Mapping[str, Any]", path: str) -> InvalidField | None:
    if schema.get("x-kubernetes-int-or-string"):
        allowed = ["integer", "string"]
    else:
        allowed = [schema["type"]] if "type" in schema else []
    if not allowed or any(_has_type(value, item) for item in allowed):
        return None
    name = _type_name(value)
    return wrong_type(path, name, f'{path} in body must be of type {",".join(allowed)}: "{name}"')


def _validate_content(
    value: object, schema: "Mapping[str, Any]", path: str
) -> "Iterator[InvalidField]":
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
        case _:
            pass


def _validate_enum(
    value: object, schema: "Mapping[str, Any]", path: str
) -> "Iterator[InvalidField]":
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported_value(path, value, schema["enum"])


def _validate_object(
    value: Json, schema: "Mapping[str, Any]", path: str
) -> "Iterator[InvalidField]":
    if (limit := schema.get("maxProperties")) is not None and len(value) > limit:
        yield too_many(path, len(value), limit)
    if (limit := schema.get("minProperties")) is not None and len(value) < limit:
        yield invalid_value(
            path, len(value), f"{path} in body should have at least {limit} properties"
        )
    for key in schema.get("required", ()):
        if key not in value:
            yield required(f"{path}.{key}" if path else key)
    for key, item in value.items():
        inner = allowed_field(schema, key)
        if inner is not None:
            yield from validate(item, inner, f"{path}.{key}" if path else key)


def _validate_list(
    value: list[Any], schema: "Mapping[str, Any]", path: str
) -> "Iterator[InvalidField]":
    if (limit := schema.get("maxItems")) is not None and len(value) > limit:
        yield too_many(path, len(value), limit)
    if (limit := schema.get("minItems")) is not None and len(value) < limit:
        yield invalid_value(path, len(value), f"{path} in body should have at least {limit} items")
    items = schema.get("items", {})
    for index, item in enumerate(value):
        yield from validate(item, items, f"{path}[{index}]")
    for index, duplicate in _duplicates(value, schema):
        yield duplicate_value(f"{path}[{index}]", duplicate)


def _duplicates(value: list[Any], schema: "Mapping[str, Any]") -> "Iterator[tuple[int, object]]":
    keys, items = shapes.list_keys(schema), schema.get("items", {})
    if not keys and not shapes.is_set(schema):
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        element = fields.item_element(item, keys, items) if keys else fields.member_element(item)
        if element in seen:
            yield index, msgspec.json.decode(element[2:])
        seen.add(element)


def _validate_string(
    value: str, schema: "Mapping[str, Any]", path: str
) -> "Iterator[InvalidField]":
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
) -> "Iterator[InvalidField]":
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
) -> "Iterator[InvalidField]":
    for item in schema.get("allOf", ()):
        yield from validate(value, item, path)
    alternatives = schema.get("anyOf") or ()
    if alternatives and all(
        list(validate(value, alternative, path)) for alternative in alternatives
    ):
        yield invalid_value(path, "", f'"{path}" must validate at least one schema (anyOf)')
    if alternatives := schema.get("oneOf"):
        fitting = sum(not list(validate(value, alternative, path)) for alternative in alternatives)
        if fitting != 1:
            found = "none valid" if not fitting else f"{fitting} valid"
            yield invalid_value(
                path, "", f'"{path}" must validate one and only one schema (oneOf). Found {found}'
            )
    if (opposite := schema.get("not")) and not list(validate(value, opposite, path)):
        yield invalid_value(path, "", f'"{path}" must not validate the schema (not)')


_TYPED: Final = {
    "integer": "numeric (int or float)",
    "number": "numeric (int or float)",
    "string": "string",
    "boolean": "boolean",
    "array": "list",
    "object": "map",
}


def typed_faults(value: object, schema: "Mapping[str, Any]", path: str) -> "Iterator[str]":
    """Yield why a configuration cannot be applied: wrong types, unknown fields, duplicate keys."""
    allowed = schema.get("type")
    if value is None or schema.get("x-kubernetes-int-or-string") or allowed is None:
        return
    found = _type_name(value)
    if not _has_type(value, allowed) and not {found, allowed} <= {"integer", "number"}:
        yield f"{path}: expected {_TYPED[allowed]}, got {found}"
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = allowed_field(schema, key)
            if inner is None:
                yield f"{path}.{key}: field not declared in schema"
            else:
                yield from typed_faults(item, inner, f"{path}.{key}")
    elif isinstance(value, list):
        yield from _untyped_list(value, schema, path)


def _untyped_list(value: list[Any], schema: "Mapping[str, Any]", path: str) -> "Iterator[str]":
    items = schema.get("items", {})
    keys = shapes.list_keys(schema)
    for index, item in enumerate(value):
        yield from typed_faults(item, items, f"{path}[{index}]")
        if keys and fields.item_element(item, keys, items) == "k:{}":
            names = msgspec.json.encode(list(keys)).decode()
            yield (
                f"{path}: element {index}: associative list with keys has an element that omits all "
                f"key fields {names} (and doesn't have default values for any key fields)"
            )
    for _, duplicate in _duplicates(value, schema):
        quoted = msgspec.json.encode(duplicate).decode()
        yield f"{path}: duplicate entries for key [={quoted}]"
