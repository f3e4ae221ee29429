"""AdmissionReview (admission.k8s.io/v1), decoded and encoded.

The object stays undecoded until it is needed (`admission.object_decoder`): most decisions need it once, some never.
An unreadable envelope is answered with HTTP 400. An unreadable object is a denial: the API server calls before it
validates, so the object is the user's text and the peer is not broken.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec

from admission.decision import CODES, Admitted, Decision, Denied
from api.field_errors import UNDECODABLE
from api.meta import Model
from api.text import MAX_MESSAGE_LENGTH, MAX_WARNING_LENGTH, truncate
from telemetry.reasons import RefusalReason

RETRY_AFTER_S: Final = 1
"""With a 503 the API server passes this on as Retry-After, and clients built on client-go try again by themselves:
a restart of this control plane costs them a moment and no error.
"""

_STATUS_REASONS: Final = {403: "Forbidden", 422: "Invalid", 503: "ServiceUnavailable"}


class Operation(StrEnum):
    """What the user does."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class UserInfo(Model, frozen=True):
    """The caller; for most pods a controller's service account."""

    username: str = ""
    groups: list[str] | None = None


class GroupVersionKind(Model, frozen=True):
    """A kind."""

    group: str = ""
    version: str = ""
    kind: str = ""

    def __str__(self) -> str:
        group = f"{self.group}/" if self.group else ""
        return f"{group}{self.version} {self.kind}"


class AdmissionRequest(Model, frozen=True):
    """The question."""

    uid: Annotated[str, msgspec.Meta(min_length=1)]
    """New at every call, a reinvocation included: it identifies the response and nothing else."""
    kind: GroupVersionKind
    operation: Operation
    name: str = ""
    """Empty for a `generateName` object that is not named yet."""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    object_: msgspec.Raw = msgspec.field(name="object", default=msgspec.Raw(b"null"))
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    dry_run: bool | None = None


@dataclass(frozen=True, slots=True)
class Malformed:
    """The envelope is unreadable."""

    text: str


class _Review(Model, frozen=True):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: AdmissionRequest


class _Details(Model, frozen=True):
    retry_after_seconds: int


class _Status(Model, frozen=True):
    code: int
    message: str
    reason: str
    details: _Details | None = None


class _Response(Model, frozen=True):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch_type: str | None = None
    patch: bytes | None = None
    """Encoded as base64."""
    warnings: list[str] | None = None
    audit_annotations: Mapping[str, str] | None = None


class AdmissionResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finished HTTP response, and its facts for one log line."""

    status: int
    """200 for every decision, a denial included; 400 when the envelope cannot be read."""
    body: bytes
    """JSON: an AdmissionReview, or a `metav1.Status` with status 400."""
    outcome: str
    """`allowed`, `patched`, `denied` or `malformed`."""
    reason: RefusalReason | None = None
    facts: Mapping[str, object]
    """Log keys and values; foreign text in them is truncated."""


_review_decoder = msgspec.json.Decoder(_Review)
_encoder = msgspec.json.Encoder()


def decode_review(
    body: bytes, expected: GroupVersionKind | None = None
) -> AdmissionRequest | Malformed:
    """Return the request about an object of the expected kind, or of any. Never raises."""
    try:
        request = _review_decoder.decode(body).request
    except UNDECODABLE as error:
        return Malformed(f"the body is no AdmissionReview of admission.k8s.io/v1: {error}")
    if expected is not None and request.kind != expected:
        return Malformed(f"the review is about a {request.kind}; this path takes {expected}")
    return request


def encode_decision(uid: str, decision: Decision, facts: Mapping[str, object]) -> AdmissionResult:
    match decision:
        case Denied():
            return _encode_denial(uid, decision, facts)
        case Admitted():  # pragma: no branch  # mypy proves that no case is missing
            return _encode_admission(uid, decision, facts)


def encode_malformed(malformed: Malformed) -> AdmissionResult:
    message = truncate(malformed.text, MAX_MESSAGE_LENGTH)
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": 400,
        "reason": "BadRequest",
        "message": message,
    }
    return AdmissionResult(
        status=400,
        body=_encoder.encode(status),
        outcome="malformed",
        reason=RefusalReason.MALFORMED_REQUEST,
        facts={"error": message},
    )


def _encode_denial(uid: str, denied: Denied, facts: Mapping[str, object]) -> AdmissionResult:
    code = CODES[denied.reason]
    message = truncate(f"{denied.reason.value}: {denied.text}", MAX_MESSAGE_LENGTH)
    status = _Status(
        code=code,
        message=message,
        reason=_STATUS_REASONS[code],
        details=_Details(retry_after_seconds=RETRY_AFTER_S) if code == 503 else None,
    )
    return AdmissionResult(
        status=200,
        body=_envelope(_Response(uid=uid, allowed=False, status=status)),
        outcome="denied",
        reason=denied.reason,
        facts={**facts, **denied.facts, "refusal": message},
    )


def _encode_admission(uid: str, admitted: Admitted, facts: Mapping[str, object]) -> AdmissionResult:
    response = _Response(
        uid=uid,
        allowed=True,
        patch_type="JSONPatch" if admitted.patch else None,
        patch=_encoder.encode(admitted.patch) if admitted.patch else None,
        warnings=[truncate(text, MAX_WARNING_LENGTH) for text in admitted.warnings] or None,
        audit_annotations=admitted.audit or None,
    )
    return AdmissionResult(
        status=200,
        body=_envelope(response),
        outcome="patched" if admitted.patch else "allowed",
        facts={**facts, **admitted.facts},
    )


def _envelope(response: _Response) -> bytes:
    answer = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    }
    return _encoder.encode(answer)
