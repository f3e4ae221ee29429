"""Integrals of a pool's units over time, by state: what was used, reserved, free and withheld.

The leader counts; sums over replicas are those of the cluster. A change of capacity counts from the pass that finds
it. Between two passes the earlier one holds, so that the states of a pool add up to its capacity times the time at
every moment, whatever was missed between two passes.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, final

from telemetry.metrics import POOL_UNIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from api.names import PoolName
    from pool.index.figures import IndexFigures
    from pool.model import Capacity


class UnitState(StrEnum):
    """States of units; each unit of a pool is in one of them."""

    USED = "used"
    """Units of a bound pod."""
    RESERVED = "reserved"
    """Units of a pod that is not bound yet."""
    FREE = "free"
    WITHHELD = "withheld"
    """Free, and given to no pod."""


@final
class UnitSeconds:
    """Counts from its construction until its last pass."""

    def __init__(self, index: "IndexFigures") -> None:
        self._index = index
        self._since: dict[PoolName, tuple[float, Capacity]] = {}
        # pool -> until when it is counted, and its capacity from then on

    def count_changes(self, pools: "Collection[PoolName]", now: float) -> None:
        """Count pools whose capacity has changed. A pool that is gone is counted no further."""
        for gone in self._since.keys() - set(pools):
            del self._since[gone]
        for name in pools:
            capacity = self._index.state(name).capacity()
            current = self._since.get(name)
            if current is None or current[1] != capacity:
                self._count(name, now)
                self._since[name] = now, capacity

    def count(self, pools: "Collection[PoolName]", now: float) -> None:
        """Look, and count every pool until now."""
        self.count_changes(pools, now)
        for name, (_, capacity) in list(self._since.items()):
            self._count(name, now)
            self._since[name] = now, capacity

    def _count(self, name: "PoolName", now: float) -> None:
        since, capacity = self._since.get(name, (now, None))
        for state, units in _by_state(capacity):
            POOL_UNIT_SECONDS.labels(name, state.value).inc(units * (now - since))


def forget_unit_seconds(pool: "PoolName") -> None:
    """Drop the counters of a pool that is gone."""
    for state in UnitState:
        POOL_UNIT_SECONDS.remove(pool, state.value)


def _by_state(capacity: "Capacity | None") -> "Iterator[tuple[UnitState, int]]":
    yield UnitState.USED, capacity.used if capacity else 0
    yield UnitState.RESERVED, capacity.reserved if capacity else 0
    yield UnitState.FREE, capacity.available if capacity else 0
    yield UnitState.WITHHELD, capacity.unhealthy if capacity else 0
