"""All backends by their kind, built without I/O."""

from typing import TYPE_CHECKING, final

from api.kinds.autoscaling import ScalingBackend
from manifests.constants import NAME
from reconciler.scaling.backends.balloon_pods import BalloonPods
from reconciler.scaling.backends.karpenter_signal import KarpenterSignal
from reconciler.scaling.backends.signal_pods import SignalPods

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from api.kinds.autoscaling import ScaleRequestStatus
    from api.names import PoolName
    from autoscaling.scaling_model import NodeRequest, ObservedRequest, ScalingParameters
    from reconciler.controller_spec import ControllerContext
    from reconciler.scaling.backends.node_autoscaler import NodeAutoscaler


@final
class NoAutoscaler:
    """Asks for nothing and sees nothing."""

    def observe(
        self,
        parameters: "ScalingParameters",
        *,
        now: "dt.datetime",
        recorded: "Sequence[ScaleRequestStatus]",
    ) -> "tuple[ObservedRequest, ...]":
        return ()

    def is_caught_up(self, pool: "PoolName") -> bool:
        return True

    async def ensure(self, request: "NodeRequest", parameters: "ScalingParameters") -> None:
        """Do nothing."""

    async def cancel(self, observed: "ObservedRequest") -> None:
        """Do nothing."""

    async def reconcile(self, parameters: "ScalingParameters") -> None:
        """Do nothing."""

    async def withdraw(self, pool: "PoolName") -> None:
        """Do nothing."""


def build_backends(context: "ControllerContext") -> "Mapping[ScalingBackend, NodeAutoscaler]":
    settings = context.settings
    signals = SignalPods(
        context.client,
        namespace=settings.workloads.namespace,
        # A pod needs the name of an image, whether it runs or not.
        image=settings.workloads.agent_image or NAME,
        now=context.now,
    )
    signal = KarpenterSignal(context.stores, signals, context.now)
    return {
        ScalingBackend.KARPENTER_SIGNAL: signal,
        ScalingBackend.BALLOON: BalloonPods(
            context.stores,
            KarpenterSignal(context.stores, signals, context.now, create=signals.create_balloon),
        ),
        ScalingBackend.NONE: NoAutoscaler(),
    }
