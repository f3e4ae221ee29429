"""Events of events.k8s.io/v1: times and validation. The older form of core/v1 is not served."""

import re
from typing import Any, Final

from simulator.apiserver.errors import InvalidField, bad_request, invalid_value, required

Json = dict[str, Any]

_MICRO_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$")
_IMMUTABLE: Final = (
    ("regarding", "involvedObject"),
    ("reason", "reason"),
    ("note", "message"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
)
_NOTE_BYTES: Final = 1024
_WORD_BYTES: Final = 128


def check_micro_time(kind: str, value: object) -> None:
    """Refuse a MicroTime without exactly six fraction digits, as the decoder does.

    Raises:
        StatusError: 400.
    """
    if value is None or (isinstance(value, str) and _MICRO_TIME.match(value)):
        return
    zone = "Z" if str(value).endswith("Z") else ""
    raise bad_request(
        f'{kind} in version "v1" cannot be handled as a {kind}: parsing time "{value}" as '
        f'"2006-01-02T15:04:05.000000Z07:00": cannot parse "{zone}" as ".000000"'
    )


def check_times(body: Json) -> None:
    """Refuse an event whose times cannot be decoded.

    Raises:
        StatusError: 400.
    """
    check_micro_time("Event", body.get("eventTime"))
    series = body.get("series")
    if isinstance(series, dict):
        check_micro_time("Event", series.get("lastObservedTime"))


def validate(body: Json, old: Json | None) -> list[InvalidField]:
    """Return the errors of an event, or of the change from the older one."""
    if old is not None:
        return [
            invalid_value(path, body.get(field), "field is immutable")
            for field, path in _IMMUTABLE
            if body.get(field) != old.get(field)
        ]
    if not body.get("eventTime"):
        return [required("eventTime"), *_validate_type(body)]
    errors = [
        required(field)
        for field in ("reportingController", "reportingInstance", "action", "reason")
        if not body.get(field)
    ]
    errors += [
        invalid_value(field, body[field], f"can have at most {_WORD_BYTES} characters")
        for field in ("action", "reason", "reportingInstance")
        if len(body.get(field, "")) > _WORD_BYTES
    ]
    if len(body.get("note", "").encode()) > _NOTE_BYTES:
        errors.append(
            invalid_value("message", body["note"], f"can have at most {_NOTE_BYTES} characters")
        )
    return errors + _validate_type(body)


def _validate_type(body: Json) -> list[InvalidField]:
    kind = body.get("type", "")
    if kind in {"Normal", "Warning"}:
        return []
    return [invalid_value("type", kind, f"has invalid value: {kind}")]
