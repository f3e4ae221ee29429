"""Decoding of an object with several invalid fields, which names all of them.

msgspec stops at the first error, so an operator would learn of the next one only after fixing it. This walks the
same models and limits. Invalid values are left out of the result, so that rules about the rest still apply.
"""

import functools
import re
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import inspect as types

from api.field_errors import FieldError
from api.kinds.autoscaling import AMOUNT_PATTERN, QUANTITY_PATTERN, SHAPE_NAME_PATTERN
from api.kinds.device_selector import PCI_ID_PATTERN
from api.meta import Model
from api.mig.profile import MIG_PROFILE_PATTERN
from api.quantity import DURATION_PATTERN
from api.text import listed, truncate

if TYPE_CHECKING:
    from collections.abc import Sequence

M = TypeVar("M", bound=Model)

_PATTERN_NAMES: Final = {
    PCI_ID_PATTERN: "four hex digits without 0x, such as 10de",
    MIG_PROFILE_PATTERN: "a MIG profile such as 1g.10gb",
    DURATION_PATTERN: "a duration such as 90s, 2m or 1h30m",
    AMOUNT_PATTERN: "an amount of money such as 12.50, without a currency",
    QUANTITY_PATTERN: "a quantity such as 96, 3500m or 1500Gi",
    SHAPE_NAME_PATTERN: "a name of lower-case letters, digits and dashes, such as a100-8",
    "^[^/]+/[^/]+$": "<namespace>/<name>",
    "^[0-9]+\\.[0-9]+$": "a version such as 8.0",
}
"""Pattern of a model -> its name in messages."""

_INVALID: Final = object()
"""Stands for a value that is left out."""


def read(value: object, model: type[M], path: str) -> tuple[M, list[FieldError]]:
    """Return the object without its invalid values, and every error.

    Args:
        value: JSON as Python values.
        model: its model, of which every field has a default.
        path: path of the value, for the errors.
    """
    reader = _Reader()
    clean = reader.read(value, _info_of(model), path)
    return msgspec.convert({} if clean is _INVALID else clean, model), reader.faults


@functools.cache
def _info_of(model: type[Model]) -> types.Type:
    """Return msgspec's description of a model; it takes milliseconds at each call, so it is cached."""
    return types.type_info(model)


class _Reader:
    """One walk over an object and its model, side by side."""

    def __init__(self) -> None:
        self.faults: list[FieldError] = []

    def read(self, value: object, info: types.Type, path: str) -> object:
        """Return the value as the model takes it, or `_INVALID`."""
        match info:
            case types.Metadata(type=inner):
                return self.read(value, inner, path)
            case types.UnionType(types=members):
                return None if value is None else self.read(value, _type_for(value, members), path)
            case types.StructType() if isinstance(value, dict):
                return self._read_struct(value, info, path)
            case types.ListType() if isinstance(value, list):
                return self._read_list(value, info, path)
            case types.DictType(value_type=item) if isinstance(value, dict):
                found = {
                    key: self.read(entry, item, f"{path}[{truncate(key)}]")
                    for key, entry in value.items()
                }
                return {key: entry for key, entry in found.items() if entry is not _INVALID}
            case _:
                return self._read_scalar(value, info, path)

    def _read_struct(self, value: dict[str, object], info: types.StructType, path: str) -> object:
        clean: dict[str, object] = {}
        for field in info.fields:
            name = field.encode_name
            if name not in value:
                if field.required:
                    self.faults.append(FieldError(f"{path}.{name}", "is required"))
                    return _INVALID
                continue
            entry = self.read(value[name], field.type, f"{path}.{name}")
            if entry is not _INVALID:
                clean[name] = entry
            elif field.required:
                return _INVALID
        return clean

    def _read_list(self, value: list[object], info: types.ListType, path: str) -> list[object]:
        if info.max_length is not None and len(value) > info.max_length:
            text = f"has {len(value)} items, at most {info.max_length} are possible"
            self.faults.append(FieldError(path, text))
        found = [
            self.read(item, info.item_type, f"{path}[{number}]")
            for number, item in enumerate(value[: info.max_length])
        ]
        return [item for item in found if item is not _INVALID]

    def _read_scalar(self, value: object, info: types.Type, path: str) -> object:
        text = _scalar_fault(value, info)
        if text is None:
            return value
        self.faults.append(FieldError(path, text))
        return _INVALID


def _type_for(value: object, members: "Sequence[types.Type]") -> types.Type:
    """Return the type of a value that may be null, and may be a number or text; no model has another union."""
    named = [member for member in members if not isinstance(member, types.NoneType)]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    of_kind = types.IntType if is_number else types.StrType
    return (
        named[0] if len(named) == 1 else next(item for item in named if isinstance(item, of_kind))
    )


def _scalar_fault(value: object, info: types.Type) -> str | None:
    match info:
        case types.StrType() if isinstance(value, str):
            return _text_fault(value, info)
        case types.IntType() if isinstance(value, int) and not isinstance(value, bool):
            return _number_fault(value, info)
        case types.BoolType() if isinstance(value, bool):
            return None
        case types.EnumType(cls=cls) if isinstance(value, str):
            values = [member.value for member in cls]
            return None if value in values else f"{_quoted(value)} is none of {listed(values, 16)}"
        case _:
            return f"{_quoted(value)} is not {_kind_of(info)}"


def _text_fault(value: str, info: types.StrType) -> str | None:
    if info.min_length is not None and len(value) < info.min_length:
        return "must not be empty"
    if info.max_length is not None and len(value) > info.max_length:
        return f"has {len(value)} characters, at most {info.max_length} are possible"
    if info.pattern is not None and re.search(info.pattern, value) is None:
        return f"{_quoted(value)} is not {_PATTERN_NAMES.get(info.pattern, f'text like {info.pattern}')}"
    return None


def _number_fault(value: int, info: types.IntType) -> str | None:
    if info.ge is not None and value < info.ge:
        return f"{value} is less than {info.ge}"
    if info.le is not None and value > info.le:
        return f"{value} is more than {info.le}"
    return None


def _quoted(value: object) -> str:
    return truncate(msgspec.json.encode(value).decode(), 64)


def _kind_of(info: types.Type) -> str:
    match info:
        case types.StrType() | types.EnumType():
            return "text"
        case types.IntType():
            return "a whole number"
        case types.BoolType():
            return "true or false"
        case types.ListType():
            return "a list"
        case _:
            return "an object"
