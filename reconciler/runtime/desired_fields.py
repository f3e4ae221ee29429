"""Comparison of a desired object with the live one: fields that the API server or others added are no difference."""

from collections.abc import Mapping, Sequence
from typing import Any


def has_fields(desired: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    """Say whether a live object has every field of the desired one, but for `apiVersion` and `kind`."""
    fields = {key: value for key, value in desired.items() if key not in {"apiVersion", "kind"}}
    return _is_within(fields, shown)


def _is_within(wanted: object, shown: object) -> bool:
    """Say whether the live value has every desired field.

    Items of keyed lists are found by their key, since an apply leaves those of others there; all other
    lists are one value.
    """
    match wanted, shown:
        case dict(), dict():
            return all(
                key in shown and _is_within(value, shown[key]) for key, value in wanted.items()
            )
        case list(), list():
            key = _key_of(wanted)
            if key is None:
                return len(wanted) == len(shown) and all(map(_is_within, wanted, shown))
            by_key = {one.get(key): one for one in shown}
            return all(_is_within(one, by_key.get(one[key])) for one in wanted)
        case _:
            return wanted == shown


def _key_of(items: Sequence[object]) -> str | None:
    """Return the merge key of a list's items; None for an atomic list."""
    for key in ("mountPath", "uid", "name"):
        if items and all(isinstance(one, dict) and key in one for one in items):
            return key
    return None
