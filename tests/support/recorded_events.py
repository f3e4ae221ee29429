"""An EventRecorder that keeps its Events in a list."""

from kube.event_recorder import Event, EventRecorder


class RecordedEvents(EventRecorder):
    def __init__(self) -> None:
        self.is_muted = False
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def taken(self) -> list[Event]:
        """Return the Events since the last call."""
        found = list(self.events)
        self.events.clear()
        return found
