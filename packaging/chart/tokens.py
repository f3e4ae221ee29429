"""Tokens in place of values: words that pass through the builders and become Helm's expressions.

A token goes wherever text goes, also into the middle of a sentence or of a CEL expression. In place
of a map or a list stands one with a token as its only member, which builders can copy and merge.
"""

import re
import types
import typing
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, final

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from collections.abc import Mapping

Model = TypeVar("Model", bound=BaseModel)

TOKEN: Final = re.compile(r"zzhelm\d{4}zz")
"""Sorted after the names of our objects, as the default names are."""


class Kind(Enum):
    """What stands in the place of a token."""

    TEXT = "text"
    NUMBER = "number"
    LINES = "lines"
    """A text of several lines."""
    BLOCK = "block"
    """Members of a map or a list."""


@final
@dataclass(frozen=True, slots=True)
class Expression:
    """Helm's expression behind a token."""

    kind: Kind
    text: str


@final
class Tokens:
    """The tokens of one chart; the same expression always has the same token."""

    def __init__(self) -> None:
        self._tokens: dict[Expression, str] = {}

    def text(self, expression: str) -> str:
        return self._token(Kind.TEXT, expression)

    def number(self, expression: str) -> int:
        """Return the token of a number: in truth a text, with which no builder counts."""
        return typing.cast("int", self._token(Kind.NUMBER, expression))

    def lines(self, expression: str) -> str:
        return self._token(Kind.LINES, expression)

    def mapping(self, expression: str) -> dict[str, str]:
        return {self._token(Kind.BLOCK, expression): ""}

    def sequence(self, expression: str) -> tuple[Any, ...]:
        return (self._token(Kind.BLOCK, expression),)

    def expressions(self) -> dict[str, Expression]:
        return {token: expression for expression, token in self._tokens.items()}

    def values(
        self, model: "type[Model]", fixed: "Mapping[str, object]", path: str = ""
    ) -> "Model":
        """Return a model whose fields are tokens, but for conditions.

        `fixed` has what builders compare, by the path of the field; other booleans are true.
        """
        fields: dict[str, Any] = {}
        for name, field in model.model_fields.items():
            place = f"{path}{name}"
            fields[name] = (
                fixed[place] if place in fixed else self._value(field.annotation, place, fixed)
            )
        return model.model_construct(**fields)

    def _value(self, annotation: object, path: str, fixed: "Mapping[str, object]") -> object:
        expression = value_expression(path)
        origin = typing.get_origin(annotation) or annotation
        if isinstance(origin, type) and issubclass(origin, BaseModel):
            return self.values(origin, fixed, f"{path}.")
        kinds: dict[object, Any] = {
            bool: lambda _: True,
            int: self.number,
            str: self.text,
            Literal: self.text,
            dict: self.mapping,
            tuple: self.sequence,
        }
        if isinstance(origin, types.UnionType) or origin not in kinds:
            raise TypeError(f"value {path} is of type {annotation}, which has no token")
        return kinds[origin](expression)

    def _token(self, kind: Kind, expression: str) -> str:
        key = Expression(kind, expression)
        return self._tokens.setdefault(key, f"zzhelm{len(self._tokens):04}zz")


def value_expression(path: str) -> str:
    """Return Helm's name of a value: `server.node_selector` is `.Values.server.nodeSelector`."""
    return ".Values." + ".".join(to_camel(part) for part in path.split("."))
