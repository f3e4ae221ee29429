"""Waits for the processes of terminated pods that still use units of the pod being admitted.

The processes of a pod that was deleted by force end in two to three seconds. Waiting delays the admission of
the node's other pods; not waiting fails a pod for good. A pod whose processes do not end is waited for once;
after that its units are refused or passed over.
"""

import asyncio
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from agent.kubelet.node_pods import NodePod
    from agent.plugin.held_units import HeldUnits
    from api.names import PodUid

WITHIN_S: Final = 5.0
CHECK_EVERY_S: Final = 0.05
MAX_KEPT: Final = 256
"""Pods that were waited for; a forgotten one is waited for again."""


@final
class TerminatedPods:
    """Terminated pods that hold units, each with the start of the wait."""

    def __init__(self, held_units: "HeldUnits") -> None:
        self.within_s = WITHIN_S
        """The longest wait for one pod, over all calls."""
        self._held_units = held_units
        self._since: dict[PodUid | None, float] = {}

    async def wait_until_gone(
        self,
        units: "Sequence[str]",
        admitted: "NodePod | None",
        list_again: "Callable[[], Awaitable[None]] | None" = None,
    ) -> None:
        """Return once no terminated pod has any of the units, or the wait for one is over.

        `list_again` refreshes the List before each check but the first; without it there is no List that
        covers running pods.
        """
        find = (
            self._held_units.transient_holder if list_again else self._held_units.terminated_holder
        )
        while True:
            found = (find(unit, admitted) for unit in units)
            left = {holder.uid for holder in found if holder is not None}
            now = asyncio.get_running_loop().time()
            if not left or now - self._waiting_since(left, now) >= self.within_s:
                return
            await asyncio.sleep(CHECK_EVERY_S)
            if list_again is not None:
                await list_again()

    def _waiting_since(self, left: "set[PodUid | None]", now: float) -> float:
        """Return the latest start of a wait."""
        since = max(self._since.setdefault(uid, now) for uid in left)
        while len(self._since) > MAX_KEPT:
            del self._since[next(iter(self._since))]
        return since
