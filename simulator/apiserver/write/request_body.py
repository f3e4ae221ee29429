"""Request bodies: decoding, and checks against the path.

Bodies are JSON only; protobuf and YAML get the 415 or 400 of an unreadable body.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.foreign.core import Node, Pod
from api.meta import Model, ObjectMeta
from simulator.apiserver.apply.application import without_nulls
from simulator.apiserver.errors import (
    bad_request,
    invalid,
    invalid_object,
    invalid_value,
    unsupported_value,
)

if TYPE_CHECKING:
    from simulator.apiserver.resource_types import ResourceType
    from simulator.apiserver.webhooks.chain import User

Json = dict[str, Any]

_QUOTED_BYTES: Final = 30
FIELD_VALIDATIONS: Final = ("Strict", "Warn", "Ignore")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTarget:
    """The object or collection of a path."""

    resource: "ResourceType"
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The user of a write, and its options."""

    user: "User"
    manager: str
    """Owns the fields that an update changes."""
    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)
    """Grows while the request is worked on; sent with the answer."""


def check_dry_run(values: list[str], options_kind: str) -> bool:
    """Return whether the request is a dry run.

    Raises:
        StatusError: 422, another value than All.
    """
    if not values or values == [""]:
        return False
    if values != ["All"]:
        error = unsupported_value("dryRun", values, ("All",))
        raise invalid(options_kind, "", [error], group="meta.k8s.io")
    return True


def decode_json(raw: bytes, kind: str) -> Json:
    """Return the JSON object of a body.

    Raises:
        StatusError: 400.
    """
    try:
        body = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        quoted = raw[:_QUOTED_BYTES].decode(errors="replace")
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get "
            f"version/kind; json parse error: {error} ({quoted})"
        ) from error
    if not isinstance(body, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get "
            f"version/kind; json parse error: the body is not a JSON object ({raw[:2].hex()})"
        )
    return body


def decode_object(raw: bytes, target: RequestTarget) -> Json:
    """Return the object of a POST or PUT.

    Raises:
        StatusError: 400 or 422, it is not an object of the path's kind, name and namespace.
    """
    resource = target.resource
    body = decode_json(raw, resource.kind)
    if resource.is_custom and not body.get("kind"):
        quoted = raw[:_QUOTED_BYTES].decode(errors="replace")
        raise bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' "
            f"is missing in '{quoted}'"
        )
    return adopt(body, target)


def adopt(body: Json, target: RequestTarget) -> Json:
    """Return a decoded body with kind, version, metadata and namespace of the path.

    Raises:
        StatusError: 400 or 422, the body says something else.
    """
    resource = target.resource
    if body.get("apiVersion", resource.api_version) != resource.api_version:
        raise bad_request(
            f"the API version in the data ({body['apiVersion']}) does not match the expected API "
            f"version ({resource.api_version})"
        )
    if body.get("kind", resource.kind) != resource.kind:
        raise _other_kind(body, resource)
    metadata = {} if body.get("metadata") is None else body["metadata"]
    if not isinstance(metadata, dict):
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: metadata is no object"
        )
    if not resource.is_custom:
        body = without_nulls(body)
    metadata = without_nulls(metadata)
    _check_types({**body, "metadata": metadata}, resource)
    metadata.pop("managedFields", None)
    metadata.pop("selfLink", None)
    for key in ("labels", "annotations", "finalizers", "ownerReferences"):
        if key in metadata and not metadata[key]:
            del metadata[key]
    _check_identity(metadata, target)
    if target.namespace:
        metadata["namespace"] = target.namespace
    else:
        metadata.pop("namespace", None)
    body["kind"], body["apiVersion"] = resource.kind, resource.api_version
    body["metadata"] = metadata
    return body


class _Object(Model, frozen=True):
    """The minimum that the rest of the server needs of every object."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None
    status: Any = None


_MODELS: Final[dict[str, type[Model]]] = {"Pod": Pod, "Node": Node}


def _check_types(body: Json, resource: "ResourceType") -> None:
    """Refuse a body with a value of the wrong type in a field that this server reads."""
    kind = resource.kind
    try:
        msgspec.convert(body, _MODELS.get(kind, _Object))
    except msgspec.ValidationError as error:
        raise bad_request(
            f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {error}'
        ) from error
    if resource.is_custom:
        return
    for key in ("spec", "status"):
        if not isinstance(body.get(key, {}), dict):
            raise bad_request(
                f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {key} is no '
                "object"
            )


def _other_kind(body: Json, resource: "ResourceType") -> Exception:
    kind = body["kind"]
    if not resource.is_custom:
        return bad_request(
            f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"unknown conversion"
        )
    name = (body.get("metadata") or {}).get("name", "")
    error = invalid_value("kind", kind, f"must be {resource.kind}")
    return invalid(kind, name, [error], group=resource.group)


def _check_identity(metadata: Json, target: RequestTarget) -> None:
    namespace = metadata.get("namespace", "")
    if target.namespace and namespace and namespace != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if not target.name:
        return
    name = metadata.setdefault("name", target.name)
    if name != target.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )


def drop_unknown_fields(body: Json, resource: "ResourceType", caller: Caller) -> None:
    """Prune a custom resource in place, and refuse or warn as requested.

    Raises:
        StatusError: 400, unknown fields under strict validation.
    """
    if resource.schema is None:
        return
    unknown = [f'unknown field "{path}"' for path in resource.schema.prune(body)]
    if not unknown or caller.field_validation == "Ignore":
        return
    if caller.field_validation == "Strict":
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: strict decoding error: {', '.join(unknown)}"
        )
    caller.warnings.extend(item for item in unknown if item not in caller.warnings)


def check_version_is_named(body: Json, resource: "ResourceType", name: str) -> None:
    """Refuse a PUT without a resourceVersion if the kind requires one.

    Raises:
        StatusError: 422.
    """
    if resource.needs_version_to_update and not body["metadata"].get("resourceVersion"):
        error = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(resource.plural, name, [error], group=resource.group)


def check_uid(body: Json, old: Json, resource: "ResourceType") -> None:
    """Refuse a patch that changes the uid.

    Raises:
        StatusError: 422.
    """
    uid = body["metadata"].get("uid")
    if uid and uid != old["metadata"]["uid"]:
        error = invalid_value("metadata.uid", uid, "field is immutable")
        raise invalid_object(resource, old["metadata"]["name"], [error])
