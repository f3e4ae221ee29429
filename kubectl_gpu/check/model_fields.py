"""The fields of a kind by its model. Definitions are built from sources, which an archive of the plugin does not have."""

from typing import TYPE_CHECKING, Any

from msgspec import inspect as types

if TYPE_CHECKING:
    from api.meta import Model


def fields_of_model(kind: "type[Model]") -> set[str]:
    """Return the paths of all fields of a kind but those of its metadata, as its definition has them."""
    found = _paths(types.type_info(kind), "")
    return {path for path in found if not path.startswith("metadata")}


def fields_of_schema(schema: Any, path: str = "") -> set[str]:  # noqa: ANN401  # JSON
    """Return the paths of all fields of an OpenAPI schema; what is no schema has none."""
    if not isinstance(schema, dict):
        return set()
    found: set[str] = set()
    properties = schema.get("properties")
    for name, inner in (properties if isinstance(properties, dict) else {}).items():
        found |= {f"{path}{name}"} | fields_of_schema(inner, f"{path}{name}.")
    return found | fields_of_schema(schema.get("items"), path)


def _paths(info: types.Type, path: str) -> set[str]:
    found: set[str] = set()
    match info:
        case types.Metadata(type=inner) | types.ListType(item_type=inner):
            found = _paths(inner, path)
        case types.UnionType(types=several):
            for item in several:
                found |= _paths(item, path)
        case types.StructType(fields=fields):
            for field in fields:
                name = f"{path}{field.encode_name}"
                found |= {name} | _paths(field.type, f"{name}.")
        case _:
            pass
    return found
