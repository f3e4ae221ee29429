"""A snapshot for viewers with equal rights, and what has changed since it was taken."""

from typing import Final, final

MOST_LATER: Final = 256 * 1024
"""Bytes of changes after which a new snapshot is made: a viewer takes both."""


@final
class SharedSnapshot:
    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.later: list[bytes] = []
        """Events since it was taken, also while it was made."""
        self._later_bytes = 0

    def add(self, event: bytes) -> None:
        self.later.append(event)
        self._later_bytes += len(event)

    @property
    def is_old(self) -> bool:
        return self._later_bytes > MOST_LATER
