"""What a controller wrote and the watch has not shown yet: until then, what is known is old.

Deciding by the old would write everything a second time. Memory is bounded by time: a write that nobody
shows, as of an object that was deleted right after, is forgotten.
"""

from typing import TYPE_CHECKING, Final, final

from api.meta import compared

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.meta import ObjectMeta
    from pool.model import Instant

SHOWN_WITHIN_S: Final = 30.0
"""A watch that is so far behind costs a write that changes nothing."""


@final
class Expectations:
    """Versions that we wrote, by what they belong to and by object."""

    def __init__(self, now: "Callable[[], Instant]") -> None:
        self._now = now
        self._awaited: dict[str, dict[str, tuple[float, str, str]]] = {}
        # key -> object -> (until when, resourceVersion that we wrote, uid that we deleted)

    def wrote(self, key: str, name: str, version: str) -> None:
        """Wait for the version of an object, or a later one."""
        self._await(key, name, version=version)

    def deleted(self, key: str, name: str, uid: str) -> None:
        """Wait until the object of this uid is gone."""
        self._await(key, name, uid=uid)

    def _await(self, key: str, name: str, *, version: str = "", uid: str = "") -> None:
        until = self._now().monotonic + SHOWN_WITHIN_S
        self._awaited.setdefault(key, {})[name] = (until, version, uid)

    def are_shown(self, key: str, shown: "Callable[[str], ObjectMeta | None]") -> bool:
        """Say whether the watch has shown all that was written for the key."""
        awaited = self._awaited.get(key)
        if awaited is None:
            return True
        now = self._now().monotonic
        for name, (until, version, uid) in list(awaited.items()):
            if now >= until or _is_shown(shown(name), version, uid):
                del awaited[name]
        if awaited:
            return False
        del self._awaited[key]
        return True


def _is_shown(shown: "ObjectMeta | None", version: str, uid: str) -> bool:
    if uid:
        return shown is None or shown.uid != uid
    if shown is None:
        return False
    order = compared(shown.resource_version, version)
    return order is not None and order >= 0
