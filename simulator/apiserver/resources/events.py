"""Events: stored in the form of events.k8s.io/v1, served as core v1 too.

Other kinds have one form. Series, deprecated counters and sources are carried under the names that
the other form gives them.
"""

import re
from typing import Any, Final

from simulator.apiserver.errors import InvalidField, bad_request, invalid_value, required

Json = dict[str, Any]

# core v1 -> events.k8s.io/v1
_RENAMED: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_RENAMED_BACK: Final = {new: old for old, new in _RENAMED.items()}

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


def from_core(body: Json) -> Json:
    """Return a core v1 event in the stored form."""
    stored = {_RENAMED.get(key, key): value for key, value in body.items()}
    stored["apiVersion"] = "events.k8s.io/v1"
    return stored


def to_core(body: Json) -> Json:
    """Return a stored event in the form of core v1."""
    core = {_RENAMED_BACK.get(key, key): value for key, value in body.items()}
    core["apiVersion"] = "v1"
    core.setdefault("source", {})
    return core


def check_micro_time(kind: str, value: object) -> None:
    """Refuse a MicroTime without exactly six fraction digits, as the decoder does.

    Raises:
        ApiFault: 400.
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
        ApiFault: 400.
    """
    check_micro_time("Event", body.get("eventTime"))
    series = body.get("series")
    if isinstance(series, dict):
        check_micro_time("Event", series.get("lastObservedTime"))


def validate(body: Json, old: Json | None) -> list[InvalidField]:
    """Return what is wrong with an event in the stored form.

    Only what carries an `eventTime` is held to the rules: events of the older API have none.
    """
    if old is not None:
        return [
            invalid_value(shown, body.get(field), "field is immutable")
            for field, shown in _IMMUTABLE
            if body.get(field) != old.get(field)
        ]
    if "deprecatedFirstTimestamp" in body and "eventTime" not in body:
        return []
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
