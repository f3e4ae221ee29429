"""All backends by their kind, built without I/O."""

from typing import TYPE_CHECKING

from api.kinds.autoscaling import ScalingBackend
from reconciler.scaling.backends.balloon_pods import BalloonPods
from reconciler.scaling.backends.karpenter_native import KarpenterNative
from reconciler.scaling.backends.karpenter_signal import KarpenterSignal
from reconciler.scaling.backends.karpenter_static import KarpenterStatic
from reconciler.scaling.backends.no_autoscaler import NoAutoscaler
from reconciler.scaling.backends.signal_pods import SignalPods
from reconciler.scaling.backends.warm_buffers import WarmBuffers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.controller_spec import ControllerContext
    from reconciler.scaling.backends.node_autoscaler import NodeAutoscaler


def build_backends(context: "ControllerContext") -> "Mapping[ScalingBackend, NodeAutoscaler]":
    settings = context.settings
    signals = SignalPods(
        context.client,
        namespace=settings.workloads.namespace,
        image=settings.autoscaling.signal_image,
        now=context.now,
    )
    signal = KarpenterSignal(context.caches, signals, context.now)
    return {
        ScalingBackend.KARPENTER_SIGNAL: signal,
        ScalingBackend.KARPENTER_NATIVE: KarpenterNative(signal, context.index, context.reader),
        ScalingBackend.CAPACITY_BUFFER: WarmBuffers(
            signal,
            context.client,
            context.caches,
            namespace=settings.workloads.namespace,
            image=settings.autoscaling.signal_image,
            now=context.now,
        ),
        ScalingBackend.KARPENTER_STATIC: KarpenterStatic(
            context.client, context.caches, context.now
        ),
        ScalingBackend.BALLOON: BalloonPods(
            context.caches,
            KarpenterSignal(context.caches, signals, context.now, create=signals.create_balloon),
        ),
        ScalingBackend.NONE: NoAutoscaler(),
    }
