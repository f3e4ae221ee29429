"""Hypothesis strategies of the objects that a definition's schema accepts."""

from typing import Any

from hypothesis import strategies as st

TIMES = st.just("2026-11-23T00:00:00Z")


def objects_of(
    schema: dict[str, Any], strategies: dict[str, st.SearchStrategy[Any]], path: str = ""
) -> st.SearchStrategy[Any]:
    """Return objects with any of the optional fields; `strategies` replaces those at a path such as `.spec.image`."""
    if path in strategies:
        return strategies[path]
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "object":
            return _fields(schema, strategies, path)
        case "array":
            return _lists(schema["items"], objects_of(schema["items"], strategies, f"{path}[]"))
        case "integer":
            return st.integers(min_value=0, max_value=2**31)
        case "boolean":
            return st.booleans()
        case _:
            return _texts(schema)


def _fields(
    schema: dict[str, Any], strategies: dict[str, st.SearchStrategy[Any]], path: str
) -> st.SearchStrategy[Any]:
    if "additionalProperties" in schema:
        values = objects_of(schema["additionalProperties"], strategies, f"{path}[]")
        return st.dictionaries(st.sampled_from(["a", "b.c"]), values, max_size=2)
    required = set(schema.get("required", ()))
    fields = {
        name: objects_of(nested, strategies, f"{path}.{name}")
        for name, nested in schema.get("properties", {}).items()
    }
    return st.fixed_dictionaries(
        {name: value for name, value in fields.items() if name in required},
        optional={name: value for name, value in fields.items() if name not in required},
    )


def _lists(schema: dict[str, Any], items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    # Every controller keys conditions by their type; a schema without list keys does not say it.
    if "type" in schema.get("required", ()):
        return st.lists(items, max_size=2, unique_by=lambda item: item["type"])
    return st.lists(items, max_size=2)


def _texts(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    if schema.get("format") == "date-time":
        return TIMES
    return st.sampled_from(["A", "Running", "Extracted"])
