"""Errors in the words of kube-apiserver.

`StatusError` ends a request; its `body` is the `Status` of the response. `InvalidField` is one line
of a 422. The texts were taken from kube-apiserver 1.36.3.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Json = dict[str, Any]
"""A JSON object. Kubernetes objects stay plain here: this server has no opinion about most kinds."""


class NamedResource(Protocol):
    """The names of a resource type, as far as messages need them."""

    @property
    def group(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def qualified_name(self) -> str:
        """Plural and group, such as `leases.coordination.k8s.io`."""


@final
class StatusError(Exception):
    """A refused request, with its status."""

    def __init__(
        self, status: int, reason: str, message: str, *, details: Json | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details

    @property
    def body(self) -> Json:
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.status
        return body


@final
@dataclass(frozen=True, slots=True)
class InvalidField:
    """One invalid field of an object."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def show(value: object) -> str:
    return msgspec.json.encode(value).decode()


def required(field: str, detail: str = "") -> InvalidField:
    return InvalidField(
        field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else "")
    )


def invalid_value(field: str, value: object, detail: str) -> InvalidField:
    return InvalidField(field, "FieldValueInvalid", f"Invalid value: {show(value)}: {detail}")


def wrong_type(field: str, value: object, detail: str) -> InvalidField:
    return InvalidField(field, "FieldValueTypeInvalid", f"Invalid value: {show(value)}: {detail}")


def unsupported_value(field: str, value: object, supported: "Iterable[object]") -> InvalidField:
    listed = ", ".join(show(item) for item in supported)
    return InvalidField(
        field,
        "FieldValueNotSupported",
        f"Unsupported value: {show(value)}: supported values: {listed}",
    )


def forbidden_field(field: str, detail: str) -> InvalidField:
    return InvalidField(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate_value(field: str, value: object) -> InvalidField:
    return InvalidField(field, "FieldValueDuplicate", f"Duplicate value: {show(value)}")


def too_long(field: str, limit: int) -> InvalidField:
    return InvalidField(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> InvalidField:
    return InvalidField(
        field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items"
    )


def _details(group: str, kind: str, name: str) -> Json:
    details: Json = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    return details


def not_found(resource: NamedResource, name: str) -> StatusError:
    return StatusError(
        404,
        "NotFound",
        f'{resource.qualified_name} "{name}" not found',
        details=_details(resource.group, resource.plural, name),
    )


def no_such_path() -> StatusError:
    return StatusError(
        404, "NotFound", "the server could not find the requested resource", details={}
    )


def method_not_allowed() -> StatusError:
    return StatusError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        details={},
    )


def already_exists(resource: NamedResource, name: str) -> StatusError:
    return StatusError(
        409,
        "AlreadyExists",
        f'{resource.qualified_name} "{name}" already exists',
        details=_details(resource.group, resource.plural, name),
    )


def conflict(kind: str, name: str, cause: str, *, group: str = "") -> StatusError:
    """Return a 409; `kind` is the plural, or `pods/binding` and the like."""
    resource = f"{kind}.{group}" if group else kind
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {resource} "{name}": {cause}',
        details=_details(group, kind, name),
    )


def stale(resource: NamedResource, name: str) -> StatusError:
    return conflict(
        resource.plural,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
        group=resource.group,
    )


def other_uid(resource: NamedResource, name: str, *, requested: object, actual: str) -> StatusError:
    """Return the 409 of a write that names a uid which the stored object does not have."""
    key = "/registry/" + "/".join(filter(None, (resource.group, resource.plural, name)))
    return conflict(
        resource.plural,
        name,
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {requested}, UID in object meta: {actual}",
        group=resource.group,
    )


def invalid(
    kind: str, name: str, errors: "Sequence[InvalidField]", *, group: str = ""
) -> StatusError:
    """Return a 422 that lists every error."""
    resource = f"{kind}.{group}" if group else kind
    lines = ", ".join(str(error) for error in errors)
    text = lines if len(errors) == 1 else f"[{lines}]"
    details = _details(group, kind, name)
    details["causes"] = [
        {"reason": error.reason, "message": error.message, "field": error.field} for error in errors
    ]
    return StatusError(422, "Invalid", f'{resource} "{name}" is invalid: {text}', details=details)


def invalid_object(
    resource: NamedResource, name: str, errors: "Sequence[InvalidField]"
) -> StatusError:
    # kube-apiserver names the older group of Event, which is empty.
    group = "" if resource.kind == "Event" else resource.group
    return invalid(resource.kind, name, errors, group=group)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def forbidden(
    resource: NamedResource, name: str, cause: str, *, causes: "Sequence[Json]" = ()
) -> StatusError:
    details = _details(resource.group, resource.plural, name)
    if causes:
        details["causes"] = list(causes)
    return StatusError(
        403,
        "Forbidden",
        f'{resource.qualified_name} "{name}" is forbidden: {cause}',
        details=details,
    )


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def too_large(limit_bytes: int) -> StatusError:
    return StatusError(
        413,
        "RequestEntityTooLarge",
        f"Request entity too large: limit is {limit_bytes}",
        details={},
    )


def unsupported_media_type(accepted: "Iterable[str]") -> StatusError:
    return StatusError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted),
    )


def rejected_patch() -> StatusError:
    """Return the error of a JSON patch that does not fit the object."""
    return StatusError(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
        details={},
    )


def internal(message: str) -> StatusError:
    return StatusError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        details={"causes": [{"message": message}]},
    )


def failed_without_reason(message: str) -> StatusError:
    """Return a 500 without a reason, as the server's plain errors are."""
    return StatusError(500, "", message)


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)
