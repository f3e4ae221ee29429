"""JSON patch and merge patch: (object, patch) -> new object; the object given is never changed.

Strategic merge patch is not supported: neither the control plane nor the demo sends one.
"""

from typing import Any

import jsonpatch
import jsonpointer

from simulator.apiserver.errors import bad_request, rejected_patch

Json = dict[str, Any]


def json_patch(body: Json, patch: object) -> Json:
    """Return the object after a list of RFC 6902 operations.

    Raises:
        StatusError: 400 where it is no such list, 422 where an operation does not fit the object.
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
        PatchError: they are no operations, or one does not fit.
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
        StatusError: 400, the patch is not an object.
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
