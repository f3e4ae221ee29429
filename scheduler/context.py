"""Dependencies of the verbs, and the demands that they remember between calls."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from scheduler.encoded_scores import EncodedScores
from scheduler.node_lists import CandidatesReader
from scheduler.ports import NeverWaiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Instant
    from api.names import PodUid, ReservationId
    from pool.allocation_reader import AllocationReader
    from pool.allocation_state import AllocationState
    from pool.index.reader import IndexReader
    from pool.model import Demand
    from scheduler.ports import BindPort, ReportPort


RECENT_PODS: Final = 8192
"""Pods between filter and bind at 1,000 pods/s and kube-scheduler's 5 s time-out, and half as many again."""


@final
class RecentPods:
    """Demands of recently filtered pods by uid.

    bind gets names only. The watch and the ledger know pods that name a pool; only filter, which reads the
    spec, knows that a pod names none. A pod's devices are immutable, so an entry never goes stale; it
    reserves nothing (a simulation may leave one). The oldest is dropped; bind then answers "unknown".
    """

    def __init__(self, limit: int = RECENT_PODS) -> None:
        self._limit = limit
        self._demand_by_uid: dict[PodUid, Demand | None] = {}
        # in the order in which filter last saw them; None: names no pool

    def record_demand(self, uid: "PodUid", demand: "Demand | None") -> None:
        """Record a pod's demand; None if it names no pool."""
        self._demand_by_uid.pop(uid, None)
        self._demand_by_uid[uid] = demand
        if len(self._demand_by_uid) > self._limit:
            del self._demand_by_uid[next(iter(self._demand_by_uid))]

    def has_demand(self, uid: "PodUid") -> bool:
        return uid in self._demand_by_uid

    def demand(self, uid: "PodUid") -> "Demand | None":
        """Return a recorded demand; None when the pod names no pool, or is not recorded."""
        return self._demand_by_uid.get(uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderContext:
    index: "IndexReader"
    reader: "AllocationReader"
    allocation_state: "AllocationState"
    binder: "BindPort"
    new_id: "Callable[[], ReservationId]"
    """Creates the id of a pod that is bound without a reservation."""
    now: "Callable[[], Instant]"
    is_ready: "Callable[[], bool]"
    """Whether the caches are synced, the ledger is rebuilt, and this replica leads."""
    leader: "Callable[[], str | None]" = lambda: None
    """The leadership term of this replica, for the API server to check; None without leader election."""
    on_restore: "Callable[[str], None]" = lambda _evidence: None
    """Called when an answer of the API server proves that its store went back in time."""
    reports: "ReportPort" = field(default_factory=NeverWaiting)
    scores: EncodedScores = field(default_factory=EncodedScores)
    recent: RecentPods = field(default_factory=RecentPods)
    candidates: CandidatesReader = field(default_factory=CandidatesReader)
