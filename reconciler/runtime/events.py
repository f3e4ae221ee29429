"""Events that controllers write, each once per change: told when something became so, not while it is so."""

from typing import TYPE_CHECKING, final

from kube.events import Event, ObjectReference
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, GPU_POOLS

if TYPE_CHECKING:
    from typing import Protocol

    from api.meta import ObjectMeta
    from kube.resources import Resource
    from telemetry.reasons import EventReason

    class Recorder(Protocol):
        """Takes events; a `kube.events.EventRecorder`."""

        def emit(self, event: Event) -> None:
            """Have the event written soon; never blocks, never raises."""


@final
class Announcer:
    """Says what a controller did or found, about one of our objects or a pod."""

    def __init__(self, recorder: "Recorder", action: str) -> None:
        """Take the recorder, and what the controller does, in PascalCase."""
        self._recorder = recorder
        self._action = action

    def note(self, regarding: ObjectReference, reason: "EventReason", text: str) -> None:
        """Say something that is as it should be."""
        self._recorder.emit(
            Event(
                regarding=regarding,
                type="Normal",
                reason=reason.value,
                action=self._action,
                note=text,
            )
        )

    def warn(self, regarding: ObjectReference, reason: "EventReason", text: str) -> None:
        """Say something that somebody should look at."""
        self._recorder.emit(
            Event(
                regarding=regarding,
                type="Warning",
                reason=reason.value,
                action=self._action,
                note=text,
            )
        )


def about(resource: "Resource", metadata: "ObjectMeta") -> ObjectReference:
    """Return a reference to an object; kubectl shows no event without its uid."""
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
    )


def about_device(metadata: "ObjectMeta") -> ObjectReference:
    """Return a reference to a GPUDevice."""
    return about(GPU_DEVICES, metadata)


def about_pool(metadata: "ObjectMeta") -> ObjectReference:
    """Return a reference to a GPUPool."""
    return about(GPU_POOLS, metadata)


def about_inventory(metadata: "ObjectMeta") -> ObjectReference:
    """Return a reference to a GPUNodeInventory."""
    return about(GPU_NODE_INVENTORIES, metadata)
