"""LIST: selection, pages and the list's version.

A page after the first shows the collection as it was at the first page's version, as long as the
history reaches back that far; then the continue token has expired (410).
"""

import base64
import binascii
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, final

import msgspec

from simulator.apiserver.errors import StatusError, bad_request, expired

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulator.apiserver.resource_types import ResourceType
    from simulator.apiserver.store.objects import Collection, Stored
    from simulator.apiserver.store.selectors import ListSelection

Json = dict[str, Any]


@final
class _Token(msgspec.Struct, frozen=True):
    version: int
    namespace: str
    name: str


def _decode_token(text: str) -> _Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Token)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error


def _encode_token(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()


def encode_list(
    collection: "Collection",
    resource: "ResourceType",
    selection: "ListSelection",
    *,
    current: int,
    query: "Mapping[str, str]",
) -> bytes:
    """Return the JSON of the list.

    Raises:
        StatusError: 400 for a broken query, 410 for a continue token that is too old, 504 for a
            version that does not exist yet.
    """
    limit = _parse_limit(query.get("limit", ""))
    token = _decode_token(query["continue"]) if query.get("continue") else None
    check_version(query.get("resourceVersion", ""), current)
    version = current if token is None else token.version
    ordered = collection.ordered_at(version, selection.namespace)
    if ordered is None:
        raise expired(
            "The provided continue parameter is too old to display a consistent list result. You "
            "must start a new list without the continue parameter."
        )
    start = ("", "") if token is None else (token.namespace, token.name)
    remaining = ordered[bisect_right(ordered, start, key=_key_of) :]
    selected = (
        remaining
        if selection.is_everything
        else [stored for stored in remaining if selection.matches(stored.body)]
    )
    page = selected[:limit] if limit else selected
    metadata: Json = {"resourceVersion": str(version)}
    if len(page) < len(selected):
        metadata["continue"] = _encode_token(_Token(version, *page[-1].key))
        if selection.is_everything:
            metadata["remainingItemCount"] = len(selected) - len(page)
    head = {"kind": resource.kind + "List", "apiVersion": resource.api_version}
    # Items of built-in kinds carry no kind and apiVersion in a list, custom resources do.
    prefix = 0 if resource.is_custom else len(_head_of(resource))
    items = b",".join(
        encoded if not prefix else b"{" + encoded[prefix:]
        for encoded in (stored.encoded for stored in page)
    )
    return msgspec.json.encode({**head, "metadata": metadata})[:-1] + b',"items":[' + items + b"]}"


def _head_of(resource: "ResourceType") -> bytes:
    head = msgspec.json.encode({"kind": resource.kind, "apiVersion": resource.api_version})
    return head[:-1] + b","


def _key_of(stored: "Stored") -> tuple[str, str]:
    return stored.key


def _parse_limit(text: str) -> int:
    if not text:
        return 0
    if not text.isdecimal():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def check_version(text: str, current: int) -> int:
    """Return the version that a query names; 0 for none.

    Raises:
        StatusError: 500 where it is no number (as the real server answers), 504 where it is in the
            future.
    """
    if not text:
        return 0
    if not text.isdecimal():
        raise StatusError(
            500,
            "",
            f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": '
            "invalid syntax",
        )
    if int(text) > current:
        raise StatusError(
            504,
            "Timeout",
            f"Timeout: Too large resource version: {text}, current: {current}",
            details={
                "causes": [
                    {
                        "reason": "ResourceVersionTooLarge",
                        "message": "Too large resource version",
                    }
                ],
                "retryAfterSeconds": 1,
            },
        )
    return int(text)
