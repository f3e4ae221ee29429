"""GPUDevices: into the stores, and which of them show something else than before that the index does not keep."""

from typing import TYPE_CHECKING, final

from kube.batches import steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from console.data.state.changed_keys import ChangedKeys
    from kube.unread_objects import UnreadObject
    from reconciler.sinks.device_sink import DeviceSink, ObservedDevice


@final
class WatchedDevices:
    """The sink of an informer, in front of the server's own."""

    def __init__(self, sink: "DeviceSink", changed: "ChangedKeys") -> None:
        self._sink = sink
        self._changed = changed

    def known(self, unread: "UnreadObject") -> "ObservedDevice | None":
        return self._sink.known(unread)

    def replace_all(self, items: "Sequence[ObservedDevice]") -> None:
        """Take over a full list; devices that are not in it are gone."""
        for _ in self.replacing(items):
            pass

    def replacing(self, items: "Sequence[ObservedDevice]") -> "Iterator[None]":
        """Take over a full list in steps."""
        news: list[ObservedDevice] = []
        for entry in steps(items):
            news += filter(self._is_news, entry)
            yield
        yield from self._sink.replacing(items)
        for item in news:
            self._note(item)

    def upsert(self, item: "ObservedDevice") -> None:
        is_news = self._is_news(item)
        self._sink.upsert(item)
        if is_news:
            self._note(item)

    def discard(self, item: "ObservedDevice") -> None:
        self._sink.discard(item)

    def _is_news(self, item: "ObservedDevice") -> bool:
        known = self._sink.store.get(item.facts.name)
        if known is None:
            return True
        before, after = known.status, item.device.status
        return (before.conditions, before.product, before.pci) != (
            after.conditions,
            after.product,
            after.pci,
        )

    def _note(self, item: "ObservedDevice") -> None:
        self._changed.devices.add(item.facts.name)
        self._changed.nodes.add(item.facts.node)
