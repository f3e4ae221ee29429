"""What is told when a card becomes faulty or well: on the device, and on each pod that runs on it."""

from typing import TYPE_CHECKING, Final, final

from api.text import listed
from kube.events import ObjectReference
from kube.resources import GPU_DEVICES, PODS
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from api.kinds.gpudevice import GPUDevice
    from inventory.health.device import Fault
    from kube.events import EventRecorder
    from pool.allocation_reader import AllocationReader
    from pool.model import PodFacts


ACTION: Final = "WatchHealth"


@final
class FaultEvents:
    """Tells of faults; pods are left alone, and named."""

    def __init__(self, recorder: "EventRecorder", reader: "AllocationReader") -> None:
        """Take who writes Events, and who knows which pods run where."""
        self._recorder = recorder
        self._reader = reader

    def faulted(self, device: "GPUDevice", fault: "Fault") -> None:
        """Say that a card is faulty, or that something else is wrong with it now."""
        pods = self._pods_on(device)
        runs = f"; it is left to {listed(pod.ref for pod in pods)}" if pods else ""
        self._recorder.warning(
            ObjectReference.to(GPU_DEVICES, device.metadata),
            EventReason.DEVICE_FAULTED,
            f"{fault.text}: no new pod gets the device{runs}",
            action=ACTION,
        )
        for pod in pods:
            self._recorder.warning(
                ObjectReference.to(PODS, pod),
                EventReason.DEVICE_FAULTED,
                f"GPU {device.name} of this pod is faulty: {fault.text}; the pod is left alone,"
                " delete it to have its successor placed on another device",
                action=ACTION,
            )

    def recovered(self, device: "GPUDevice") -> None:
        """Say that a card is well again."""
        self._recorder.normal(
            ObjectReference.to(GPU_DEVICES, device.metadata),
            EventReason.DEVICE_RECOVERED,
            "the device is healthy again: new pods may get it",
            action=ACTION,
        )

    def _pods_on(self, device: "GPUDevice") -> "list[PodFacts]":
        return sorted(self._reader.pods_on(device.name), key=lambda pod: pod.ref)
