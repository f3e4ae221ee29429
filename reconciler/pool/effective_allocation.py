"""What `pool.life` writes into a pool's status: the allocation in effect, and the condition Maintenance.

Both are one server-side apply, so that nobody sees one without the other.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.conditions import find_condition, new_condition, without_conditions
from api.names import API_VERSION
from kube.resources import GPU_POOLS
from telemetry.conditions import PoolCondition, PoolMaintenance

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.kinds.gpupool import EffectiveAllocation, GPUPool
    from api.meta import Condition
    from api.names import PoolName
    from kube.client import KubeClient
    from pool.model import Instant

FIELD_MANAGER: Final = "gpu-control-plane/pool-life"


@dataclass(frozen=True, slots=True)
class _Written:
    """Our part of the status as we wrote it."""

    version: str
    """The resourceVersion that we judged by: what is written holds until the watch shows another."""
    allocation: "EffectiveAllocation"
    condition: "Condition"


def maintenance_of(pool: "GPUPool") -> "Condition | None":
    """Return the condition Maintenance that a pool shows."""
    return find_condition(pool.status.conditions, PoolCondition.MAINTENANCE)


@final
class PoolAllocations:
    """Writes the allocation and the condition, on a difference only."""

    def __init__(self, client: "KubeClient", now: "Callable[[], Instant]") -> None:
        self._client = client
        self._now = now
        self._written: dict[PoolName, _Written] = {}

    def as_written(self, pool: "GPUPool") -> "GPUPool":
        """Return the pool with our part of the status as we wrote it, until the watch shows it anew."""
        written = self._written.get(pool.name)
        if written is None or written.version != pool.metadata.resource_version:
            return pool
        others = without_conditions(pool.status.conditions, [PoolCondition.MAINTENANCE])
        status = msgspec.structs.replace(
            pool.status, allocation=written.allocation, conditions=[*others, written.condition]
        )
        return msgspec.structs.replace(pool, status=status)

    async def write(
        self, pool: "GPUPool", reason: PoolMaintenance, text: str, *, switches: bool = False
    ) -> None:
        """Say how far the maintenance is; a new pool gets its allocation recorded with that.

        With `switches` the wanted allocation becomes the present one, and that only over the very pool
        that was read: a spec that changed meanwhile, or another leader, makes it a Conflict.
        """
        allocation = pool.wanted_allocation if switches else pool.allocation
        wanted = new_condition(
            PoolCondition.MAINTENANCE,
            reason,
            text,
            status=reason is not PoolMaintenance.NONE,
            shown=pool.status.conditions,
            generation=pool.metadata.generation,
            now=self._now().utc,
        )
        if (pool.status.allocation, maintenance_of(pool)) == (allocation, wanted):
            return
        version = pool.metadata.resource_version
        metadata = {"name": pool.name, "uid": pool.metadata.uid}
        if switches:
            metadata["resourceVersion"] = version
        body = {
            "apiVersion": API_VERSION,
            "kind": GPU_POOLS.kind,
            "metadata": metadata,
            "status": {
                "allocation": {
                    "mode": allocation.mode,
                    "migProfile": allocation.mig_profile,
                    "slicesPerDevice": allocation.slices_per_device,
                },
                "conditions": [wanted],
            },
        }
        await self._client.apply(GPU_POOLS, body, field_manager=FIELD_MANAGER, subresource="status")
        self._written[pool.name] = _Written(version, allocation, wanted)

    def forget(self, name: "PoolName") -> None:
        """Forget a pool that is gone."""
        self._written.pop(name, None)
