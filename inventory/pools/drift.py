"""Drift of a pool's devices: others partition them, again and again or many at once. Pure.

A single device that differs is withheld by the index, and its agent partitions it again once nothing runs on it. Where
that does not help, the pool goes into maintenance until an operator has found who else partitions its devices, and
confirms that for the present generation of the pool: the annotation of an earlier one says nothing about it.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Final, final

from api.names import CONFIRM_ANNOTATION
from api.text import listed, truncate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.kinds.gpupool import GPUPool
    from api.names import DeviceName

SHARE: Final = 3
"""More than the third part of a pool's devices is too much …"""
LASTING_S: Final = 300.0
"""… when it lasts as long: a node that boots has no instances for a minute or two."""
LOSSES: Final = 3
"""Losses of one device within the window that are a fight between two programs."""
WINDOW_S: Final = 3600.0
_MAX_QUOTED: Final = 32
_TO_END: Final = "; once nobody else partitions them: "


@final
class LayoutHistory:
    """When the devices of a pool lost their layout, as one process saw it."""

    def __init__(self) -> None:
        self._counted: Mapping[DeviceName, int] | None = None
        self._lost_at: defaultdict[DeviceName, list[float]] = defaultdict(list)
        self._many_since: float | None = None

    def forget(self) -> None:
        """Begin again: an operator has confirmed that it is over."""
        self._lost_at.clear()
        self._many_since = None

    def observe(
        self,
        losses: "Mapping[DeviceName, int]",
        differing: "Mapping[DeviceName, int]",
        *,
        devices: int,
        now: float,
    ) -> str:
        """Return why an operator has to see to the devices; empty while their agents may bring them back.

        Args:
            losses: how often each device has lost its layout in this pool.
            differing: the devices without their layout now.
            devices: number of the pool's devices.
            now: monotonic seconds.
        """
        counted = losses if self._counted is None else self._counted
        for name, count in losses.items():
            times = self._lost_at[name]
            times += [now] * (count - counted.get(name, 0))
            times[:] = [time for time in times if now - time < WINDOW_S]
        self._counted = dict(losses)
        fought = sorted(name for name, times in self._lost_at.items() if len(times) >= LOSSES)
        if fought:
            return f"another program keeps partitioning {listed(fought)}"
        lost = sorted(name for name in differing if losses.get(name))
        if len(lost) * SHARE <= devices:
            self._many_since = None
            return ""
        if self._many_since is None:
            self._many_since = now
        if now - self._many_since < LASTING_S:
            return ""
        return f"{len(lost)} of {devices} devices were partitioned by others ({listed(lost)})"


def is_confirmed(pool: "GPUPool") -> bool:
    """Say whether an operator has confirmed the present generation of a pool whose condition reports drift."""
    confirmed = pool.metadata.annotation(CONFIRM_ANNOTATION)
    return pool.drift is not None and confirmed == str(pool.metadata.generation)


def drift_text(pool: "GPUPool", cause: str) -> str:
    """Return the condition's text: the cause, that which it has already or a new one, and what ends it."""
    if pool.drift is not None:
        cause = pool.drift.message.partition(_TO_END)[0]
    text = (
        f"{cause}{_TO_END}kubectl annotate --overwrite gpupool {pool.name}"
        f" {CONFIRM_ANNOTATION}={pool.metadata.generation}"
    )
    refused = pool.metadata.annotation(CONFIRM_ANNOTATION)
    if refused is None:
        return text
    return f"{text} ({truncate(refused, _MAX_QUOTED)} is not the pool's generation, and confirms nothing)"
