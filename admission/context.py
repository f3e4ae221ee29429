"""Dependencies of the webhooks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.workload_rules import BUILT_IN_RULES, WorkloadRules
from api.names import owner_of

if TYPE_CHECKING:
    from api.clock import Instant
    from api.kinds.gpupool import GPUPool
    from api.names import ReservationId
    from pool.allocation_reader import AllocationReader
    from pool.allocation_state import AllocationState
    from pool.catalog import Catalog
    from pool.index.reader import IndexReader
    from pool.model import PoolFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionContext:
    """State and ports of a decision, all of them synchronous."""

    index: "IndexReader"
    reader: "AllocationReader"
    allocation_state: "AllocationState"
    catalog: "Catalog"
    scheduler_name: str | None
    """Set on pods that name the default scheduler or none; None leaves them there."""
    new_id: "Callable[[], ReservationId]"
    """Unguessable ids: knowing the id of a reservation without uid would be enough to take it."""
    now: "Callable[[], Instant]"
    is_ready: Callable[[], bool]
    """Caches are synced and the ledger is built."""
    may_reserve: Callable[[], bool] = lambda: True
    """This replica leads. Another one admits pods without reserving units, since binds never read its ledger."""
    callers_are_known: bool = False
    """Reviews certainly come from API servers, so answers may name what concerns the user."""
    workloads: WorkloadRules = BUILT_IN_RULES
    """Whose pods inherit access from the user who wrote a template."""
    sign: Callable[[bytes], str]
    """An unforgeable text for these bytes, the same at every replica."""

    def served_pool(self, resource: str) -> "tuple[PoolFacts, GPUPool] | None":
        """Return the facts and the object of the pool that serves a resource.

        One informer writes both in one step, so they are of the same observation.
        """
        facts = self.index.pool_of(resource)
        pool = self.catalog.pools.get(owner_of(facts.name)) if facts is not None else None
        return (facts, pool) if facts is not None and pool is not None else None
