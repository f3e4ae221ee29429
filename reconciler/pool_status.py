"""`pool.status`: capacity, phase and conditions of a GPUPool, and the pool's gauges.

Deciding (`status_of`) is pure; the write is one server-side apply of the status, only on a difference.
"""

from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from api.gpupool import GPUPoolStatus, PoolCapacity
from api.meta import Condition
from api.names import API_VERSION, GROUP
from kube.errors import NotFound
from kube.resources import GPU_POOLS
from manifests.rbac import Rule
from reconciler.gauges import forget_pool, show_capacity
from telemetry.conditions import PoolCondition, PoolPhase, PoolReady

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from api.gpupool import GPUPool
    from api.names import PoolName
    from kube.client import KubeClient
    from pool.books import Books
    from pool.catalog import Catalog
    from pool.model import Instant

RBAC: Final = (Rule(group=GROUP, resources=("gpupools/status",), verbs=("patch",)),)

FIELD_MANAGER: Final = "gpu-control-plane/pool-status"
_Verdict = Literal["True", "False"]


def status_of(
    pool: "GPUPool",
    shown: GPUPoolStatus,
    capacity: PoolCapacity,
    *,
    nodes: int,
    now: "dt.datetime",
) -> GPUPoolStatus:
    """Return our part of the status that the pool should show, given what it shows."""
    if pool.metadata.deletion_timestamp is not None:
        phase, reason, message = PoolPhase.TERMINATING, PoolReady.TERMINATING, "being deleted"
    elif capacity.total == 0:
        phase, reason = PoolPhase.PENDING, PoolReady.NO_DEVICES
        message = "no device is assigned to the pool, or none has reported its UUID yet"
    elif capacity.unhealthy == capacity.total:
        phase, reason = PoolPhase.DEGRADED, PoolReady.NO_HEALTHY_DEVICES
        message = "every device is faulted, or its node is missing, not ready or cordoned"
    else:
        phase, reason = PoolPhase.READY, PoolReady.SERVING
        units, on = _counted(capacity.total, "unit"), _counted(nodes, "node")
        message = f"{units} of {pool.resource_name} on {on}"
    status: _Verdict = "True" if reason is PoolReady.SERVING else "False"
    return GPUPoolStatus(
        observed_generation=pool.metadata.generation,
        phase=phase.value,
        capacity=capacity,
        nodes=nodes,
        conditions=[
            Condition(
                type=PoolCondition.READY.value,
                status=status,
                reason=reason.value,
                message=message,
                last_transition_time=_transition_time(shown, status, now),
                observed_generation=pool.metadata.generation,
            )
        ],
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _transition_time(shown: GPUPoolStatus, status: _Verdict, now: "dt.datetime") -> str:
    for condition in _our_conditions(shown):
        if condition.status == status:
            return condition.last_transition_time
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _our_part(status: GPUPoolStatus) -> GPUPoolStatus:
    """Return the status without conditions that others write: they stay, and are no difference."""
    return msgspec.structs.replace(status, conditions=_our_conditions(status))


def _our_conditions(status: GPUPoolStatus) -> list[Condition]:
    return [one for one in status.conditions or () if one.type == PoolCondition.READY.value]


@final
class PoolStatus:
    """Writes the status of one pool, and sets its gauges."""

    def __init__(
        self,
        client: "KubeClient",
        books: "Books",
        catalog: "Catalog",
        *,
        now: "Callable[[], Instant]",
    ) -> None:
        self._client = client
        self._books = books
        self._catalog = catalog
        self._now = now
        self._written: dict[PoolName, tuple[str, GPUPoolStatus]] = {}
        # pool -> the resourceVersion that we judged by, and the status that we wrote upon it

    async def reconcile(self, name: "PoolName") -> float | None:
        """Make the pool's status say what the books say; a pool that is gone loses its gauges."""
        pool = self._catalog.pools.get(name)
        if pool is None:
            forget_pool(name)
            self._written.pop(name, None)
            return None
        state = self._books.index.state(name)
        figures = state.capacity()
        capacity = PoolCapacity(
            total=figures.total,
            reserved=figures.reserved,
            used=figures.used,
            available=figures.available,
            unhealthy=figures.unhealthy,
        )
        show_capacity(name, figures)
        shown = self._shown(pool)
        status = status_of(pool, shown, capacity, nodes=len(state.nodes()), now=self._now().utc)
        if status == _our_part(shown):
            return None
        body = {
            "apiVersion": API_VERSION,
            "kind": GPU_POOLS.kind,
            "metadata": {"name": name},
            "status": _complete(status),
        }
        try:
            await self._client.apply(
                GPU_POOLS, body, field_manager=FIELD_MANAGER, subresource="status"
            )
        except NotFound:
            return None
        self._written[name] = (pool.metadata.resource_version, status)
        return None

    def _shown(self, pool: "GPUPool") -> GPUPoolStatus:
        """Return the status at the API server: ours, until the watch shows the pool anew."""
        version, written = self._written.get(pool.name, ("", pool.status))
        return written if version == pool.metadata.resource_version else pool.status


def _complete(status: GPUPoolStatus) -> dict[str, object]:
    """Return every field, zeros too: an applied status owns all that it shows."""
    return {
        "observedGeneration": status.observed_generation,
        "phase": status.phase,
        "capacity": status.capacity,
        "nodes": status.nodes,
        "conditions": status.conditions,
    }
