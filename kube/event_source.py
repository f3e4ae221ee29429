"""Source of changes: publishes the key of each object that changed, never the event.

Stores, sinks, derived caches and the index's changes are sources; controllers and other sources subscribe.
A subscriber only notes the key: it runs inside the transition that publishes.
"""

import contextlib
from typing import TYPE_CHECKING, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Key = TypeVar("Key")


@final
class EventSource(Generic[Key]):
    """Publishes keys to its subscribers, in the order of their subscriptions."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Key], None]] = []

    def subscribe(self, callback: "Callable[[Key], None]") -> None:
        self._callbacks.append(callback)

    @contextlib.contextmanager
    def subscribed(self, callback: "Callable[[Key], None]") -> "Iterator[None]":
        """Call back for every key while the context lasts."""
        self.subscribe(callback)
        try:
            yield
        finally:
            self._callbacks.remove(callback)

    def publish(self, key: Key) -> None:
        for callback in self._callbacks:
            callback(key)
