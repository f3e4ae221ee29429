"""What an admission call gives to its HTTP handler."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from telemetry.reasons import RefusalReason


class AdmissionResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finished HTTP answer, and the facts about it for one log line."""

    status: int
    """200 for every decision, a denial included; 400 when the envelope cannot be read."""
    body: bytes
    """JSON: an AdmissionReview, or a `metav1.Status` with status 400."""
    outcome: str
    """`allowed`, `patched`, `denied` or `malformed`."""
    reason: "RefusalReason | None" = None
    facts: Mapping[str, object]
    """Log keys and values; foreign text in them is cut."""
