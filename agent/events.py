"""Events that a node's agent writes: on pods, and on the devices of its cards."""

from typing import TYPE_CHECKING, Final, Literal, final

from api.names import API_VERSION
from kube.events import Event, ObjectReference

if TYPE_CHECKING:
    from agent.kubelet.pods import NodePod
    from api.kinds.gpudevice import GPUDevice
    from kube.events import EventRecorder
    from telemetry.reasons import EventReason

ALLOCATE: Final = "AllocateDevices"
PARTITION: Final = "PartitionDevice"

Type = Literal["Normal", "Warning"]


@final
class NodeEvents:
    """Remembers what to tell; the recorder writes it in its own time."""

    def __init__(self, recorder: "EventRecorder") -> None:
        self._recorder = recorder

    def tell_pod(self, pod: "NodePod", reason: "EventReason", note: str) -> None:
        """Warn on a pod, about the devices of one of its containers."""
        regarding = ObjectReference(
            api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
        )
        self._recorder.emit(
            Event(
                regarding=regarding, type="Warning", reason=reason.value, action=ALLOCATE, note=note
            )
        )

    def tell_device(
        self, device: "GPUDevice", reason: "EventReason", note: str, *, type_: Type
    ) -> None:
        """Tell on a device, about how its card is cut."""
        metadata = device.metadata
        regarding = ObjectReference(
            api_version=API_VERSION, kind="GPUDevice", name=metadata.name, uid=metadata.uid
        )
        self._recorder.emit(
            Event(regarding=regarding, type=type_, reason=reason.value, action=PARTITION, note=note)
        )
