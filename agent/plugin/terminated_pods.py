"""Waiting for pods that are over, and whose processes still have units that a new pod is about to get.

The processes of a pod that was deleted by force end in two to three seconds. To wait for that is to keep the
node's other pods from being admitted so long; not to wait, to fail a pod for good. A pod whose processes do
not end is waited for once, and its units are refused or passed over from then on.
"""

import asyncio
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from agent.kubelet.pods import NodePod
    from agent.plugin.held_units import HeldUnits
    from api.names import PodUid

WITHIN_S: Final = 5.0
LOOK_S: Final = 0.05
MAX_KEPT: Final = 256
"""Pods that were waited for; what is forgotten is waited for again."""


@final
class TerminatedPods:
    """Remembers since when it has waited for each."""

    def __init__(self, holdings: "HeldUnits") -> None:
        """Take what is known of holders."""
        self.within_s = WITHIN_S
        """How long a pod is waited for in all."""
        self._holdings = holdings
        self._since: dict[PodUid | None, float] = {}

    async def until_gone(
        self,
        units: "Sequence[str]",
        asking: "NodePod | None",
        look_again: "Callable[[], Awaitable[None]] | None" = None,
    ) -> None:
        """Return once nothing that is over has any of the units, or the time of one is over.

        `look_again` lists anew, and is awaited before each look but the first; without it there is no List
        that says anything of living pods.
        """
        find = self._holdings.passing_holder if look_again else self._holdings.left_holder
        while True:
            found = (find(unit, asking) for unit in units)
            left = {holder.uid for holder in found if holder is not None}
            now = asyncio.get_running_loop().time()
            if not left or now - self._note(left, now) >= self.within_s:
                return
            await asyncio.sleep(LOOK_S)
            if look_again is not None:
                await look_again()

    def _note(self, left: "set[PodUid | None]", now: float) -> float:
        """Return since when the latest of them is waited for."""
        since = max(self._since.setdefault(uid, now) for uid in left)
        while len(self._since) > MAX_KEPT:
            del self._since[next(iter(self._since))]
        return since
