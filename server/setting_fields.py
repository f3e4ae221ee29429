"""Every setting of a model as a flat list: its name in files, flags and the environment, its type and its default.

The list is read from the model's JSON schema, so that parsing, help, complaints and reference agree.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, final

VARIABLE_PREFIX: Final = "GPU_CONTROL_PLANE_"
Schema = Mapping[str, Any]


class ValueForm(Enum):
    """How a setting is written as text."""

    TEXT = "text"
    LIST = "list"
    """Words separated by commas, or JSON."""
    MAPPING = "mapping"
    """`key=value` separated by commas, or JSON."""
    JSON = "json"
    """JSON only: objects, and lists of objects."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SettingField:
    """One setting, or one section of settings."""

    path: tuple[str, ...]
    form: ValueForm
    expects: str
    """Its type in words, such as `integer, 1 to 65535`."""
    default: object
    description: str
    is_section: bool = False
    is_optional: bool = False
    """No value is a value of it."""

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + "__".join(self.path).upper()

    @property
    def default_text(self) -> str:
        """The default as a flag would have it; empty for none."""
        match self.default:
            case None | "":
                return ""
            case bool():
                return str(self.default).lower()
            case dict():
                return ",".join(f"{key}={value}" for key, value in self.default.items())
            case list():
                plain = all(isinstance(item, str | int | float) for item in self.default)
                return ",".join(map(str, self.default)) if plain else json.dumps(self.default)
            case float():
                return f"{self.default:g}"
            case _:
                return str(self.default)


def setting_fields(schema: Schema) -> list[SettingField]:
    """Return the settings of a model: those of a section before the sections in it."""
    return list(_fields(schema, schema.get("$defs", {}), ()))


def _fields(schema: Schema, definitions: Schema, path: tuple[str, ...]) -> Iterator[SettingField]:
    properties = schema.get("properties", {}).items()
    sections = {name for name, given in properties if "properties" in _resolved(given, definitions)}
    for name, given in sorted(properties, key=lambda property_: property_[0] in sections):
        kind = _resolved(given, definitions)
        field = SettingField(
            path=(*path, name),
            form=_form(kind, definitions),
            expects="mapping of settings" if name in sections else _expectation(kind, definitions),
            default=None if name in sections else given.get("default"),
            description=" ".join((given.get("description") or kind.get("description", "")).split()),
            is_section=name in sections,
            is_optional=_NULL in given.get("anyOf", ()),
        )
        yield field
        if field.is_section:
            yield from _fields(kind, definitions, field.path)


_NULL: Final = {"type": "null"}


def _resolved(schema: Schema, definitions: Schema) -> Schema:
    """Follow a reference, and leave out that there may be no value."""
    if "$ref" in schema:
        found: Schema = definitions[schema["$ref"].rpartition("/")[2]]
        return found
    choices = [item for item in schema.get("anyOf", ()) if item != _NULL]
    return _resolved(choices[0], definitions) if len(choices) == 1 else schema


def _form(kind: Schema, definitions: Schema) -> ValueForm:
    match kind.get("type"):
        case "array":
            items = _resolved(kind.get("items", {}), definitions)
            return ValueForm.JSON if items.get("type") in {"array", "object"} else ValueForm.LIST
        case "object":
            values = _resolved(_values_of(kind), definitions)
            is_flat = "properties" not in kind and values.get("type") not in {"array", "object"}
            return ValueForm.MAPPING if is_flat else ValueForm.JSON
        case _:
            return ValueForm.TEXT


def _values_of(kind: Schema) -> Schema:
    values = kind.get("additionalProperties")
    return values if isinstance(values, Mapping) else {}


def _expectation(kind: Schema, definitions: Schema) -> str:
    kind = _resolved(kind, definitions)
    if words := kind.get("enum", [kind[key] for key in ("const",) if key in kind]):
        return _alternatives([str(item) for item in words])
    match kind.get("type"):
        case "integer" | "number" as number:
            return f"{number}{_bounds(kind)}"
        case "boolean":
            return "true or false"
        case "array":
            least = kind.get("minItems", 0)
            items = _expectation(kind.get("items", {}), definitions)
            return f"list of {items}" + (f", at least {least}" if least else "")
        case "object":
            return "object" if "properties" in kind else "mapping"
        case "string":
            text = "path" if kind.get("format") == "path" else "text"
            text += f" that matches {kind['pattern']}" if "pattern" in kind else ""
            return f"{text}, not empty" if kind.get("minLength") else text
        case [*types]:
            return " or ".join(_expectation({**kind, "type": item}, definitions) for item in types)
        case _:
            return "value"


def _alternatives(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _bounds(kind: Schema) -> str:
    low, high, above = (kind.get(key) for key in ("minimum", "maximum", "exclusiveMinimum"))
    if low is not None and high is not None:
        return f", {low:g} to {high:g}"
    if above is not None:
        return f" above {above:g}"
    return f", at least {low:g}" if low is not None else ""
