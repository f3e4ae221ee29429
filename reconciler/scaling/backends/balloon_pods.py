"""Backend `balloon`: a pod of low priority for each node, for cluster-autoscaler, which labels no node with the request.

A balloon is bound to the node that came for it. It goes when the node's devices are in the pool and the node is handed
over; their units are given to the waiting pods by `pool.capacity`, as any that come free. Were it to go before, neither
the request nor the units of a node that is starting would count, and the next plan would ask for a second node.
"""

import datetime as dt
from typing import TYPE_CHECKING, Final, final

from api.names import AGENT_NOT_READY_TAINT, NodeName
from api.status_conditions import parse_time
from autoscaling.request_state import COMPLETE_WITHIN
from autoscaling.scaling_model import Failure, ObservedRequest, RequestPhase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.kinds.autoscaling import ScaleRequestStatus
    from api.names import PoolName
    from autoscaling.scaling_model import (
        NodeRequest,
        ScalingParameters,
        SignalFacts,
    )
    from reconciler.informer_stores import InformerStores
    from reconciler.scaling.backends.karpenter_signal import KarpenterSignal

BOUND_WITHIN: Final = dt.timedelta(minutes=16)
"""cluster-autoscaler gives up a node after 15 minutes (--max-node-provision-time)."""
_WITHIN: Final = {
    RequestPhase.SIGNALLED: BOUND_WITHIN,
    RequestPhase.INCOMPLETE: COMPLETE_WITHIN,
}
_FAILURES: Final = {
    RequestPhase.SIGNALLED: Failure.NOT_SIGNALLED,
    RequestPhase.INCOMPLETE: Failure.FEWER_DEVICES,
}


@final
class BalloonPods:
    """Asks by balloons."""

    def __init__(self, stores: "InformerStores", pods: "KarpenterSignal") -> None:
        """Take the stores and what creates and deletes balloons."""
        self._stores = stores
        self._pods = pods

    def observe(
        self,
        parameters: "ScalingParameters",
        *,
        now: dt.datetime,
        recorded: "Sequence[ScaleRequestStatus]",
    ) -> tuple[ObservedRequest, ...]:
        before: dict[str, ScaleRequestStatus] = {item.id: item for item in recorded}
        signals = self._stores.scale_signals.of(parameters.pool.name).values()
        found = [
            self._request(parameters, signal, recorded=before.get(signal.request), now=now)
            for signal in signals
            if not signal.is_terminating
        ]
        return tuple(sorted(found, key=lambda item: item.id))

    def is_caught_up(self, pool: "PoolName") -> bool:
        return self._pods.is_caught_up(pool)

    async def ensure(self, request: "NodeRequest", parameters: "ScalingParameters") -> None:
        await self._pods.ensure(request, parameters)

    async def cancel(self, observed: ObservedRequest) -> None:
        await self._pods.cancel(observed)

    async def reconcile(self, parameters: "ScalingParameters") -> None:
        """Do nothing: kube-scheduler writes the condition of a balloon."""

    async def withdraw(self, pool: "PoolName") -> None:
        await self._pods.withdraw(pool)

    def _request(
        self,
        parameters: "ScalingParameters",
        signal: "SignalFacts",
        *,
        recorded: "ScaleRequestStatus | None",
        now: dt.datetime,
    ) -> ObservedRequest:
        phase, message = self._phase(parameters, signal)
        since = min(signal.created, now)
        if phase is not RequestPhase.SIGNALLED:
            is_same = recorded is not None and recorded.phase == phase.value
            since = (
                parse_time(recorded.since) if recorded is not None and is_same else None
            ) or now
        within = _WITHIN.get(phase, parameters.devices_within)
        deadline = min(since, now) + within
        failure = None
        if phase is not RequestPhase.RELEASED and now >= deadline:
            failure = _FAILURES.get(phase, Failure.NO_DEVICES)
            phase, message = RequestPhase.FAILED, f"{message}, for {within.seconds // 60} minutes"
        return ObservedRequest(
            id=signal.request,
            pool=parameters.pool.name,
            shape=parameters.shape(signal.shape),
            phase=phase,
            since=since,
            deadline=deadline,
            failure=failure,
            message=message,
            signals=(signal,),
        )

    def _phase(
        self, parameters: "ScalingParameters", signal: "SignalFacts"
    ) -> "tuple[RequestPhase, str]":
        if not signal.node:
            return (
                RequestPhase.SIGNALLED,
                f"pod {signal.name} is not bound; see its Events by cluster-autoscaler",
            )
        index, name = self._stores.index, NodeName(signal.node)
        figures, node = index.state(parameters.pool.name).node(name), index.nodes.get(name)
        if figures is None or not figures.total:
            return RequestPhase.REGISTERED, f"node {name} has no device of the pool"
        if node is None or node.is_starting:
            return RequestPhase.REGISTERED, f"node {name} has the taint {AGENT_NOT_READY_TAINT}"
        shape, usable = parameters.shape(signal.shape), figures.total - figures.unusable
        if shape is not None and usable < shape.units and not (figures.used or figures.reserved):
            return (
                RequestPhase.INCOMPLETE,
                f"node {name} brings {usable} usable units, and shape {shape.name} promises {shape.units}",
            )
        return RequestPhase.RELEASED, f"devices of node {name} are in the pool"
