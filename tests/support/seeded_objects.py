"""Objects that a definition's schema accepts, and broken copies of them; the same for the same seed.

Faster than `schema_objects`, whose strategies shrink: thousands of objects of a schema with a thousand fields
take seconds. Nothing is chosen with regard to any other schema than the one given.
"""

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
Choices = Mapping[str, Sequence[Any]]
"""Name of a field, or its holder's name and its own as `a.b` -> values that the schema accepts there."""

KEYS = ("a", "example.com/b", "c.d")
TEXTS = ("", "a", "A b", "true")
_BITS = {"int32": 31, "int64": 63}
_OTHER_TYPES: dict[str, tuple[Any, ...]] = {
    "object": ("text", 7, True, ["text"]),
    "array": ("text", 7, {"a": "b"}),
    "string": (7, True, ["text"], {"a": "b"}, 1.5),
    "integer": ("7", True, 1.5, [7], {"a": 7}),
    "boolean": ("true", 1, [True], {"a": True}),
}
_NO_INT_OR_STRING = (True, 1.5, [7], {"a": 7})


@dataclass(frozen=True, kw_only=True)
class SeededObjects:
    """Objects with any of the optional fields, each with the given likelihood."""

    rng: random.Random
    choices: Choices
    likelihood: float = 0.4
    nulls: float = 0.02
    """Of the fields that are left out; the API server drops them."""

    def value(self, schema: Schema, path: str = "") -> Any:
        *_, holder, name = ("", *path.split("."))
        for key in (f"{holder}.{name}", name):
            if key in self.choices:
                return copy.deepcopy(self.rng.choice(self.choices[key]))
        if "enum" in schema:
            return self.rng.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                return self._object(schema, path)
            case "array":
                return [self.value(schema["items"], f"{path}[]") for _ in range(self._few())]
            case "boolean":
                return self.rng.random() < 0.5
            case "integer":
                return self._integer(schema)
            case "string":
                assert "pattern" not in schema, f"no choices for {path}: {schema['pattern']}"
                return self.rng.choice(TEXTS)
            case _:
                raise AssertionError(f"no choices for {path}")

    def _object(self, schema: Schema, path: str) -> dict[str, Any]:
        if "additionalProperties" in schema:
            keys = self.rng.sample(KEYS, self._few())
            inner = schema["additionalProperties"]
            return {key: self.value(inner, f"{path}[]") for key in keys}
        required = schema.get("required", ())
        found: dict[str, Any] = {}
        for key, item in schema.get("properties", {}).items():
            if key in required or self.rng.random() < self.likelihood:
                found[key] = self.value(item, f"{path}.{key}" if path else key)
            elif self.rng.random() < self.nulls:
                found[key] = None
        return found

    def _integer(self, schema: Schema) -> int:
        low = schema.get("minimum", -(2 ** _BITS[schema["format"]]) if "format" in schema else -7)
        high = schema.get("maximum", 2 ** _BITS.get(schema.get("format", ""), 53) - 1)
        return self.rng.choice((low, low + 1, 1, 300, high))

    def _few(self) -> int:
        return self.rng.randrange(3)


@dataclass(frozen=True, kw_only=True)
class Damage:
    """One change that makes an object invalid."""

    path: tuple[str | int, ...]
    value: Any
    """What takes the place; `REMOVED` without anything."""

    def applied(self, body: dict[str, Any]) -> dict[str, Any]:
        damaged = copy.deepcopy(body)
        *way, last = self.path
        holder: Any = damaged
        for step in way:
            holder = holder[step]
        if self.value is REMOVED:
            del holder[last]
        else:
            holder[last] = self.value
        return damaged


REMOVED = object()


def damages(schema: Schema, value: Any, path: tuple[str | int, ...] = ()) -> Iterator[Damage]:
    """Yield every change of one kind at one place: another type, an unknown or missing field, beyond a limit."""
    if path:
        yield from (Damage(path=path, value=item) for item in _bad_values(schema))
    if isinstance(value, dict) and "properties" in schema:
        yield Damage(path=(*path, "unknownField"), value="text")
        for key in schema.get("required", ()):
            # A field with a default comes back.
            if key in value and "default" not in schema["properties"][key]:
                yield Damage(path=(*path, key), value=REMOVED)
        for key, inner in value.items():
            yield from damages(schema["properties"][key], inner, (*path, key))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from damages(schema["additionalProperties"], inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield Damage(path=(*path, index), value=None)
            yield from damages(schema["items"], inner, (*path, index))


def _bad_values(schema: Schema) -> Iterator[Any]:
    if schema.get("x-kubernetes-int-or-string"):
        yield from _NO_INT_OR_STRING
    else:
        yield from _OTHER_TYPES[schema["type"]]
    if "enum" in schema:
        yield "none of these"
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maxLength" in schema:
        yield "a" * (schema["maxLength"] + 1)
    if bits := _BITS.get(schema.get("format", "")):
        yield 2**bits
    if schema.get("format") == "date-time":
        yield "yesterday"
    if "pattern" in schema:
        # No pattern of these kinds is matched by a mark of punctuation.
        yield "!"
