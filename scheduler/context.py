"""What the verbs work on."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scheduler.encoded_scores import EncodedScores
from scheduler.node_lists import CandidatesReader
from scheduler.pod_demand import RecentPods

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.names import ReservationId
    from pool.allocation_reader import AllocationReader
    from pool.allocation_state import AllocationState
    from pool.index.device_index import DeviceIndex
    from pool.model import Instant
    from scheduler.ports import BindPort


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderContext:
    """The books, the port that binds, and where ids and the time come from."""

    index: "DeviceIndex"
    reader: "AllocationReader"
    allocation_state: "AllocationState"
    binder: "BindPort"
    new_id: "Callable[[], ReservationId]"
    """A fresh id, for a pod that is bound without a reservation."""
    now: "Callable[[], Instant]"
    is_ready: "Callable[[], bool]"
    """Whether the caches are synced, the ledger is rebuilt, and this replica leads."""
    leader: "Callable[[], str | None]" = lambda: None
    """The term under which this replica leads now, for the API server to check; None where nobody
    is elected."""
    scores: EncodedScores = field(default_factory=EncodedScores)
    recent: RecentPods = field(default_factory=RecentPods)
    candidates: CandidatesReader = field(default_factory=CandidatesReader)
