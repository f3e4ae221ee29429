"""JSON patch, merge patch and strategic merge patch: (object, patch) -> new object.

The object given is never changed. Strategic merge knows the keyed lists of `shapes` and the
directives `$patch` and `$deleteFromPrimitiveList`; `$setElementOrder` and `$retainKeys` only order
and prune what kubectl could have sent otherwise, and are ignored.
"""

from typing import TYPE_CHECKING, Any

import jsonpatch
import jsonpointer

from simulator.apiserver.errors import StatusError, bad_request, rejected_patch
from simulator.apiserver.schema import list_types as shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]


def json_patch(body: Json, patch: object) -> Json:
    """Return the object after a list of RFC 6902 operations.

    Raises:
        ApiFault: 400 where it is no such list, 422 where an operation does not fit the object.
    """
    if not isinstance(patch, list):
        kind = "object" if isinstance(patch, dict) else type(patch).__name__
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {kind} into Go value of type "
            "[]handlers.jsonPatchOp"
        )
    try:
        patched = apply_operations(body, patch)
    except PatchError as error:
        raise rejected_patch() from error
    if not isinstance(patched, dict):
        raise rejected_patch()
    return patched


class PatchError(ValueError):
    """An operation of a JSON patch is malformed or does not fit the document."""


def apply_operations(body: Json, operations: object) -> object:
    """Return the document after the operations.

    Raises:
        PatchRefused: they are no operations, or one does not fit.
    """
    try:
        if not isinstance(operations, list):
            raise PatchError("the patch is not a list of operations")
        return jsonpatch.JsonPatch(operations).apply(body)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise PatchError(str(error)) from error
    except (KeyError, TypeError, IndexError) as error:
        # The library lets these through where a path runs into a scalar or a null.
        raise PatchError(str(error)) from error


def merge_patch(body: Json, patch: object) -> Json:
    """Return the object after an RFC 7386 merge patch.

    Raises:
        ApiFault: 400, the patch is not an object.
    """
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: the patch is not a JSON object")
    merged = _merge(body, patch)
    assert isinstance(merged, dict)
    return merged


def _merge(target: object, patch: object) -> object:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def strategic_merge(body: Json, patch: object, shape: "Mapping[str, Any]") -> Json:
    """Return the object after a strategic merge patch.

    Raises:
        ApiFault: 400, the patch is not an object or a list item lacks its merge key.
    """
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: the patch is not a JSON object")
    return _merge_object(body, patch, shape)


def _merge_object(target: Json, patch: Json, shape: "Mapping[str, Any]") -> Json:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    merged = dict(target)
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            merged[name] = [each for each in merged.get(name) or [] if each not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_value(merged.get(key), value, shapes.child(shape, key))
    return merged


def _merge_value(target: object, patch: object, shape: "Mapping[str, Any]") -> object:
    if isinstance(patch, dict):
        return _merge_object(target if isinstance(target, dict) else {}, patch, shape)
    if isinstance(patch, list):
        live = target if isinstance(target, list) else []
        if keys := shapes.list_keys(shape):
            return _merge_list(live, patch, keys[0], item_shape=shapes.item(shape))
        if shapes.is_set(shape):
            return live + [each for each in patch if each not in live]
    return patch


def _merge_list(
    target: list[Any], patch: list[Any], key: str, *, item_shape: "Mapping[str, Any]"
) -> list[Any]:
    merged = {each.get(key): each for each in target}
    replaces = False
    for each in patch:
        directive = each.get("$patch")
        if directive == "replace" and key not in each:
            replaces = True
            continue
        if key not in each:
            raise _missing_key(key, each)
        if directive == "delete":
            merged.pop(each[key], None)
        else:
            merged[each[key]] = _merge_object(merged.get(each[key], {}), each, item_shape)
    if replaces:
        return [each for each in patch if "$patch" not in each]
    return list(merged.values())


def _missing_key(key: str, item: object) -> StatusError:
    return bad_request(f"map: {item} does not contain declared merge key: {key}")
