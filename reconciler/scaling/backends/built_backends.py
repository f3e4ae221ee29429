"""All backends by their kind, built without I/O."""

from typing import TYPE_CHECKING

from api.kinds.autoscaling import ScalingBackend
from manifests.constants import NAME
from reconciler.scaling.backends.balloon_pods import BalloonPods
from reconciler.scaling.backends.karpenter_signal import KarpenterSignal
from reconciler.scaling.backends.no_autoscaler import NoAutoscaler
from reconciler.scaling.backends.signal_pods import SignalPods

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.controller_spec import ControllerContext
    from reconciler.scaling.backends.node_autoscaler import NodeAutoscaler


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
