"""A rule of the API server on an object of our kinds."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class CelRule:
    """One entry of `x-kubernetes-validations`, relative to the object that it is declared for.

    `field` is the subject of the message; empty, it is the object itself. The API server accepts
    no field of `metadata` there, so rules about the name say so in their message.
    """

    expression: str
    message: str
    field: str = ""
    reason: Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"] = (
        "FieldValueInvalid"
    )

    def to_schema(self) -> dict[str, Any]:
        entry = {"rule": self.expression, "message": self.message, "reason": self.reason}
        return entry | {"fieldPath": f".{self.field}"} if self.field else entry
