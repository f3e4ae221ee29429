"""What recently filtered pods ask for, by uid.

bind is told names only. The watch and the ledger know pods that name a pool; that a pod names *none*
is known to nobody but filter, which read its spec a moment before. A pod's devices cannot change, so
an entry is a fact about that uid and never goes stale; it claims nothing (a simulation may leave one).
"""

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from api.names import PodUid
    from pool.model import Demand

LIMIT: Final = 8192
"""Pods between filter and bind at 1,000 pods/s and kube-scheduler's 5 s time-out, and half as many again."""


@final
class RecentPods:
    """Demands by uid; the oldest is dropped, and its pod's bind then answers "unknown, try again"."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._demand_by_uid: dict[PodUid, Demand | None] = {}
        # in the order in which filter last saw them; None: names no pool

    def remember(self, uid: "PodUid", demand: "Demand | None") -> None:
        """Note what a pod asks for; None that it names no pool."""
        self._demand_by_uid.pop(uid, None)
        self._demand_by_uid[uid] = demand
        if len(self._demand_by_uid) > self._limit:
            del self._demand_by_uid[next(iter(self._demand_by_uid))]

    def knows(self, uid: "PodUid") -> bool:
        """Say whether filter saw the pod lately."""
        return uid in self._demand_by_uid

    def demand(self, uid: "PodUid") -> "Demand | None":
        """Return what a known pod asks for; None when it names no pool, or is not known."""
        return self._demand_by_uid.get(uid)
