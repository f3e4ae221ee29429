"""What a controller wrote of an object, while the watch still shows the object without it.

Comparing with what is old would write everything a second time, and move the times of conditions.
Another writer's change may be shown in between: only a version that is as new as ours has our fields.
"""

from typing import TYPE_CHECKING, Generic, TypeVar, final

import msgspec

from api.meta import ObjectMeta, compared
from reconciler.runtime.expectations import SHOWN_WITHIN_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from pool.model import Instant

T = TypeVar("T")


class Stamped(msgspec.Struct, frozen=True):
    """An API server's answer to a write, as far as it says which version this made."""

    metadata: ObjectMeta


@final
class FieldExpectations(Generic[T]):
    """Fields that we wrote, by the object's name; forgotten once they are shown, or after a while."""

    def __init__(self, now: "Callable[[], Instant]") -> None:
        self._now = now
        self._written: dict[str, tuple[float, ObjectMeta, T]] = {}
        # object -> until when we wait, what the answer to the write says, the fields

    def wrote(self, answer: Stamped, fields: T) -> None:
        """Note what was written, by the answer to the write."""
        until = self._now().monotonic + SHOWN_WITHIN_S
        self._written[answer.metadata.name] = (until, answer.metadata, fields)

    def unseen(self, shown: ObjectMeta) -> T | None:
        """Return what was written and is not in the object as it is shown."""
        written = self._written.get(shown.name)
        if written is None:
            return None
        until, ours, fields = written
        is_same = ours.uid == shown.uid
        if is_same and self._now().monotonic < until and _is_older(shown, ours):
            return fields
        del self._written[shown.name]
        return None

    def forget(self, name: str) -> None:
        """Forget what was written of an object that is gone."""
        self._written.pop(name, None)


def _is_older(shown: ObjectMeta, than: ObjectMeta) -> bool:
    """Say whether a version is older; of those that cannot be compared, whether it is another one."""
    order = compared(shown.resource_version, than.resource_version)
    return order is None or order < 0
