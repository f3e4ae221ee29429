"""Which pod kubelet is asked about next, and when: new ones soon and often, settled ones seldom.

Values and times only; `agent.allocations.reporter` asks. kubelet serves 100 calls a second for all of its clients
together, so that ours are few: one in 50 ms, one in 250 ms where nothing new is expected.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection

    from api.names import PodUid

PACE_S: Final = 0.05
SETTLED_PACE_S: Final = 0.25
FIRST_RETRY_S: Final = 0.05
"""kubelet gives a pod its devices some milliseconds after its binding."""
MAX_RETRY_S: Final = 2.0
AGAIN_S: Final = 300.0
"""Between two looks at a pod whose units are known: they should not change."""


@final
@dataclass(slots=True)
class _Open:
    """A pod of which not everything is known."""

    due: float
    retry_s: float = FIRST_RETRY_S


@final
class PollSchedule:
    """Pods to be asked about; times are Clock.monotonic() seconds."""

    def __init__(self) -> None:
        self._open: dict[PodUid, _Open] = {}
        self._settled: dict[PodUid, float] = {}
        # in the order of their times, since each is put at the end with the latest
        self._asked_at = self._settled_asked_at = float("-inf")

    def __contains__(self, uid: "PodUid") -> bool:
        return uid in self._open or uid in self._settled

    def keep(self, uids: "Collection[PodUid]", now: float) -> "set[PodUid]":
        """Ask about exactly these from now on, new ones at once; return those that are no more."""
        gone = (self._open.keys() | self._settled.keys()) - set(uids)
        for uid in gone:
            self._open.pop(uid, None)
            self._settled.pop(uid, None)
        for uid in uids:
            if uid not in self:
                self._open[uid] = _Open(now)
        return gone

    def next(self) -> "tuple[float, PodUid] | None":
        """Return when to ask, and about which pod; None where there is nobody to ask about."""
        first = min(((one.due, uid) for uid, one in self._open.items()), default=None)
        settled = next(iter(self._settled.items()), None)
        choices = []
        if first is not None:
            choices.append((max(first[0], self._asked_at + PACE_S), first[1]))
        if settled is not None:
            at = max(settled[1], self._settled_asked_at + SETTLED_PACE_S, self._asked_at + PACE_S)
            choices.append((at, settled[0]))
        # Of two at the same time the one that is open: it is the first.
        return min(choices, key=lambda choice: choice[0], default=None)

    def asked(self, uid: "PodUid", now: float) -> None:
        """Note that kubelet is asked; `settle`, `retry` or `confirm` is to follow."""
        self._asked_at = now
        if uid in self._settled:
            self._settled_asked_at = now

    def settle(self, uid: "PodUid", now: float) -> None:
        """Note that all is known of the pod."""
        if uid in self:
            self._open.pop(uid, None)
            self._settled.pop(uid, None)
            self._settled[uid] = now + AGAIN_S

    def retry(self, uid: "PodUid", now: float) -> None:
        """Note that something is missing: ask again, more and more seldom."""
        if uid in self:
            self._settled.pop(uid, None)
            one = self._open.setdefault(uid, _Open(now))
            one.due = now + one.retry_s
            one.retry_s = min(MAX_RETRY_S, 2 * one.retry_s)

    def confirm(self, uid: "PodUid", now: float, after_s: float) -> None:
        """Note that the answer is to be heard once more."""
        if uid in self:
            self._settled.pop(uid, None)
            self._open.setdefault(uid, _Open(now)).due = now + after_s

    def doubt_all(self, now: float) -> None:
        """Ask about everybody again, at the slow pace: kubelet is another."""
        self._settled = dict.fromkeys(self._settled, now)
