"""Ids of reservations; they cannot be guessed, so an annotation with one was written by the control plane."""

import secrets
from typing import Final, final

from api.names import ReservationId

_BYTES: Final = 12
_AT_ONCE: Final = 256
"""Ids whose randomness is fetched together: a system call for each costs as much as placing a pod."""


@final
class ReservationIds:
    """Returns a new id at every call."""

    def __init__(self) -> None:
        self._random = b""

    def __call__(self) -> ReservationId:
        """Return 96 random bits as 24 hex digits."""
        if not self._random:
            self._random = secrets.token_bytes(_BYTES * _AT_ONCE)
        taken, self._random = self._random[:_BYTES], self._random[_BYTES:]
        return ReservationId(taken.hex())
