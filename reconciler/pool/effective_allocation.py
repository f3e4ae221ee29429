"""The effective allocation and the condition Maintenance in a pool's status.

Both are one server-side apply, so that a reader never sees one without the other.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.status_conditions import find_condition, new_condition, without_conditions
from kube.resources import GPU_POOLS
from reconciler.runtime.expectations import Expectations
from reconciler.runtime.status import StatusWriter
from telemetry.conditions import PoolCondition, PoolMaintenance

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Instant
    from api.kinds.gpupool import EffectiveAllocation, GPUPool
    from api.meta import Condition
    from api.names import PoolName
    from kube.client import KubeClient

FIELD_MANAGER: Final = "gpu-control-plane/pool-life"


@dataclass(frozen=True, slots=True)
class _Written:
    """Our part of the status."""

    allocation: "EffectiveAllocation"
    condition: "Condition"


def maintenance_of(pool: "GPUPool") -> "Condition | None":
    return find_condition(pool.status.conditions, PoolCondition.MAINTENANCE)


@final
class PoolAllocations:
    """Writes the allocation and the condition where they differ."""

    def __init__(self, client: "KubeClient", now: "Callable[[], Instant]") -> None:
        self._writer = StatusWriter(client, GPU_POOLS, FIELD_MANAGER)
        self._now = now
        self._expected: Expectations[PoolName, _Written] = Expectations(now)

    def as_written(self, pool: "GPUPool") -> "GPUPool":
        """Return the pool with our last write, until the watch shows it."""
        written = self._expected.unseen(pool.name, pool.metadata)
        if written is None:
            return pool
        others = without_conditions(pool.status.conditions, [PoolCondition.MAINTENANCE])
        status = msgspec.structs.replace(
            pool.status, allocation=written.allocation, conditions=[*others, written.condition]
        )
        return msgspec.structs.replace(pool, status=status)

    async def write(
        self, pool: "GPUPool", reason: PoolMaintenance, text: str, *, switches: bool = False
    ) -> bool:
        """Report how far the maintenance is; say whether the pool is still there.

        A new pool gets its allocation recorded with that.

        With `switches` the desired allocation becomes the effective one, only over the version that was read: a
        changed spec, or another leader, makes it a Conflict.
        """
        allocation = pool.desired_allocation if switches else pool.allocation
        desired = new_condition(
            PoolCondition.MAINTENANCE,
            reason,
            text,
            status=reason is not PoolMaintenance.NONE,
            current=pool.status.conditions,
            generation=pool.metadata.generation,
            now=self._now().utc,
        )
        if (pool.status.allocation, maintenance_of(pool)) == (allocation, desired):
            return True
        metadata = pool.metadata
        status = {"allocation": _body(allocation), "conditions": [desired]}
        version = metadata.resource_version if switches else None
        written = await self._writer.apply(pool.name, status, version=version, uid=metadata.uid)
        if written is None:
            return False
        self._expected.expect(pool.name, _Written(allocation, desired), written)
        return True


def _body(allocation: "EffectiveAllocation") -> dict[str, object]:
    """Return the allocation as it is applied: without an empty profile."""
    body: dict[str, object] = {
        "mode": allocation.mode,
        "slicesPerDevice": allocation.slices_per_device,
    }
    if allocation.mig_profile:
        body["migProfile"] = allocation.mig_profile
    if allocation.mig:
        body["mig"] = allocation.mig
    return body
