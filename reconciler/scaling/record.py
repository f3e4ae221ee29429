"""What a pool's status keeps of its autoscaling: requests and their times, the history of shapes, device-hours and money.

A process that begins goes on from the status; between two writes the figures are in memory.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from api.names import SCALE_REQUEST_LABEL
from api.status_conditions import parse_time
from autoscaling.device_hours import advanced, totals_from
from autoscaling.device_use import DeviceUse, PoolUsageCounter
from autoscaling.node_daemons import STARTUP_TAINT, kept_away
from autoscaling.node_pool_checks import node_pool_fault
from autoscaling.nodes_per_hour import counted_from, nodes_of_last_hour
from autoscaling.parameters import terms_faults
from autoscaling.scaling_model import RequestId, RequestPhase, Supply
from autoscaling.shape_history import history_from, new_failures, updated_history
from kube.resources import GPU_POOLS
from reconciler.runtime.expectations import Expectations
from reconciler.runtime.status import StatusWriter
from reconciler.scaling.backends.node_autoscaler import ForeignObjectError
from reconciler.scaling.conditions import ScalingFacts, scaling_conditions
from reconciler.scaling.gauges import (
    CANCELLED,
    count_failure,
    count_idle,
    count_result,
    observe_phase,
    observe_provision,
    show_parameters,
)
from reconciler.scaling.pool_events import record_conditions
from reconciler.scaling.status import ScalingOutcome, autoscaling_status, write_after_s
from telemetry.conditions import BackendReady

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from api.kinds.autoscaling import AutoscalingStatus, ScaleRequestStatus
    from api.kinds.gpupool import GPUPool
    from api.names import PoolName
    from autoscaling.device_hours import UsageTotals
    from autoscaling.device_use import UsageSample
    from autoscaling.node_daemons import NodeDaemon
    from autoscaling.scaling_model import ObservedRequest, ScalingParameters, ScalingPlan
    from pool.model import PodFacts
    from reconciler.controller_spec import ControllerContext
    from reconciler.scaling.probe import ChosenBackend

_READY: Final = frozenset({RequestPhase.AGENT_READY, RequestPhase.RESERVED})
_ASKED: Final = frozenset({RequestPhase.PLANNED.value, RequestPhase.SIGNALLED.value})
_PHASES: Final = {item.value: item for item in RequestPhase}


def count_changes(
    pool: "PoolName",
    observed: "Sequence[ObservedRequest]",
    recorded: "Sequence[ScaleRequestStatus]",
) -> None:
    """Count phases that ended, nodes that came, requests that failed or were withdrawn.

    Each change counts once, by the status of the pass before.
    """
    before = {item.id: item for item in recorded}
    for request in new_failures(observed, recorded):
        if request.failure is not None:
            count_failure(pool, request.failure)
    for request in observed:
        last = before.pop(request.id, None)
        if last is None or last.phase == request.phase.value:
            continue
        _count_end(last, request)
        if request.phase in _READY and _PHASES.get(last.phase) not in _READY:
            observe_provision(pool, (request.since - _requested_at(request)).total_seconds())
    for withdrawn in before.values():
        if withdrawn.phase in _ASKED and not withdrawn.node_claim:
            count_result(pool, CANCELLED)


def _count_end(last: "ScaleRequestStatus", request: "ObservedRequest") -> None:
    phase, since = _PHASES.get(last.phase), parse_time(last.since)
    if phase is not None and since is not None:
        observe_phase(phase, max(0.0, (request.since - since).total_seconds()))


def _requested_at(request: "ObservedRequest") -> "dt.datetime":
    """Return when the node was asked for: by its signal, or as far as its NodeClaim shows."""
    times = [signal.created for signal in request.signals]
    if request.claim is not None:
        times.append(request.claim.created)
    return min((*times, request.since))


FIELD_MANAGER: Final = "gpu-control-plane/pool-scaling"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPool:
    """What a pool has in one pass, apart from its plan."""

    observed: "tuple[ObservedRequest, ...]"
    supply: Supply
    usage: "UsageSample"
    totals: "UsageTotals"
    node_pool_warnings: "Mapping[str, str]"


@final
class ScalingRecord:
    """Reads and writes `status.autoscaling`."""

    def __init__(self, context: "ControllerContext") -> None:
        self._stores = context.stores
        self._index = context.index
        self._now = context.now
        self._recorder = context.recorder
        self._writer = StatusWriter(context.client, GPU_POOLS, FIELD_MANAGER)
        self._expected: Expectations[PoolName, AutoscalingStatus] = Expectations(context.now)
        self._totals: dict[PoolName, UsageTotals] = {}
        self._counters: dict[PoolName, PoolUsageCounter] = {}
        self._former: dict[PoolName, UsageTotals] = {}
        # pool that was deleted, or did not scale for a while -> what was counted then
        self._nodes: dict[PoolName, Mapping[str, dt.datetime]] = {}
        # pool -> its nodes of the last hour, when each was asked for

    def current(self, pool: "GPUPool") -> "AutoscalingStatus | None":
        """Return the status at the API server, with a write that the watch has not delivered yet."""
        return self._expected.unseen(pool.name, pool.metadata) or pool.status.autoscaling

    def recorded(self, pool: "GPUPool") -> "Sequence[ScaleRequestStatus]":
        """Return the requests of the pass before."""
        current = self.current(pool)
        return (current.requests if current is not None else None) or ()

    def count(
        self,
        pool: "GPUPool",
        parameters: "ScalingParameters",
        observed: "tuple[ObservedRequest, ...]",
        *,
        waiting: "Sequence[PodFacts]",
        fault: str,
    ) -> CountedPool:
        """Return what the pool has and gets; `fault` says why its backend asks for nothing."""
        current, now = self.current(pool), self._now().utc
        counter = self._counters.setdefault(pool.name, PoolUsageCounter())
        usage = counter.sample(parameters, self._index, observed=observed, waiting=waiting)
        before = self._totals.get(pool.name) or self._restored(pool.name, current, now)
        totals = self._totals[pool.name] = advanced(before, usage, now)
        show_parameters(parameters, usage, spent_micro=totals.spent_micro)
        passed_s = (totals.counted_at - before.counted_at).total_seconds()
        count_idle(pool.name, max(0.0, passed_s) * usage.devices.get(DeviceUse.IDLE, 0))
        history = updated_history(
            history_from(current.shapes if current is not None else None),
            parameters,
            observed,
            recorded=self.recorded(pool),
            capabilities=usage.capabilities,
            now=now,
        )
        names = sorted({shape.node_pool for shape in parameters.shapes})
        found = {name: facts for name in names if (facts := self._stores.node_pools.get(name))}
        checks = {name: node_pool_fault(parameters, name, found.get(name)) for name in names}
        return CountedPool(
            observed=observed,
            usage=usage,
            totals=totals,
            node_pool_warnings={name: warning for name, (_, warning) in checks.items() if warning},
            supply=Supply(
                in_flight=observed,
                history=history,
                node_pools=found,
                node_pool_faults={name: text for name, (text, _) in checks.items() if text},
                used_ids=self._used_ids(observed),
                nodes_of_last_hour=self._nodes_of_last_hour(pool, parameters, observed),
                running_micro=usage.running_micro,
                spent_today_micro=totals.spent_micro,
                backend_fault=fault,
            ),
        )

    async def write(
        self,
        pool: "GPUPool",
        counted: CountedPool,
        decided: "ScalingPlan",
        *,
        chosen: "ChosenBackend",
        daemons: "Sequence[NodeDaemon]",
        failure: Exception | None,
    ) -> None:
        """Write the status where it differs: what happens at once, figures alone from time to time."""
        current, now = self.current(pool), self._now()
        reason, message = _backend_state(chosen, failure)
        facts = ScalingFacts(
            supply=counted.supply,
            plan=decided,
            observed=counted.observed,
            backend=reason,
            backend_message=message,
            node_pool_warnings=counted.node_pool_warnings,
            spec_faults=terms_faults(pool),
            kept_away=_kept_away(pool, counted.supply, daemons),
        )
        conditions = scaling_conditions(
            facts,
            current=current.conditions if current is not None else None,
            generation=pool.metadata.generation,
            now=now.utc,
        )
        outcome = ScalingOutcome(
            backend=chosen.backend,
            plan=decided,
            observed=counted.observed,
            history=counted.supply.history,
            nodes_of_last_hour=counted.supply.nodes_of_last_hour,
            usage=counted.usage,
            totals=counted.totals,
            conditions=conditions,
        )
        recorded = self.recorded(pool)
        status = autoscaling_status(outcome, recorded=recorded, now=now.utc)
        after_s = write_after_s(current, status)
        if after_s is None or _age_s(current, now.utc) < after_s:
            return
        written = await self._writer.apply(pool.name, {"autoscaling": status})
        if written is not None:
            self._expected.expect(pool.name, status, written)
            count_changes(pool.name, counted.observed, recorded)
            before = current.conditions if current is not None else None
            record_conditions(self._recorder, pool, before=before or (), after=conditions)

    async def clear(self, pool: "GPUPool") -> None:
        """Remove the status of a pool that does not scale any more."""
        if pool.status.autoscaling is not None:
            await self._writer.apply(pool.name, {})

    def forget(self, name: "PoolName") -> None:
        """Forget a pool, but not what it cost today: it may be made again at once, without its status."""
        totals = self._totals.pop(name, None)
        if totals is not None:
            day = self._now().utc.date()
            self._former = {key: item for key, item in self._former.items() if item.day == day}
            self._former[name] = totals
        self._counters.pop(name, None)

    def _restored(
        self, name: "PoolName", current: "AutoscalingStatus | None", now: "dt.datetime"
    ) -> "UsageTotals":
        """Return what the status keeps; without one what this leader counted of a pool of this name today."""
        former = self._former.pop(name, None)
        if former is None or (current is not None and current.counted_at):
            return totals_from(current, now)
        return replace(former, counted_at=now)

    def _nodes_of_last_hour(
        self,
        pool: "GPUPool",
        parameters: "ScalingParameters",
        observed: "tuple[ObservedRequest, ...]",
    ) -> "Mapping[str, dt.datetime]":
        current, claims = self.current(pool), self._stores.node_claims
        kept = counted_from(current.nodes_of_last_hour if current is not None else None)
        found = self._nodes[pool.name] = nodes_of_last_hour(
            {**kept, **self._nodes.get(pool.name, {})},
            parameters,
            observed,
            claims=(*claims, *claims.deleted()),
            now=self._now().utc,
        )
        return found

    def _used_ids(self, observed: "tuple[ObservedRequest, ...]") -> frozenset[RequestId]:
        """Return the ids that a new request must not have."""
        claims, nodes = self._stores.node_claims, self._index.nodes.values()
        return frozenset(
            (
                *(item.id for item in observed),
                *(claim.request for claim in claims if claim.request is not None),
                *(item.request for item in claims.deleted() if item.request is not None),
                *(
                    RequestId(id_)
                    for node in nodes
                    if (id_ := node.labels.get(SCALE_REQUEST_LABEL))
                ),
            )
        )


def _age_s(current: "AutoscalingStatus | None", now: "dt.datetime") -> float:
    """Return how old the figures of a status are, or how far ahead; without a time they are as old as can be."""
    counted_at = parse_time(current.counted_at) if current is not None else None
    return abs((now - counted_at).total_seconds()) if counted_at is not None else math.inf


def _kept_away(pool: "GPUPool", supply: Supply, daemons: "Sequence[NodeDaemon]") -> str:
    """Return which node software has no pod on nodes of the pool until their devices are in it, with the cure."""
    taints = (taint for facts in supply.node_pools.values() for taint in facts.taints)
    text, cure = kept_away(pool.name, daemons, (STARTUP_TAINT, *pool.taints, *taints))
    return f"{text}: {cure}" if text else ""


def _backend_state(
    chosen: "ChosenBackend", failure: Exception | None
) -> "tuple[BackendReady, str]":
    match failure:
        case None:
            return chosen.reason, chosen.message
        case ForeignObjectError():
            return BackendReady.FOREIGN_OBJECT, str(failure)
        case _:
            return BackendReady.REFUSED, f"{failure}; it is tried again"
