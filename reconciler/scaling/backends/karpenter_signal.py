"""Backend `karpenter-signal`: a signal pod for each node, for which Karpenter makes a NodeClaim of the same id."""

from typing import TYPE_CHECKING, Final, final

from autoscaling.request_lifecycle import observed_requests
from kube.errors import KubeError
from reconciler.scaling.backends.node_autoscaler import ForeignObjectError
from reconciler.scaling.requested_nodes import requested_nodes

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Awaitable, Callable, Sequence

    from api.clock import Instant
    from api.kinds.autoscaling import ScaleRequestStatus
    from api.names import PoolName
    from autoscaling.scaling_model import (
        NodeRequest,
        ObservedRequest,
        RequestId,
        ScalingParameters,
    )
    from reconciler.informer_stores import InformerStores
    from reconciler.scaling.backends.signal_pods import SignalPods

SEEN_WITHIN_S: Final = 10.0
"""A signal that the watch does not show by then was deleted right after, or was never created."""


@final
class KarpenterSignal:
    """Asks by signal pods."""

    def __init__(
        self,
        stores: "InformerStores",
        signals: "SignalPods",
        now: "Callable[[], Instant]",
        *,
        create: "Callable[[NodeRequest, ScalingParameters], Awaitable[bool]] | None" = None,
    ) -> None:
        """Take the stores and the writer of signals; `create` creates another kind of pod in place of a signal."""
        self._stores = stores
        self._create = create or signals.create
        self._signals = signals
        self._now = now
        self._unseen: dict[PoolName, dict[RequestId, float]] = {}
        # pool -> request whose signal may have been created -> until when the watch is awaited

    def observe(
        self,
        parameters: "ScalingParameters",
        *,
        now: "dt.datetime",
        recorded: "Sequence[ScaleRequestStatus]",
    ) -> "tuple[ObservedRequest, ...]":
        return observed_requests(
            parameters,
            signals=self._stores.scale_signals.of(parameters.pool.name).values(),
            claims=self._stores.node_claims,
            nodes=requested_nodes(self._stores, parameters.pool),
            now=now,
            recorded=recorded,
            deleted=self._stores.node_claims.deleted(),
        )

    def is_caught_up(self, pool: "PoolName") -> bool:
        unseen = self._unseen.get(pool)
        if not unseen:
            return True
        current = {item.request for item in self._stores.scale_signals.of(pool).values()}
        now = self._now().monotonic
        left = {id_: until for id_, until in unseen.items() if id_ not in current and now < until}
        self._unseen[pool] = left
        return not left

    async def ensure(self, request: "NodeRequest", parameters: "ScalingParameters") -> None:
        unseen = self._unseen.setdefault(request.pool, {})
        unseen[request.id] = self._now().monotonic + SEEN_WITHIN_S
        try:
            await self._create(request, parameters)
        except (ForeignObjectError, KubeError) as error:
            if isinstance(error, ForeignObjectError) or error.is_definite:
                unseen.pop(request.id, None)
            raise

    async def cancel(self, observed: "ObservedRequest") -> None:
        for signal in observed.signals:
            await self._signals.delete(signal)

    async def reconcile(self, parameters: "ScalingParameters") -> None:
        """Write the condition of signals that lack it: without it Karpenter does not see them."""
        for signal in list(self._stores.scale_signals.of(parameters.pool.name).values()):
            if not signal.is_marked and not signal.is_terminating:
                await self._signals.mark(signal)

    async def withdraw(self, pool: "PoolName") -> None:
        self._unseen.pop(pool, None)
        signals = [
            item for item in self._stores.scale_signals.of(pool).values() if not item.is_terminating
        ]
        for signal in signals:
            await self._signals.delete(signal)
