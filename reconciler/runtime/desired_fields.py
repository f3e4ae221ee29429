"""Comparison of a desired object with the live one: fields that the API server or others added are no difference."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from api.quantity import canonical_quantity

_AMOUNTS: Final = ("requests", "limits")
"""Their quantities are stored in another form than they may be written in."""


def first_difference(desired: Mapping[str, Any], shown: Mapping[str, Any]) -> str:
    """Return the path of a field of the desired object that the live one lacks or has otherwise; empty: there is none.

    `apiVersion` and `kind` do not count.
    """
    fields = {key: value for key, value in desired.items() if key not in {"apiVersion", "kind"}}
    return _difference(fields, shown, "").removeprefix(".")


def _difference(wanted: object, shown: object, path: str) -> str:
    """Return the path of the first difference.

    Items of keyed lists are found by their key, since an apply leaves those of others there; all other
    lists are one value.
    """
    match wanted, shown:
        case dict(), dict():
            pairs = [(f".{key}", value, shown.get(key)) for key, value in wanted.items()]
            if path.endswith(_AMOUNTS):
                pairs = [(key, _stored(value), amount) for key, value, amount in pairs]
        case list(), list():
            key = _key_of(wanted)
            if key is None:
                is_same = len(wanted) == len(shown) and not any(
                    _difference(item, other, "[]")
                    for item, other in zip(wanted, shown, strict=True)
                )
                return "" if is_same else path
            by_key = {item.get(key): item for item in shown}
            pairs = [(f"[{item[key]}]", item, by_key.get(item[key])) for item in wanted]
        case _:
            return "" if wanted == shown else path
    found = (_difference(value, other, path + key) for key, value, other in pairs)
    return next(filter(None, found), "")


def _stored(amount: object) -> object:
    """Return a quantity as the API server stores it."""
    try:
        return canonical_quantity(str(amount))
    except ValueError:
        return amount


def _key_of(items: Sequence[object]) -> str | None:
    """Return the merge key of a list's items; None for an atomic list."""
    for key in ("mountPath", "uid", "name"):
        if items and all(isinstance(item, dict) and key in item for item in items):
            return key
    return None
