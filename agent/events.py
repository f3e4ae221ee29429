"""Events of a node's agent: on pods and on GPUDevices."""

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
    """Records Events; the recorder writes them in its own time."""

    def __init__(self, recorder: "EventRecorder") -> None:
        self._recorder = recorder

    def tell_pod(self, pod: "NodePod", reason: "EventReason", note: str) -> None:
        """Record a Warning on a pod, about the devices of one of its containers."""
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
        """Record an Event on a GPUDevice, about its partitioning."""
        metadata = device.metadata
        regarding = ObjectReference(
            api_version=API_VERSION, kind="GPUDevice", name=metadata.name, uid=metadata.uid
        )
        self._recorder.emit(
            Event(regarding=regarding, type=type_, reason=reason.value, action=PARTITION, note=note)
        )
