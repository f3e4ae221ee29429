"""Rows of pools."""

from typing import TYPE_CHECKING, Final, final

from api.kinds.gpupool import PoolCapacity
from api.text import listed
from console.rows import PoolRow
from pool.fitting_pods import FittingPods
from reconciler.pool.usage import waiting_pods

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.kinds.gpupool import Access, GPUPool
    from api.meta import LabelSelector
    from api.names import PoolName
    from console.data.state.cluster import ClusterState

_READY: Final = "Ready"


@final
class PoolRows:
    """Makes the rows; what was counted of a pool's nodes is kept."""

    def __init__(self, cluster: "ClusterState") -> None:
        self._cluster = cluster
        self._fitting: dict[PoolName, FittingPods] = {}

    def row(self, name: "PoolName") -> PoolRow | None:
        """Return the row of a pool; None where there is none."""
        pool = self._cluster.catalog.pools.get(name)
        if pool is None:
            self._fitting.pop(name, None)
            return None
        ready = next(
            (condition for condition in pool.status.conditions or () if condition.type == _READY),
            None,
        )
        capacity = self._capacity(pool)
        return PoolRow(
            mode=pool.allocation.mode.value,
            resource=", ".join(pool.resources),
            strategy=pool.strategy.value,
            phase=pool.status.phase or "Unknown",
            why=ready.message if ready is not None and ready.status != "True" else "",
            access=access_text(pool.spec.access),
            total=capacity.total,
            used=capacity.used,
            reserved=capacity.reserved,
            free=capacity.available,
            withheld=capacity.unhealthy,
            largest_free=capacity.largest_free,
            waiting=self._waiting(pool),
            nodes=self._nodes(pool),
            fits=self._fits(pool),
        )

    def _capacity(self, pool: "GPUPool") -> PoolCapacity:
        if not self._cluster.is_exact:
            return pool.status.capacity
        state = self._cluster.index.state(pool.name)
        units = state.capacity()
        return PoolCapacity(
            total=units.total,
            reserved=units.reserved,
            used=units.used,
            available=units.available,
            unhealthy=units.unhealthy,
            missing=sum(state.differing.values()),
            largest_free=state.largest_free(),
        )

    def _waiting(self, pool: "GPUPool") -> int:
        if not self._cluster.is_exact:
            return pool.status.waiting
        return waiting_pods(self._cluster.reader, self._cluster.index, pool)

    def _nodes(self, pool: "GPUPool") -> int:
        if not self._cluster.is_exact:
            return pool.status.nodes
        return len(self._cluster.index.state(pool.name).nodes())

    def _fits(self, pool: "GPUPool") -> dict[int, int] | None:
        if not self._cluster.is_exact:
            return None
        fitting = self._fitting.get(pool.name)
        if fitting is None:
            fitting = self._fitting[pool.name] = FittingPods(self._cluster.index, pool.name)
        return fitting.counts()


def access_text(access: "Access") -> str:
    """Return who may use a pool; empty where it is open to all."""
    return "; ".join(_rules(access))


def _rules(access: "Access") -> "Iterator[str]":
    if access.namespaces:
        yield f"namespaces {listed(access.namespaces)}"
    if access.namespace_selector is not None:
        yield f"namespaces with labels {_selected(access.namespace_selector)}"
    if access.service_accounts:
        yield f"service accounts {listed(access.service_accounts)}"
    if access.groups:
        yield f"groups {listed(access.groups)}"


def _selected(selector: "LabelSelector") -> str:
    labels = [f"{key}={value}" for key, value in (selector.match_labels or {}).items()]
    for expression in selector.match_expressions or ():
        values = f" ({', '.join(expression.values)})" if expression.values else ""
        labels.append(f"{expression.key} {expression.operator.value}{values}")
    return listed(labels) or "of any kind"
