"""The API server's refusals as sentences, and the metadata of lists."""

from typing import TYPE_CHECKING, Final

import msgspec

from api.field_errors import UNDECODABLE
from api.meta import Model
from api.text import truncate
from kubectl_gpu.errors import (
    BadSelectorError,
    ChangeRefusedError,
    ForbiddenError,
    ListExpiredError,
    NotFoundError,
    UnreadableError,
)

if TYPE_CHECKING:
    from kube.resources import Resource

_LOCAL: Final = (":8080: connect: connection refused", "localhost:8080")
"""Where kubectl looks for an API server when it has no kubeconfig."""


class ListMetadata(Model, frozen=True):
    """`metadata` of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _AnyList(Model, frozen=True):
    metadata: ListMetadata = ListMetadata()


class _Status(Model, frozen=True):
    message: str = ""
    reason: str = ""


_LIST: Final = msgspec.json.Decoder(_AnyList)
_STATUS: Final = msgspec.json.Decoder(_Status)


def list_meta(body: bytes) -> ListMetadata:
    """Return the metadata of a page.

    Raises:
        UnreadableError: it is no list.
    """
    try:
        return _LIST.decode(body).metadata
    except UNDECODABLE as error:
        raise UnreadableError(f"the API server answered no list: {truncate(str(error))}") from error


def change_error(status: int, body: bytes, resource: "Resource", *, name: str) -> Exception:
    """Return what a refused or failed change means for the user."""
    if status in {401, 404} or status >= 500:
        return status_error(status, body, resource, name=name)
    return ChangeRefusedError(
        f"{resource.kind} {name} is not changed: {_message_of(body) or 'forbidden'}"
    )


def status_error(
    status: int, body: bytes, resource: "Resource | None", *, name: str = ""
) -> UnreadableError:
    """Return what an answer other than 200 means for the user."""
    message = _message_of(body)
    if status >= 500 and not body.lstrip().startswith(b"{"):
        # The words of kubectl proxy, or of something between it and the API server.
        return UnreadableError(_unreachable(message))
    subject = _subject(resource, name)
    match status:
        case 400:
            return BadSelectorError(f"{subject} cannot be selected so: {message or 'bad request'}")
        case 401:
            return UnreadableError(
                "the API server accepts no credentials of this user (401 Unauthorized): log in again,"
                " or name another --context"
            )
        case 403:
            return ForbiddenError(
                f"{subject} may not be read: {message or 'forbidden'}; docs/kubectl-gpu.md lists the"
                " rights that each verb needs"
            )
        case 404 if name and _STATUS_REASON_OF_AN_OBJECT in body:
            return NotFoundError(f"there is no {subject}: {message}")
        case 404:
            return NotFoundError(
                f"the API server does not serve {subject}: is the GPU control plane installed there?"
            )
        case 410:
            return ListExpiredError(f"{subject} changed while they were read")
        case _:
            return UnreadableError(
                f"the API server answered {status} when asked for {subject}: {message or 'no reason'}"
            )


_STATUS_REASON_OF_AN_OBJECT: Final = b'"name"'
"""Details of a Status that is about an object; that of a path without a kind names none."""


def _subject(resource: "Resource | None", name: str) -> str:
    if resource is None:
        return "this path"
    return f"{resource.kind} {name}" if name else f"{resource.plural} of {resource.api_version}"


def _unreachable(message: str) -> str:
    if any(part in message for part in _LOCAL):
        return (
            "kubectl has no kubeconfig, and no API server answers at localhost:8080: set KUBECONFIG,"
            " or name a file with --kubeconfig"
        )
    return f"the API server cannot be reached: {message or 'no reason is known'}"


def _message_of(body: bytes) -> str:
    """Return the message of a Status, or the text as it is."""
    try:
        text = _STATUS.decode(body).message
    except UNDECODABLE:
        text = body.decode(errors="replace").strip()
    return truncate(" ".join(text.split()), 512)
