"""Write the TypeScript types of what the console's page reads.

  python -m typescript.row_types FILE

`console.rows` says what is sent, and msgspec says how: names in camelCase, fields with their default left out. Words that
rows have as plain text, such as a device's look, come from the enums of the code that decides.
"""

import ast
import inspect
import sys
from enum import Enum
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Final

import msgspec

import console.rows
from console.rows import SCHEMA
from inventory.display_state import DisplayState
from pool.reservations.reservation import End
from pool.what_if.explanation import UnitWaitReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEAD: Final = "// Made from console/rows.py by `make console`.\n"
_SIMPLE: Final[dict[type[msgspec.inspect.Type], str]] = {
    msgspec.inspect.BoolType: "boolean",
    msgspec.inspect.FloatType: "number",
    msgspec.inspect.IntType: "number",
    msgspec.inspect.NoneType: "null",
    msgspec.inspect.StrType: "string",
}


def row_types() -> str:
    """Return the text of the module."""
    words = {
        "DisplayState": [state.word for state in DisplayState],
        "UnitWaitReason": [reason.value for reason in UnitWaitReason],
        "ReservationEnd": [end.value for end in End],
    }
    parts = [
        _HEAD + f'export const SCHEMA = "{SCHEMA}";\n',
        *(_words(name, values) for name, values in words.items()),
        *(_declaration(kind) for kind in _kinds()),
    ]
    return "\n".join(parts)


def _kinds() -> "Iterator[type[Enum] | type[msgspec.Struct]]":
    """Yield the enums and structs of the rows in the order in which they are written."""
    for kind in vars(console.rows).values():
        if not inspect.isclass(kind) or kind.__module__ != console.rows.__name__:
            continue
        if issubclass(kind, Enum) or (issubclass(kind, msgspec.Struct) and kind.__struct_fields__):
            yield kind


def _declaration(kind: type[Enum] | type[msgspec.Struct]) -> str:
    if issubclass(kind, Enum):
        return _comment(kind.__doc__) + _words(kind.__name__, [str(item.value) for item in kind])
    return _interface(kind)


def _words(name: str, words: "Iterable[str]") -> str:
    union = " | ".join(f'"{word}"' for word in words)
    return f"export type {name} = {union};\n"


def _interface(kind: type[msgspec.Struct]) -> str:
    described = msgspec.inspect.type_info(kind)
    assert isinstance(described, msgspec.inspect.StructType)
    meanings = _field_meanings(kind)
    lines = [
        _comment(meanings.get(field.name), indent="  ")
        + f"  readonly {field.encode_name}{'' if field.required else '?'}: {_type(_sent(field))};\n"
        for field in described.fields
    ]
    return f"{_comment(kind.__doc__)}export interface {kind.__name__} {{\n{''.join(lines)}}}\n"


def _sent(field: msgspec.inspect.Field) -> msgspec.inspect.Type:
    """Return the type of values that are sent: None is left out where it is the default."""
    kind = field.type
    if field.default is not None or not isinstance(kind, msgspec.inspect.UnionType):
        return kind
    left = tuple(type_ for type_ in kind.types if not isinstance(type_, msgspec.inspect.NoneType))
    return left[0] if len(left) == 1 else msgspec.inspect.UnionType(left)


def _type(kind: msgspec.inspect.Type) -> str:
    match kind:
        case msgspec.inspect.UnionType():
            return " | ".join(_type(type_) for type_ in kind.types)
        case msgspec.inspect.VarTupleType():
            return f"readonly {_type(kind.item_type)}[]"
        case msgspec.inspect.DictType():
            return f"Readonly<Record<{_type(kind.key_type)}, {_type(kind.value_type)}>>"
        case msgspec.inspect.EnumType() | msgspec.inspect.StructType():
            return kind.cls.__name__
        case _:
            return _SIMPLE[type(kind)]


def _field_meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the strings below fields: field -> text."""
    (definition,) = ast.parse(dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = text
            case _:
                pass
    return found


def _comment(text: str | None, *, indent: str = "") -> str:
    if not text:
        return ""
    return f"{indent}/** {' '.join(text.split())} */\n"


if __name__ == "__main__":
    (_path,) = sys.argv[1:]
    Path(_path).write_text(row_types(), encoding="utf-8")
