"""`x-kubernetes-validations`: the CEL rules of a schema, evaluated for an object.

A rule that names `oldSelf` is a transition rule: it runs on updates only, and only if the old value
can be correlated, by field or by the keys of a list. As on the real server, other rules are skipped
if an update leaves the value unchanged. Fields with a `format` stay strings, and lists are compared
in order.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from simulator.apiserver import cel_evaluator
from simulator.apiserver.errors import (
    InvalidField,
    duplicate_value,
    forbidden_field,
    invalid_value,
    required,
)
from simulator.apiserver.schema import fields, list_types

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Json = dict[str, Any]

_BLOCKING: Final = frozenset(
    {
        "FieldValueRequired",
        "FieldValueNotSupported",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
"""With one of these, an object is too broken for rules to run on."""
NOT_CHECKED: Final = InvalidField(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation",
)
_OLD_SELF: Final = re.compile(r"\boldSelf\b")
_ABSENT: Final = object()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CelRules:
    """The rules of a schema and of its inner schemas; parts without rules are left out."""

    type_name: str = ""
    rules: "tuple[Mapping[str, Any], ...]" = ()
    properties: "Mapping[str, CelRules]" = field(default_factory=dict)
    values: "CelRules | None" = None
    """Values of a map."""
    items: "CelRules | None" = None
    item_schema: "Mapping[str, Any]" = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    @classmethod
    def from_schema(cls, schema: "Mapping[str, Any]") -> "CelRules | None":
        """Return the rules of a schema, or None without any."""
        rules = tuple(schema.get("x-kubernetes-validations") or ())
        inner = {
            key: found
            for key, item in (schema.get("properties") or {}).items()
            if (found := cls.from_schema(item)) is not None
        }
        values = _rules_of(schema.get("additionalProperties"))
        items = _rules_of(schema.get("items"))
        if not (rules or inner or values or items):
            return None
        return cls(
            type_name=schema.get("type", ""),
            rules=rules,
            properties=inner,
            values=values,
            items=items,
            item_schema=schema.get("items") or {},
            keys=list_types.list_keys(schema),
        )

    def key_of(self, item: object) -> str:
        """Return the key of a list item in both versions of the list; empty without keys."""
        return fields.item_element(item, self.keys, self.item_schema) if self.keys else ""


def _rules_of(schema: object) -> CelRules | None:
    return CelRules.from_schema(schema) if isinstance(schema, dict) else None


def validate_object(
    rules: CelRules, body: Json, old: Json | None, *, errors: "Sequence[InvalidField]"
) -> "Iterator[InvalidField]":
    """Yield the violated rules, given the object's errors against the rest of the schema."""
    if any(error.reason in _BLOCKING for error in errors):
        yield NOT_CHECKED
    else:
        before = _ABSENT if old is None else _root(old)
        yield from _validate(rules, _root(body), before, path="")


def _validate(
    rules: CelRules, value: object, old: object, *, path: str
) -> "Iterator[InvalidField]":
    for rule in rules.rules:
        is_transition = _OLD_SELF.search(rule["rule"]) is not None
        if (old is _ABSENT) if is_transition else (old == value):
            continue
        fault = _fault(rule, value, old)
        if fault is not None:
            at = f"{path}{rule.get('fieldPath', '')}".removeprefix(".")
            yield _error(rule, at or "<nil>", value=rules.type_name, fault=fault)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for key, item in value.items():
            inner = rules.properties.get(key, rules.values)
            if inner is not None and item is not None:
                at = f"{path}.{key}" if path else key
                yield from _validate(inner, item, before.get(key, _ABSENT), path=at)
    elif isinstance(value, list) and rules.items is not None:
        older = old if isinstance(old, list) and rules.keys else []
        by_key = {rules.key_of(item): item for item in older}
        for index, item in enumerate(value):
            current = by_key.get(rules.key_of(item), _ABSENT)
            yield from _validate(rules.items, item, current, path=f"{path}[{index}]")


def _fault(rule: "Mapping[str, Any]", value: object, old: object) -> str | None:
    """Return the message of a violated rule, or None."""
    message: str = rule.get("message") or f"failed rule: {rule['rule']}"
    variables = {"self": value} if old is _ABSENT else {"self": value, "oldSelf": old}
    try:
        return None if cel_evaluator.holds(rule["rule"], variables) else message
    except cel_evaluator.CelError as error:
        return f"{error} evaluating rule: {message}"


def _error(rule: "Mapping[str, Any]", path: str, *, value: str, fault: str) -> InvalidField:
    match rule.get("reason"):
        case "FieldValueForbidden":
            return forbidden_field(path, fault)
        case "FieldValueRequired":
            return required(path, fault)
        case "FieldValueDuplicate":
            return duplicate_value(path, value)
        case _:
            return invalid_value(path, value, fault)


def _root(body: Json) -> Json:
    """Return the object as rules of the root see it: with name and generateName as only metadata."""
    metadata = body.get("metadata") or {}
    named = {key: metadata[key] for key in ("name", "generateName") if key in metadata}
    return {**body, "metadata": named}
