"""Batches of waiting pods: pods that are created together are planned together, on fewer nodes."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from api.names import PodUid


IDLE_S: Final = 1.0
"""Seconds without another pod after which a batch is complete: as Karpenter's, of which the next step is one."""
MAX_S: Final = 10.0
"""Seconds from its first pod, though further ones come."""


@final
@dataclass(slots=True)
class DemandBatch:
    """Waiting pods of one pool that arrived since its last plan."""

    _planned: "AbstractSet[PodUid]" = field(default=frozenset())
    _seen: "AbstractSet[PodUid]" = field(default=frozenset())
    _first_arrival: float | None = None
    _last_arrival: float = 0.0

    def wait_s(self, waiting: "AbstractSet[PodUid]", now: float) -> float:
        """Return after which time to reconcile again; 0 where the pods are to be planned now.

        Pods that stop waiting neither open a batch nor prolong it.
        """
        if waiting <= self._planned:
            return self._close(waiting)
        if self._first_arrival is None:
            self._first_arrival = self._last_arrival = now
        elif not waiting <= self._seen:
            self._last_arrival = now
        self._seen = waiting
        due = min(self._last_arrival + IDLE_S, self._first_arrival + MAX_S)
        return self._close(waiting) if due <= now else due - now

    def _close(self, waiting: "AbstractSet[PodUid]") -> float:
        self._planned, self._seen, self._first_arrival = waiting, frozenset(), None
        return 0.0
