"""Binds that wait until nodes have reported which devices kubelet gave to the pods before them.

The agent's report follows a Binding within a third of a second. `scheduler.bind` says when a pod has to wait, and
docs/design/0011-which-devices.md why.
"""

import asyncio
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from api.names import PodUid

WITHIN_S: Final = 0.9
"""Time limit, in seconds, of one call: with the time of a Binding (`server.binder.BIND_TIMEOUT_S`) below
kube-scheduler's httpTimeout of 5 s."""
GIVE_UP_S: Final = 10.0
"""Time limit, in seconds, for one pod, over all calls: without a report it then counts with the devices that it was
bound with, as on any other node."""
MAX_KEPT: Final = 1024
"""Pods that were waited for; a forgotten one is waited for again."""


@final
class AllocationReports:
    """The waiting calls; `wake` follows each change that may end a wait."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._since: dict[PodUid, float] = {}
        # pod -> when it was first waited for

    def wake(self) -> None:
        """Have every waiting call check again, when other tasks get their turn."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(
        self, unreported: "Callable[[], Mapping[PodUid, str]]"
    ) -> "Mapping[PodUid, str]":
        """Return once nothing is unreported, or what still is when the time is over."""
        ends_at = asyncio.get_running_loop().time() + WITHIN_S
        while awaited := self._awaited(unreported()):
            try:
                async with asyncio.timeout_at(ends_at):
                    await self._changed.wait()
            except TimeoutError:
                return self._awaited(unreported())
        return awaited

    def _awaited(self, pods: "Mapping[PodUid, str]") -> "Mapping[PodUid, str]":
        """Return those of the pods that were not waited for too long."""
        if not pods:
            return pods
        now = asyncio.get_running_loop().time()
        awaited = {
            uid: ref
            for uid, ref in pods.items()
            if now - self._since.setdefault(uid, now) < GIVE_UP_S
        }
        while len(self._since) > MAX_KEPT:
            del self._since[next(iter(self._since))]
        return awaited
