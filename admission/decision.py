"""Decisions of admission: admitted, perhaps with a patch, or denied.

`admission.review` encodes them.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from telemetry.reasons import RefusalReason

PatchOperation = dict[str, Any]
"""One operation of a JSON Patch."""


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """The object may come in."""

    patch: tuple[PatchOperation, ...] = ()
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = msgspec.field(default_factory=dict)
    facts: Mapping[str, object] = msgspec.field(default_factory=dict)


class Denied(msgspec.Struct, frozen=True):
    """A denial; the text has the reason and the cure."""

    reason: RefusalReason
    text: str
    facts: Mapping[str, object] = msgspec.field(default_factory=dict)


Decision = Admitted | Denied

CODES: Final[Mapping[RefusalReason, int]] = {
    RefusalReason.MALFORMED_REQUEST: 422,
    RefusalReason.BAD_QUANTITY: 422,
    RefusalReason.MIXED_POOLS: 422,
    RefusalReason.TOO_LARGE: 422,
    RefusalReason.POOL_NOT_FOUND: 422,
    RefusalReason.POOL_TERMINATING: 403,
    RefusalReason.POOL_IN_MAINTENANCE: 403,
    RefusalReason.ACCESS_DENIED: 403,
    RefusalReason.POD_BASELINE: 403,
    RefusalReason.EXCEEDS_CAPACITY: 422,
    RefusalReason.INSUFFICIENT_CAPACITY: 403,  # as an exceeded ResourceQuota
    RefusalReason.NODE_PRESET: 403,
    RefusalReason.CONFLICTING_SPEC: 422,
    RefusalReason.NOT_ADMITTED: 403,
    RefusalReason.FORGED_ANNOTATION: 403,
    RefusalReason.NOT_READY: 503,
    RefusalReason.INVALID_POOL: 422,
    RefusalReason.POOL_NAME_TAKEN: 422,
    RefusalReason.INVALID_ASSIGNMENT: 422,
    RefusalReason.INVALID_TAINT: 403,
    RefusalReason.INVALID_CACHE: 422,
    RefusalReason.IMAGE_UNUSABLE: 422,
    RefusalReason.IMAGE_NOT_VERIFIED: 403,
    RefusalReason.REGISTRY_UNAVAILABLE: 503,
}
"""Reason -> HTTP status that the API server returns to its client."""

NOT_READY: Final = Denied(
    RefusalReason.NOT_READY,
    "gpu-control-plane is starting: its caches are not synced yet; try again",
)
