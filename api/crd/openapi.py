"""Structural OpenAPI schemas of our kinds, generated from the models.

The API server accepts a subset of JSON Schema: no references, no unions, no nulls beside a type.
Anything else is refused or silently dropped. This module therefore supports exactly the types that
the models use, and raises an error for any other. Optional fields are left out of `required` and
are not nullable, because the API server drops a null.
"""

import copy
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import NODEFAULT, Struct
from msgspec import inspect as types

from api.crd import cel as rules
from api.crd import docstrings
from api.meta import SparseModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.meta import Model

Schema = dict[str, Any]


class UnsupportedShapeError(TypeError):
    """A model has a type without an equivalent in a structural schema."""


def crd_schema(kind: "type[Model]") -> Schema:
    """Return the `openAPIV3Schema` of a kind, whose model has `metadata`, and `spec`, `status` or both.

    The models leave defaults out when they encode; the schema adds the same defaults again,
    so that operators see the effective values. A `status` that was never written stays absent.
    """
    schema = _struct(kind)
    properties = schema["properties"]
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    if "spec" in properties:
        schema["properties"]["spec"] = properties["spec"]
    if "status" in properties:
        properties["status"].pop("default", None)
        schema["properties"]["status"] = properties["status"]
    return schema


def _struct(cls: type[Struct]) -> Schema:
    info = types.type_info(cls)
    if not isinstance(info, types.StructType):
        raise UnsupportedShapeError(f"{cls.__name__} is no model")
    documented = docstrings.field_descriptions(cls)
    schema: Schema = {"type": "object"}
    if description := docstrings.class_description(cls):
        schema["description"] = description
    required = {field.encode_name for field in info.fields if field.required}
    required |= set(rules.REQUIRED.get(cls, ()))
    if required:
        schema["required"] = sorted(required)
    properties = {
        field.encode_name: _field(cls, field, documented.get(field.name)) for field in info.fields
    }
    if properties:
        schema["properties"] = properties
    if cls in rules.RULES:
        schema["x-kubernetes-validations"] = [rule.to_schema() for rule in rules.RULES[cls]]
    return schema


def _field(cls: type[Struct], field: types.Field, documented: str | None) -> Schema:
    text_enum = rules.TEXT_ENUMS.get((cls, field.name))
    schema = _enum(text_enum) if text_enum is not None else _schema(field.type)
    if documented:
        members = schema.get("description", "") if schema.keys() & {"enum", "anyOf"} else ""
        schema["description"] = f"{documented}\n\n{members}" if members else documented
    if schema.get("type") == "array" and (cls, field.name) in rules.ATOMIC_LISTS:
        schema["x-kubernetes-list-type"] = "atomic"
    return _merged({**schema, **_default(schema, field)}, rules.LIMITS.get((cls, field.name), {}))


def _merged(schema: Schema, keywords: "Mapping[str, Any]") -> Schema:
    """Return the schema with the keywords, at any depth; None removes one."""
    found = dict(schema)
    for name, value in keywords.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, dict) and isinstance(found.get(name), dict):
            found[name] = _merged(found[name], value)
        else:
            found[name] = value
    return found


def _default(schema: Schema, field: types.Field) -> Schema:
    match field.default:
        case Enum() as member:
            return {"default": member.value}
        case bool() | int() | str() as value if value != "":
            return {"default": value}
    if isinstance(field.default, SparseModel):
        return {}
    if not isinstance(field.default, Struct) and field.default_factory is NODEFAULT:
        return {}
    # Written out, since rules judge a default before the defaults inside it are filled in.
    nested = {
        name: copy.deepcopy(property_["default"])
        for name, property_ in schema.get("properties", {}).items()
        if "default" in property_
    }
    return {"default": nested} if nested else {}


def _schema(info: types.Type) -> Schema:
    match info:
        case types.Metadata():
            return _merged(_schema(info.type), info.extra_json_schema or {})
        case types.UnionType():
            return _union(info)
        case types.StructType():
            return _struct(info.cls)
        case types.ListType():
            return _list(info)
        case types.DictType(value_type=types.AnyType()):
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case types.DictType(key_type=types.StrType(min_length=None, max_length=None, pattern=None)):
            return {"type": "object", "additionalProperties": _schema(info.value_type)} | _bounds(
                minProperties=info.min_length, maxProperties=info.max_length
            )
        case _:
            return _scalar(info)


def _union(info: types.UnionType) -> Schema:
    match [member for member in info.types if not isinstance(member, types.NoneType)]:
        case [only]:
            return _schema(only)
        case [types.EnumType() as words, types.IntType() as number]:
            return _word_or_number(words, number)
        case [types.IntType() as number, types.StrType() as text]:
            return _int_or_string(number, text.pattern)
        case _:
            raise UnsupportedShapeError(f"this union of types cannot be structural: {info}")


def _word_or_number(words: types.EnumType, number: types.IntType) -> Schema:
    enum = _scalar(words)
    schema = _int_or_string(number, f"^({'|'.join(enum['enum'])})$")
    return schema | {name: enum[name] for name in ("description",) if name in enum}


def _int_or_string(number: types.IntType, pattern: str | None) -> Schema:
    """Return Kubernetes' IntOrString; bounds bind numbers only, and the pattern words only."""
    bounds = _scalar(number)
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        **_bounds(pattern=pattern),
        **{name: bounds[name] for name in ("minimum", "maximum") if name in bounds},
    }


def _list(info: types.ListType) -> Schema:
    items = _schema(info.item_type)
    schema: Schema = {"type": "array", "items": items}
    schema |= _bounds(minItems=info.min_length, maxItems=info.max_length)
    if items["type"] != "object":
        return schema | {"x-kubernetes-list-type": "set"}
    cls = info.item_type.cls if isinstance(info.item_type, types.StructType) else None
    keys = rules.LIST_KEYS.get(cls) if cls is not None else None
    if keys is None:
        return schema | {"x-kubernetes-list-type": "atomic"}
    return schema | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def _scalar(info: types.Type) -> Schema:
    match info:
        case types.BoolType():
            return {"type": "boolean"}
        case types.IntType(ge=minimum, le=maximum, gt=None, lt=None, multiple_of=None):
            return {"type": "integer", "format": "int64"} | _bounds(
                minimum=minimum, maximum=maximum
            )
        case types.StrType(min_length=shortest, max_length=longest, pattern=pattern):
            return {"type": "string"} | _bounds(
                minLength=shortest, maxLength=longest, pattern=pattern
            )
        case types.EnumType(cls=cls):
            return _enum(cls)
        case types.LiteralType(values=values) if all(isinstance(v, str) for v in values):
            return {"type": "string", "enum": sorted(values)}
    raise UnsupportedShapeError(f"no structural schema is known for {info}")


def _enum(cls: type[Enum]) -> Schema:
    members: Sequence[Enum] = rules.ENUM_MEMBERS.get(cls, tuple(cls))
    documented = docstrings.field_descriptions(cls)
    lines = [docstrings.class_description(cls)] + [
        f"{member.value}: {documented[member.name]}"
        for member in members
        if member.name in documented
    ]
    description = "\n\n".join(line for line in lines if line)
    schema: Schema = {"type": "string", "enum": [member.value for member in members]}
    return schema | ({"description": description} if description else {})


def _bounds(**keywords: object) -> Schema:
    return {name: value for name, value in keywords.items() if value is not None}
