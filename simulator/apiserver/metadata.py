"""Rules for `metadata` of every kind.

`name` rules: most names are DNS subdomains, a namespace's name is a DNS label.
"""

import re
import secrets
import uuid
from typing import TYPE_CHECKING, Any, Final

from simulator.apiserver.errors import (
    InvalidField,
    forbidden_field,
    invalid_value,
    other_uid,
    required,
    stale,
)

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Mapping

    from simulator.apiserver.resource_types import ResourceType
    from simulator.apiserver.store.objects import Stored

Json = dict[str, Any]

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_NAME_PART: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = rf"({_NAME_PART})?"
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
    f"validation is '{_SUBDOMAIN}')"
)
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must "
    "start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for "
    f"validation is '{_LABEL}')"
)
_NAME_PART_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_NAME_PART}')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    f"'12345', regex used for validation is '{_VALUE}')"
)
_MAX_NAME: Final = 253
_MAX_LABEL: Final = 63
_MAX_ANNOTATION_BYTES: Final = 256 * 1024
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_KEPT: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "namespace",
    "generateName",
)
"""What an update cannot change."""

_subdomain = re.compile(_SUBDOMAIN)
_label = re.compile(_LABEL)
_name_part = re.compile(_NAME_PART)
_value = re.compile(_VALUE)


def timestamp(now: "dt.datetime") -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def fill_new(body: Json, resource: "ResourceType", now: str) -> None:
    """Set name, uid, creation time and generation of a new object, in place."""
    metadata = body["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        suffix = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
        # The real server shortens the prefix so that the name stays within 63 characters.
        prefix = metadata["generateName"][: _MAX_LABEL - _SUFFIX_LENGTH]
        metadata["name"] = prefix + suffix
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now
    metadata.pop("deletionTimestamp", None)
    metadata.pop("deletionGracePeriodSeconds", None)
    metadata.pop("resourceVersion", None)
    metadata.pop("generation", None)
    if resource.has_generation:
        metadata["generation"] = 1


def keep_system_fields(body: Json, old: Json) -> None:
    """Restore the fields that an update cannot change, in place."""
    metadata, before = body["metadata"], old["metadata"]
    for key in _KEPT:
        if key in before:
            metadata[key] = before[key]
        else:
            metadata.pop(key, None)


def check_preconditions(body: Json, stored: "Stored", resource: "ResourceType") -> None:
    """Refuse an update whose uid or version differs from the stored object's.

    Raises:
        StatusError: 409.
    """
    metadata = body["metadata"]
    actual = stored.body["metadata"]
    if metadata.get("uid") and metadata["uid"] != actual["uid"]:
        raise other_uid(resource, actual["name"], requested=metadata["uid"], actual=actual["uid"])
    check_version(body, stored, resource)


def check_version(body: Json, stored: "Stored", resource: "ResourceType") -> None:
    """Refuse an update of another version than the stored one; no version means any.

    Raises:
        StatusError: 409.
    """
    requested = body["metadata"].get("resourceVersion")
    if requested and requested != str(stored.version):
        raise stale(resource, stored.body["metadata"]["name"])


def validate(body: Json, resource: "ResourceType", old: Json | None) -> "Iterator[InvalidField]":
    """Yield the errors of the metadata."""
    metadata = body["metadata"]
    if old is None:
        yield from _validate_name(metadata, resource)
    else:
        yield from _validate_deleting(metadata, old["metadata"])
    for key, value in _strings(metadata, "labels").items():
        yield from _validate_key(key, "metadata.labels")
        if len(value) > _MAX_LABEL:
            yield invalid_value("metadata.labels", value, "must be no more than 63 bytes")
        if not _value.fullmatch(value):
            yield invalid_value("metadata.labels", value, _VALUE_TEXT)
    annotations = _strings(metadata, "annotations")
    for key in annotations:
        yield from _validate_key(key.lower(), "metadata.annotations")
    if sum(len(key) + len(value) for key, value in annotations.items()) > _MAX_ANNOTATION_BYTES:
        yield InvalidField(
            "metadata.annotations",
            "FieldValueTooLong",
            f"Too long: may not be more than {_MAX_ANNOTATION_BYTES} bytes",
        )


def _strings(metadata: Json, field: str) -> "Mapping[str, str]":
    return metadata.get(field) or {}


def _validate_name(metadata: Json, resource: "ResourceType") -> "Iterator[InvalidField]":
    if resource.group == "rbac.authorization.k8s.io":
        # Any path segment will do, such as `system:node`.
        return
    pattern, text = (
        (_label, _LABEL_TEXT)
        if resource.plural == "namespaces"
        else (
            _subdomain,
            _SUBDOMAIN_TEXT,
        )
    )
    prefix = metadata.get("generateName", "")
    # The prefix may end in what a name may not end in, but for a dot.
    if prefix and not pattern.fullmatch(prefix.removesuffix("-") + ("a" if prefix == "-" else "")):
        yield invalid_value("metadata.generateName", prefix, text)
    name = metadata.get("name", "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif len(name) > _MAX_NAME:
        yield invalid_value("metadata.name", name, f"must be no more than {_MAX_NAME} bytes")
    elif not pattern.fullmatch(name):
        yield invalid_value("metadata.name", name, text)


def _validate_key(key: str, field: str) -> "Iterator[InvalidField]":
    prefix, slash, name = key.rpartition("/")
    if slash and not _subdomain.fullmatch(prefix):
        yield invalid_value(field, key, f"prefix part {_SUBDOMAIN_TEXT}")
    if not _name_part.fullmatch(name):
        yield invalid_value(field, key, _NAME_PART_TEXT)
    elif len(name) > _MAX_LABEL:
        yield invalid_value(field, key, "name part must be no more than 63 bytes")


def _validate_deleting(metadata: Json, before: Json) -> "Iterator[InvalidField]":
    if not before.get("deletionTimestamp"):
        return
    added = set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ())
    if added:
        listed = ", ".join(f'"{item}"' for item in sorted(added))
        yield forbidden_field(
            "metadata.finalizers",
            "no new finalizers can be added if the object is being deleted, found new finalizers "
            f"[]string{{{listed}}}",
        )
