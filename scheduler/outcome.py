"""Results of the verbs."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.names import PoolName

NOT_READY: Final = "gpu-control-plane is not ready: its caches are not synced"


class Outcome(StrEnum):
    """Outcome of a call; the closed set of values of the label `outcome` of the extender's histogram."""

    NOT_OURS = "not_ours"
    """The pod names no pool."""
    NOT_READY = "not_ready"
    MALFORMED = "malformed"
    IMPOSSIBLE = "impossible"
    """No node will ever fit: two pools, an invalid quantity, a resource that no pool serves."""

    FITS = "fits"
    """filter, prioritize, preempt: at least one node remains."""
    NONE_FITS = "none_fits"

    BOUND = "bound"
    ALREADY_BOUND = "already_bound"
    """bind: the pod was on that node before, so nothing was written."""
    UNKNOWN_POD = "unknown_pod"
    REFUSED = "refused"
    """bind: the node cannot take the pod, or the API server refused the Binding."""
    BOUND_ELSEWHERE = "bound_elsewhere"
    UNDER_WAY = "under_way"
    AWAITING_REPORT = "awaiting_report"
    """bind: kubelet chooses devices there, and its choice for a pod before is not reported yet."""
    IN_DOUBT = "in_doubt"
    """bind: it is unknown whether the API server carried the write out."""


class PlacementQuality(StrEnum):
    """How the devices of a pod are connected; the closed set of values of the label `quality`."""

    SINGLE = "single"
    """One device."""
    ONE_ISLAND = "one_island"
    """Every pair is connected by NVLink."""
    ONE_NUMA_NODE = "one_numa_node"
    SPLIT = "split"
    UNKNOWN = "unknown"
    """Neither a NUMA node nor a link is known of the pool's devices on the node."""


class Warmth(StrEnum):
    """Whether a pod's node has its kernel caches; the closed set of values of the label `warmth`."""

    WARM = "warm"
    """All of them."""
    COLD = "cold"


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """A pod that a call of bind has bound."""

    pool: "PoolName"
    quality: PlacementQuality
    waited_s: float | None
    """Seconds since its creation; None where the watch has not delivered it."""
    reserved_for_s: float | None = None
    """Seconds since units were reserved for it; None where none were before the call."""
    warmth: Warmth | None = None
    """Warmth of a pod that mounts kernel caches."""


@dataclass(frozen=True, slots=True)
class VerbResult:
    """Reply to one call, always with HTTP status 200: kube-scheduler discards the body of any other."""

    body: bytes
    outcome: str
    """A value of `Outcome`."""
    facts: "Mapping[str, object]"
    """Facts for one log line."""
    bound: PodPlacement | None = None
