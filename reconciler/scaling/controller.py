"""`pool.scaling`: asks for the nodes that waiting pods of a pool need, and withdraws what nothing needs any more.

`autoscaling.node_planner` decides, from stores alone; the API server has all state, so that a process that ends at any
await leaves nothing that the next one does not see: requests by their signals, NodeClaims and Nodes, their phases
and the history of shapes by the pool's status. A pool that does not scale costs a read of its spec, and no write.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from api.kinds.autoscaling import ScalingBackend
from api.names import GROUP, SCALE_REQUEST_LABEL, PoolName
from autoscaling.node_planner import plan
from autoscaling.parameters import scaling_parameters
from autoscaling.scaling_model import RequestPhase
from kube.errors import KubeError
from manifests.install.rbac import PolicyRule
from pool.model import PodPhase
from reconciler.controller_spec import ControllerContext, ControllerSpec, Trigger
from reconciler.pool.index_changes import NODES, WAITING
from reconciler.pool.validation_cache import POOLS
from reconciler.scaling import gauges
from reconciler.scaling.backends.built_backends import build_backends
from reconciler.scaling.backends.node_autoscaler import ForeignObjectError
from reconciler.scaling.backends.signal_pods import NAMESPACED_RBAC
from reconciler.scaling.demand.batch import DemandBatch
from reconciler.scaling.demand.passed_over import PassedOverNodes
from reconciler.scaling.demand.place_reader import RBAC as PLACES_RBAC
from reconciler.scaling.demand.place_reader import place_reader
from reconciler.scaling.pool_events import record_cancels, record_short_nodes
from reconciler.scaling.probe import RBAC as PROBE_RBAC
from reconciler.scaling.probe import BackendProbe, ChosenBackend, NodeDaemonProbe
from reconciler.scaling.record import ScalingRecord
from reconciler.scaling.view import PoolScaling, ScalingView, scaling_view
from reconciler.scaling.waiting_events import WaitingPodEvents

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from api.kinds.gpupool import GPUPool
    from api.names import NodeName
    from autoscaling.scaling_model import ObservedRequest, ScalingParameters, ScalingPlan
    from pool.model import PodFacts, PoolFacts
    from reconciler.controller_spec import Reconcile
    from reconciler.scaling.backends.node_autoscaler import NodeAutoscaler

CLAIM_DELAY_S: Final = 0.25
"""Gathers the changes of NodeClaims and nodes, which come in bursts."""
CATCH_UP_S: Final = 0.1
"""Seconds between two searches for what was written in the stores."""
BUSY_S: Final = 5.0
"""Seconds between two passes over a pool with waiting pods or requests: deadlines and back-offs end without a change."""
IDLE_S: Final = 60.0
"""Seconds between two passes over a pool that scales: its devices are counted by the hour."""
WORKERS: Final = 4
"""Pools at a time: most of the time goes to writes."""
RBAC: Final = (
    PolicyRule(group=GROUP, resources=("gpupools/status",), verbs=("patch",)),
    *PLACES_RBAC,
    *PROBE_RBAC,
)


@final
class PoolScaler:
    """Scales one pool at a time."""

    def __init__(
        self,
        context: ControllerContext,
        backends: "Mapping[ScalingBackend, NodeAutoscaler]",
        view: "ScalingView",
    ) -> None:
        self._stores = context.stores
        self._catalog = context.catalog
        self._index = context.index
        self._reader = context.reader
        self._now = context.now
        self._backends = backends
        self._view = view
        self._places = context.shared(place_reader)
        self._enabled = context.settings.scaling_backends
        self._probe = BackendProbe(context.client, context.now, enabled=self._enabled)
        self._daemons = NodeDaemonProbe(context.client, context.now)
        self._record = ScalingRecord(context)
        self._recorder = context.recorder
        self._events = WaitingPodEvents(context.recorder)
        self._batches: dict[PoolName, DemandBatch] = {}
        self._passed_over: dict[PoolName, PassedOverNodes] = {}
        self._used: dict[PoolName, ScalingBackend] = {}
        # pool -> the backend that it had in the last pass; others have nothing of it
        self._leaks: dict[PoolName, int] = {}
        # pool -> signals that were left over in the last pass

    async def reconcile(self, name: PoolName) -> float | None:
        """Bring the requests of a pool in line with its waiting pods."""
        if name in self._catalog.unread_pools:
            return IDLE_S  # what was asked for it stays as it is
        stores = self._stores
        if stores.node_claims.unread or stores.node_pools.unread or stores.scale_signals.unread:
            return IDLE_S  # a request that cannot be read may be any pool's: none is repeated or given up
        pool, facts = self._catalog.pools.get(name), self._index.pool(name)
        parameters = (
            scaling_parameters(pool, facts) if pool is not None and facts is not None else None
        )
        if pool is None or parameters is None or parameters.pool.is_terminating:
            await self._stop(name, pool)
            return None
        chosen = await self._probe.choose(parameters)
        await self._leave_backend(pool, chosen.backend)
        backend = self._backends[chosen.backend]
        # NodePools are judged by the backend in use.
        parameters = replace(parameters, backend=chosen.backend)
        if parameters.pool.closed is not None:
            await self._withdraw(name, chosen.backend, keeps_signals=False)
        if not backend.is_caught_up(name):
            return CATCH_UP_S
        waiting = self._waiting(parameters.pool)
        wait_s = self._batch(name).wait_s(
            frozenset(pod.uid for pod in waiting), self._now().monotonic
        )
        return wait_s or await self._scale(pool, parameters, waiting, chosen=chosen)

    async def _scale(
        self,
        pool: "GPUPool",
        parameters: "ScalingParameters",
        waiting: "list[PodFacts]",
        *,
        chosen: "ChosenBackend",
    ) -> float:
        """Observe, plan, write; what is written is seen in the next pass."""
        await self._places.read(waiting, now=self._now().monotonic)
        read = {pod.uid for pod in waiting}
        waiting = [pod for pod in self._waiting(parameters.pool) if pod.uid in read]
        name, backend, now = pool.name, self._backends[chosen.backend], self._now().utc
        # Nothing is awaited from here on until the plan is made: it is of one moment.
        observed = backend.observe(parameters, now=now, recorded=self._record.recorded(pool))
        counted = self._record.count(
            pool, parameters, observed, waiting=waiting, fault=chosen.fault
        )
        supply = replace(counted.supply, zones=self._places.zones())
        waiting = self._narrowed(name, self._places.narrowed(parameters.pool, waiting))
        decided = plan(parameters, waiting, self._index, supply=supply, now=now)
        self._passed_over[name].update(parameters.pool, waiting, decided, now=self._now().monotonic)
        self._view.pools[name] = PoolScaling(
            parameters=parameters,
            supply=supply,
            plan=decided,
            observed=observed,
            history=supply.history,
            at=now,
        )
        self._show(name, decided, observed)
        failure = await self._carry_out(backend, parameters, decided, observed=observed)
        record_cancels(self._recorder, pool, decided.cancels)
        record_short_nodes(
            self._recorder, pool, observed=observed, recorded=self._record.recorded(pool)
        )
        self._events.record(name, waiting, plan=decided, observed=observed, now=now)
        daemons = await self._daemons.daemons()
        await self._record.write(
            pool, counted, decided, chosen=chosen, daemons=daemons, failure=failure
        )
        if isinstance(failure, KubeError):
            raise failure
        return BUSY_S if waiting or observed or decided.requests else IDLE_S

    async def _carry_out(
        self,
        backend: "NodeAutoscaler",
        parameters: "ScalingParameters",
        decided: "ScalingPlan",
        *,
        observed: "tuple[ObservedRequest, ...]",
    ) -> Exception | None:
        """Withdraw, then ask; return the first failure.

        An object that is in the way of one node keeps no other from being asked for; silence of the API server does.
        """
        cancelled = {item.id for item in decided.cancels}
        refused: Exception | None = None
        try:
            for item in observed:
                if item.id in cancelled or _is_left_over(item):
                    await backend.cancel(item)
            for request in decided.requests:
                try:
                    await backend.ensure(request, parameters)
                except ForeignObjectError as error:
                    refused = refused or error
                else:
                    gauges.count_signal(request.pool)
            await backend.reconcile(parameters)
        except (ForeignObjectError, KubeError) as error:
            return refused or error
        return refused

    async def _leave_backend(self, pool: "GPUPool", used: ScalingBackend) -> None:
        """Withdraw what another backend wrote before: that of this term's last pass, or of the status."""
        current = self._record.current(pool)
        before = self._used.get(pool.name) or (current.backend if current is not None else None)
        if before is not None and before is not used:
            is_signal = used is ScalingBackend.KARPENTER_SIGNAL
            await self._withdraw(pool.name, before, keeps_signals=is_signal)
        self._used[pool.name] = used

    async def _stop(self, name: PoolName, pool: "GPUPool | None") -> None:
        """Leave nothing of a pool that does not scale, or is gone; its pods lose their gates by `pool.capacity`."""
        self._show_leaks(name, len(self._stores.scale_signals.of(name)))
        current = self._record.current(pool) if pool is not None else None
        before = self._used.get(name) or (current.backend if current is not None else None)
        await self._withdraw(name, before or ScalingBackend.NONE, keeps_signals=False)
        self._record.forget(name)
        if pool is not None:
            await self._record.clear(pool)
        if self._view.pools.pop(name, None) is not None:
            gauges.forget_scaling(name)
        self._events.forget(name)
        self._batches.pop(name, None)
        self._passed_over.pop(name, None)
        self._used.pop(name, None)

    async def _withdraw(
        self, name: PoolName, before: ScalingBackend, *, keeps_signals: bool
    ) -> None:
        if not keeps_signals:
            await self._backends[ScalingBackend.KARPENTER_SIGNAL].withdraw(name)
        if before is ScalingBackend.BALLOON and before in self._enabled:
            await self._backends[before].withdraw(name)

    def _show(
        self, name: PoolName, decided: "ScalingPlan", observed: "tuple[ObservedRequest, ...]"
    ) -> None:
        gauges.show_requests(name, observed)
        gauges.show_waits(name, decided.waits)
        self._show_leaks(name, sum(len(item.signals) for item in observed if _is_left_over(item)))

    def _show_leaks(self, name: PoolName, count: int) -> None:
        before = self._leaks.pop(name, 0)
        if count:
            self._leaks[name] = count
        if before != count:
            gauges.show_leaks(sum(self._leaks.values()))

    def _waiting(self, pool: "PoolFacts") -> "list[PodFacts]":
        """Return the waiting pods; those of a resource that an older pool serves are the older pool's."""
        serving = self._index.pool_of(pool.resource)
        is_serving = serving is not None and serving.name == pool.name
        return self._reader.pods.waiting(pool.resource) if is_serving else []

    def _narrowed(self, name: PoolName, waiting: "list[PodFacts]") -> "list[PodFacts]":
        """Return the waiting pods without what kube-scheduler passed over for them; pods that are bound are forgotten."""
        passed_over = self._passed_over.setdefault(name, PassedOverNodes(self._index))
        observed_pods = (self._reader.pods.get(uid) for uid in passed_over.uids())
        passed_over.forget(
            pod.uid for pod in observed_pods if pod is not None and pod.phase is PodPhase.PENDING
        )
        return passed_over.narrowed(waiting)

    def _batch(self, name: PoolName) -> DemandBatch:
        return self._batches.setdefault(name, DemandBatch())


def _is_left_over(request: "ObservedRequest") -> bool:
    """Say whether only signals are left, of a node that was handed over."""
    return request.phase is RequestPhase.RELEASED


def _scaling_pools(context: ControllerContext, _changed: object) -> "Iterable[PoolName]":
    return [name for name, pool in context.catalog.pools.items() if pool.spec.autoscaling]


def _pools_of_node(context: ControllerContext, node: "NodeName") -> "Iterable[PoolName]":
    """Return the scaling pools for a node that was asked for, and for one that is gone."""
    facts = context.index.nodes.get(node)
    if facts is not None and SCALE_REQUEST_LABEL not in facts.labels:
        return ()
    return _scaling_pools(context, node)


def _build(context: ControllerContext) -> "Reconcile":
    return PoolScaler(context, build_backends(context), context.shared(scaling_view)).reconcile


SPEC: Final = ControllerSpec(
    name="pool.scaling",
    rbac=RBAC,
    namespaced_rbac=NAMESPACED_RBAC,
    triggers=(
        POOLS,
        WAITING,
        Trigger(source=lambda context: context.stores.scale_signals.changes),
        Trigger(
            source=lambda context: context.stores.node_claims.changes,
            keys=_scaling_pools,
            delay_s=CLAIM_DELAY_S,
        ),
        Trigger(
            source=lambda context: context.stores.node_pools.changes,
            keys=_scaling_pools,
            delay_s=CLAIM_DELAY_S,
        ),
        Trigger(source=NODES.source, keys=_pools_of_node, delay_s=CLAIM_DELAY_S),
    ),
    initial=lambda context: list(context.stores.scale_signals.groups()),
    workers=WORKERS,
    build=_build,
)
