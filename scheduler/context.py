"""Dependencies of the verbs."""

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
    index: "DeviceIndex"
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
    scores: EncodedScores = field(default_factory=EncodedScores)
    recent: RecentPods = field(default_factory=RecentPods)
    candidates: CandidatesReader = field(default_factory=CandidatesReader)
