"""JSON Patch (RFC 6902) operations, as the API server applies them.

Only `add` and `remove`. A `test` that fails, and an `add` under a parent that is missing, are an
internal error for the user, so the builders in `admission.pods.patch` create parents first.
`add` on a member that exists replaces it.
"""

from typing import Any

Operation = dict[str, Any]


def escape(token: str) -> str:
    """Return a key as it stands in a JSON pointer."""
    return token.replace("~", "~0").replace("/", "~1")


def add(path: str, value: object) -> Operation:
    """Return the operation that sets a member, or appends to a list where the path ends in `/-`."""
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Operation:
    """Return the operation that takes a member out; it must be there."""
    return {"op": "remove", "path": path}
