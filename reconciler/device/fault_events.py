"""Events when a device becomes faulty or healthy: on the device, and on each pod that uses it."""

from typing import TYPE_CHECKING, Final, final

from api.text import listed
from kube.event_recorder import ObjectReference
from kube.resources import GPU_DEVICES, PODS
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from api.kinds.gpudevice import GPUDevice
    from inventory.health.device import Fault
    from kube.event_recorder import EventRecorder
    from pool.allocation_reader import AllocationReader
    from pool.model import PodFacts


ACTION: Final = "WatchHealth"


@final
class FaultEvents:
    """Records faults; pods are not evicted, and are named in the Event."""

    def __init__(self, recorder: "EventRecorder", reader: "AllocationReader") -> None:
        self._recorder = recorder
        self._reader = reader

    def faulted(self, device: "GPUDevice", fault: "Fault") -> None:
        """Record that a device is faulty, or has another fault now."""
        pods = self._pods_on(device)
        used_by = f"; still used by {listed(pod.ref for pod in pods)}" if pods else ""
        self._recorder.warning(
            ObjectReference.to(GPU_DEVICES, device.metadata),
            EventReason.DEVICE_FAULTED,
            f"{fault.text}: no new pods are placed on the device{used_by}",
            action=ACTION,
        )
        for pod in pods:
            self._recorder.warning(
                ObjectReference.to(PODS, pod),
                EventReason.DEVICE_FAULTED,
                f"device {device.name} of this pod is faulty: {fault.text}; the pod is not evicted:"
                " delete it to have its replacement placed on another device",
                action=ACTION,
            )

    def recovered(self, device: "GPUDevice") -> None:
        self._recorder.normal(
            ObjectReference.to(GPU_DEVICES, device.metadata),
            EventReason.DEVICE_RECOVERED,
            "the device is healthy again and accepts new pods",
            action=ACTION,
        )

    def _pods_on(self, device: "GPUDevice") -> "list[PodFacts]":
        return sorted(self._reader.pods_on(device.name), key=lambda pod: pod.ref)
