"""Caches that pods of the node wait for: those in their specs, and those that kubelet asked for in vain."""

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.cache_name import CacheName
    from api.clock import Clock

AWAITED_FOR_S: Final = 300.0
"""After a call in vain; kubelet calls again after two minutes at most."""


@final
class AwaitedCaches:
    """What pods wait for; every method is one step."""

    def __init__(self, clock: "Clock", in_specs: "Callable[[], frozenset[CacheName]]") -> None:
        """`in_specs` returns the caches of pods that have not mounted them."""
        self._clock = clock
        self._in_specs = in_specs
        self._until: dict[CacheName, float] = {}

    def ask(self, cache: "CacheName") -> bool:
        """Note a call in vain; return whether that is news."""
        is_news = cache not in self._until
        self._until[cache] = self._clock.monotonic() + AWAITED_FOR_S
        return is_news

    def names(self) -> "frozenset[CacheName]":
        """Return the caches that are awaited now."""
        now = self._clock.monotonic()
        self._until = {name: until for name, until in self._until.items() if until > now}
        return frozenset(self._until) | self._in_specs()

    def got(self, cache: "CacheName") -> None:
        """Note that a pod has mounted it."""
        self._until.pop(cache, None)

    def ends_in_s(self) -> float | None:
        """Return when the next one is not awaited any more."""
        now = self._clock.monotonic()
        return min((max(until - now, 0.0) for until in self._until.values()), default=None)
