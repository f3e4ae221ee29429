"""`pool.capacity`: reserves free units for pods that await capacity, and ungates them.

Units come free as pods end, with or without an autoscaler. The waiting pods of a pool are taken in their order: a
gated pod that fits gets a reservation, and then loses its gate with the reservation in its annotation. Pods without
a gate are kube-scheduler's; those that fit and come first keep their capacity for a while, since something else than
units may keep them from their node. Nodes that are starting are left out: `node.handover` gives away their units.

A pool that does not scale any more, or is gone, ungates its pods: they wait as everywhere else.
"""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, final

from api.names import RESOURCE_PREFIX, NodeName, PoolName
from kube.batches import steps
from pool.model import Constraints
from pool.pods.selection import constraints_of_selection
from pool.reservations.reservation import PlacementRequest
from reconciler.controller_spec import ControllerContext, ControllerSpec, Trigger
from reconciler.pool.index_changes import WAITING, index_changes
from reconciler.scaling.demand.place_reader import place_reader
from reconciler.scaling.gated_pods import RBAC, gated_pods

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.names import PodUid, ReservationId
    from pool.compute_resources import ComputeResources
    from pool.model import Demand, PodFacts, PoolFacts
    from reconciler.scaling.gated_pods import GatedPods

AGAIN_S: Final = 5.0
"""A pool with gated pods is examined so often, whatever changes."""
HEAD_START_S: Final = 10.0
"""How long pods without a gate keep their capacity: kube-scheduler requeues a pod within this (`pod.waking`)."""
MOST_AT_ONCE: Final = 200
"""Pods reserved before they are written: their reservations last, at 100 writes a second, much longer."""

_ANYWHERE: Final = Constraints()


@final
class CapacityHolds:
    """Reserves and ungates for one pool at a time."""

    def __init__(self, context: ControllerContext, gated: "GatedPods") -> None:
        self._state = context.allocation_state
        self._index = context.index
        self._reader = context.reader
        self._scheduling = context.scheduling
        self._now = context.now
        self._gated = gated
        self._places = context.shared(place_reader)
        self._signals = context.stores.scale_signals
        self._fits_since: dict[PoolName, dict[PodUid, float]] = {}
        # pool -> ungated waiting pods that fit -> since when
        self._resources: dict[PoolName, str] = {}
        # of pools whose pods wait, and that may be gone by now

    async def reconcile(self, name: PoolName) -> float | None:
        """Give the free units of a pool to its gated pods in order."""
        self._gated.forget_ungated()
        pool = self._index.pool(name)
        resource, unread = self._resource_of(name, pool), self._index.unread_pools
        if name in unread or resource in unread.values():
            return None  # a gate that is removed cannot be put back
        if not self._reader.pods.is_capacity_awaited(resource):
            self._fits_since.pop(name, None)
            self._resources.pop(name, None)
            return None
        if pool is None or not pool.scales:
            await self._gated.ungate([*self._held(name), *self._waiting(name, pool)])
            return None
        if self._index.pool_of(pool.resource) != pool or pool.closed is not None:
            return None
        is_through = await self._hold(pool)
        await self._gated.ungate(self._held(name))
        if not is_through:
            return 0.0
        return AGAIN_S if self._waiting(name, pool) else None

    async def _hold(self, pool: "PoolFacts") -> bool:
        """Reserve units for the pods that may have them now; False where more pods may be left."""
        waiting = self._places.narrowed(pool, self._reader.pods.waiting(pool.resource))
        ahead: Counter[tuple[int, int]] = Counter()
        fits_since: dict[PodUid, float] = {}
        refused: set[tuple[Demand, int, ComputeResources]] = set()
        # what did not fit: units only become fewer, and pods ahead more
        count = 0
        for item in steps(waiting):
            for pod in item:
                if not self._gated.is_gated(pod):
                    self._let_go_first(pod, pool, ahead=ahead, fits_since=fits_since)
                    continue
                requested = (pod.demand, id(pod.selection), pod.requests)
                if requested in refused:
                    continue
                if self._reserve(pod, pool, ahead):
                    count += 1
                else:
                    refused.add(requested)
            if count >= MOST_AT_ONCE:
                return False
            await asyncio.sleep(0)
        self._fits_since[pool.name] = fits_since
        return True

    def _let_go_first(
        self,
        pod: "PodFacts",
        pool: "PoolFacts",
        *,
        ahead: Counter[tuple[int, int]],
        fits_since: "dict[PodUid, float]",
    ) -> None:
        """Leave room for a pod that kube-scheduler can bind, unless it has not done so for long."""
        if not self._index.view(pool.name, pod.demand).scores:
            return
        now = self._now().monotonic
        earlier = self._fits_since.get(pool.name, {})
        since = fits_since[pod.uid] = earlier.get(pod.uid, now)
        if now - since < HEAD_START_S:
            ahead[pod.priority, pod.demand.units] += 1

    def _reserve(self, pod: "PodFacts", pool: "PoolFacts", ahead: Counter[tuple[int, int]]) -> bool:
        if not self._index.state(pool.name).capacity().available:
            return False
        now = self._now()
        placed = self._reader.admission.plan_stored(
            pool, pod, constraints_of(pod), ahead=ahead, now=now.monotonic
        )
        if placed is None:
            return False
        self._state.hold(
            request_of(pod, pool, self._scheduling.new_id()), placed, uid=pod.uid, now=now
        )
        return True

    def _held(self, name: PoolName) -> "list[PodFacts]":
        """Return the gated pods with reserved units of the pool whose node is ready for them.

        Not on nodes that are starting, nor beside a balloon that is about to go: kube-scheduler would preempt it, and
        wait for the end of a pod that is gone already.
        """
        closed = {node.name for node in self._index.nodes.values() if node.is_starting}
        signals = self._signals.of(name).values()
        closed |= {NodeName(signal.node) for signal in signals if signal.node}
        return [
            pod
            for pod, reservation in self._gated.held()
            if reservation.pool == name and reservation.node not in closed
        ]

    def _resource_of(self, name: PoolName, pool: "PoolFacts | None") -> str:
        if pool is not None:
            self._resources[name] = pool.resource
        return self._resources.get(name, f"{RESOURCE_PREFIX}{name}")

    def _waiting(self, name: PoolName, pool: "PoolFacts | None") -> "list[PodFacts]":
        """Return the gated pods of a pool that have no units, in their order."""
        pods = self._reader.pods.waiting(self._resource_of(name, pool))
        return [pod for pod in pods if self._gated.is_gated(pod)]


def constraints_of(pod: "PodFacts") -> Constraints:
    """Return the constraints of a pending pod on its node; new ones for each decision."""
    return _ANYWHERE if pod.selection is None else constraints_of_selection(pod.selection, pod.peer)


def request_of(pod: "PodFacts", pool: "PoolFacts", id_: "ReservationId") -> PlacementRequest:
    """Return the request for units of a stored pod."""
    return PlacementRequest(
        id=id_, pool=pool, demand=pod.demand, namespace=pod.namespace, name=pod.name
    )


def _pools_of_gated_pods(context: ControllerContext) -> "Iterable[PoolName]":
    """Return the pools of gated pods, those without an object among them."""
    resources = {pod.demand.resource for pod in context.reader.pods.all() if pod.awaits_capacity}
    served = {item: context.index.pool_of(item) for item in resources}
    return [
        pool.name if pool is not None else PoolName(resource.removeprefix(RESOURCE_PREFIX))
        for resource, pool in served.items()
    ]


SPEC: Final = ControllerSpec(
    name="pool.capacity",
    rbac=RBAC,
    triggers=(
        Trigger(source=lambda context: context.shared(index_changes).pools),
        Trigger(source=lambda context: context.stores.scale_signals.changes),
        WAITING,
    ),
    initial=_pools_of_gated_pods,
    build=lambda context: CapacityHolds(context, context.shared(gated_pods)).reconcile,
)
