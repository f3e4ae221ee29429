"""Backend `karpenter-native`: Karpenter knows the pool's resource by a NodeOverlay, and adds nodes for the waiting pods.

The pods have no gate. Signals remain for units that no pod waits for, and for pods that Karpenter takes for placed:
it adds up the units of a node, and does not know which devices they are on.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final, final

from autoscaling.scaling_model import Purpose
from kube.resources import NODE_OVERLAYS
from manifests.install.rbac import PolicyRule

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from api.kinds.autoscaling import ScaleRequestStatus
    from api.names import PodUid, PoolName
    from autoscaling.scaling_model import NodeRequest, ObservedRequest, ScalingPlan, ScalingTerms
    from pool.allocation_reader import AllocationReader
    from pool.index.device_index import DeviceIndex
    from reconciler.scaling.backends.karpenter_signal import KarpenterSignal

RBAC: Final = (
    PolicyRule(group=NODE_OVERLAYS.group, resources=(NODE_OVERLAYS.plural,), verbs=("list",)),
)


@final
class KarpenterNative:
    """Leaves pods that Karpenter serves to it, and asks by signals for the rest."""

    def __init__(
        self, signals: "KarpenterSignal", index: "DeviceIndex", reader: "AllocationReader"
    ) -> None:
        self._signals = signals
        self._index = index
        self._reader = reader

    def observe(
        self, terms: "ScalingTerms", *, now: "dt.datetime", known: "Sequence[ScaleRequestStatus]"
    ) -> "tuple[ObservedRequest, ...]":
        return self._signals.observe(terms, now=now, known=known)

    def is_caught_up(self, pool: "PoolName") -> bool:
        return self._signals.is_caught_up(pool)

    def taken(self, plan: "ScalingPlan") -> "tuple[NodeRequest, ...]":
        """Return requests of warm units, and those for pods that Karpenter takes for placed."""
        demands = [one for one in plan.requests if one.purpose is Purpose.DEMAND]
        placed = self._placed_by_number(demands[0].pool, plan) if demands else frozenset()
        return tuple(
            one
            for one in plan.requests
            if one.purpose is Purpose.WARM or not placed.isdisjoint(one.pods)
        )

    async def ensure(self, request: "NodeRequest", terms: "ScalingTerms") -> None:
        await self._signals.ensure(request, terms)

    async def cancel(self, observed: "ObservedRequest") -> None:
        await self._signals.cancel(observed)

    async def settle(self, terms: "ScalingTerms", plan: "ScalingPlan") -> None:
        await self._signals.settle(terms, plan)

    def unserved(
        self, terms: "ScalingTerms", observed: "Sequence[ObservedRequest]", *, now: "dt.datetime"
    ) -> None:
        """Say nothing: without the feature gate the NodeOverlay is not Ready."""

    async def withdraw(self, pool: "PoolName") -> bool:
        """Do nothing: its signals are those of karpenter-signal."""
        return True

    def _placed_by_number(self, name: "PoolName", plan: "ScalingPlan") -> "frozenset[PodUid]":
        """Return the pods that fit a node by the number of its free units, and get none there.

        First are the pods that do get units of present nodes: what is left is what Karpenter sees once these are bound.
        """
        pool = self._index.pool(name)
        waiting = self._reader.waiting(pool.resource) if pool is not None else []
        awaits_node = {uid for pods in plan.assigned.values() for uid in pods} | plan.waits.keys()
        free = Counter(
            node.free for node in self._index.state(name).nodes().values() if node.is_reservable
        )
        for pod in waiting:
            if pod.uid not in awaits_node:
                _take(free, pod.demand.units)
        return frozenset(
            pod.uid for pod in waiting if pod.uid in awaits_node and _take(free, pod.demand.units)
        )


def _take(free: "Counter[int]", units: int) -> bool:
    """Take units of the node that has the fewest of those with enough; return whether there is one."""
    enough = [size for size, count in free.items() if count and size >= units]
    if not enough:
        return False
    least = min(enough)
    free[least] -= 1
    free[least - units] += 1
    return True
