"""Devices that came into their pool a moment ago: kubelet may not have their units yet.

Until it has, a pod that was assigned such a unit gets another unit of the node from the pool's plugin. Units of
other devices are therefore assigned first (`pool.placement.planner`).
"""

from collections import deque
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from api.names import DeviceName

NEW_FOR_S: Final = 90.0
"""kubelet shows a changed ConfigMap to a pool's plugin within its sync period and its cache time, a little more
than 60 s; the plugin then advertises the units at once.
"""
_ADMITTED_AT_ONCE: Final = 1_000
"""These take half a millisecond."""


@final
class NewDevices:
    """Names of new devices, each until its time is over."""

    def __init__(self) -> None:
        self._now = 0.0
        """Time of the last call of `admitted`."""
        self._until: dict[DeviceName, float] = {}
        self._order: deque[tuple[DeviceName, float]] = deque()
        # the same in their order; an entry is stale when the device has gone, or came once more

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, name: "DeviceName") -> bool:
        return name in self._until

    def add(self, name: "DeviceName") -> None:
        until = self._until[name] = self._now + NEW_FOR_S
        self._order.append((name, until))

    def discard(self, name: "DeviceName") -> None:
        self._until.pop(name, None)

    def admitted(self, now: float) -> "list[DeviceName]":
        """Remove and return devices that are no longer new; with very many, some are left for the next call."""
        self._now = now
        found: list[DeviceName] = []
        for _ in range(min(_ADMITTED_AT_ONCE, len(self._order))):
            name, until = self._order[0]
            if until > now:
                break
            self._order.popleft()
            if self._until.get(name) == until:
                del self._until[name]
                found.append(name)
        return found
