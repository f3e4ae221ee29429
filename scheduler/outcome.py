"""What a verb answers: the body, and what the caller logs and counts."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_READY: Final = "gpu-control-plane is not ready: its caches are not synced"


class Outcome(StrEnum):
    """How a call ended; the closed set behind the label `outcome` of the extender's histogram."""

    NOT_OURS = "not_ours"
    """The pod names no pool."""
    NOT_READY = "not_ready"
    MALFORMED = "malformed"
    IMPOSSIBLE = "impossible"
    """No node will ever do: two pools, a broken quantity, a resource that no pool serves."""

    FITS = "fits"
    """filter, prioritize, preempt: at least one node remains."""
    NONE_FITS = "none_fits"

    BOUND = "bound"
    ALREADY_BOUND = "already_bound"
    """bind: the pod was on that node before, so that nothing had to be written."""
    UNKNOWN_POD = "unknown_pod"
    REFUSED = "refused"
    """bind: the node cannot take the pod, or the API server said no."""
    BOUND_ELSEWHERE = "bound_elsewhere"
    UNDER_WAY = "under_way"
    IN_DOUBT = "in_doubt"
    """bind: nobody knows whether the API server carried the write out."""


@dataclass(frozen=True, slots=True)
class VerbResult:
    """The reply to one call.

    Its HTTP status is 200, whatever it says: kube-scheduler discards the body of any other.
    """

    body: bytes
    outcome: str
    """A value of `Outcome`."""
    facts: "Mapping[str, object]"
    """For one log line."""
