"""The order and times of PodResources calls: new pods soon and often, complete ones seldom.

A pure schedule; `agent.allocations.reporter` makes the calls. kubelet serves 100 calls a second for all of its
clients together, so the agent makes few: one in 50 ms, one in 250 ms where nothing new is expected.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from kube.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Collection

    from api.names import PodUid

PACE_S: Final = 0.05
COMPLETE_PACE_S: Final = 0.25
FIRST_RETRY_S: Final = 0.05
"""kubelet gives a pod its devices some milliseconds after its binding."""
MAX_RETRY_S: Final = 2.0
AGAIN_S: Final = 300.0
"""Seconds between two calls for a pod whose units are known: they should not change."""


@final
@dataclass(slots=True)
class _Open:
    """A pod whose units are not all known."""

    due: float
    backoff: Backoff


@final
class PollSchedule:
    """The pods of the node; times are Clock.monotonic() seconds."""

    def __init__(self) -> None:
        self._open: dict[PodUid, _Open] = {}
        self._complete: dict[PodUid, float] = {}
        # in the order of their times, since each is put at the end with the latest
        self._asked_at = self._complete_asked_at = float("-inf")

    def __contains__(self, uid: "PodUid") -> bool:
        return uid in self._open or uid in self._complete

    def keep(self, uids: "Collection[PodUid]", now: float) -> "set[PodUid]":
        """Schedule exactly these pods, new ones at once; return the removed ones."""
        gone = (self._open.keys() | self._complete.keys()) - set(uids)
        for uid in gone:
            self._open.pop(uid, None)
            self._complete.pop(uid, None)
        for uid in uids:
            if uid not in self:
                self._open[uid] = _open(now)
        return gone

    def next(self) -> "tuple[float, PodUid] | None":
        """Return the time of the next call, and its pod; None where there is no pod."""
        first = min(((item.due, uid) for uid, item in self._open.items()), default=None)
        complete = next(iter(self._complete.items()), None)
        choices = []
        if first is not None:
            choices.append((max(first[0], self._asked_at + PACE_S), first[1]))
        if complete is not None:
            at = max(
                complete[1], self._complete_asked_at + COMPLETE_PACE_S, self._asked_at + PACE_S
            )
            choices.append((at, complete[0]))
        # Of two at the same time the open one, which is the first.
        return min(choices, key=lambda choice: choice[0], default=None)

    def asked(self, uid: "PodUid", now: float) -> None:
        """Record a call; `complete`, `retry` or `confirm` follows with its result."""
        self._asked_at = now
        if uid in self._complete:
            self._complete_asked_at = now

    def complete(self, uid: "PodUid", now: float) -> None:
        """Record that all units of the pod are known."""
        if uid in self:
            self._open.pop(uid, None)
            self._complete.pop(uid, None)
            self._complete[uid] = now + AGAIN_S

    def retry(self, uid: "PodUid", now: float) -> None:
        """Record that units are missing: call again, with exponential backoff."""
        if uid in self:
            self._complete.pop(uid, None)
            open_call = self._open.setdefault(uid, _open(now))
            open_call.due = now + open_call.backoff.fail()

    def confirm(self, uid: "PodUid", now: float, after_s: float) -> None:
        """Record that the response needs a second one to confirm it."""
        if uid in self:
            self._complete.pop(uid, None)
            self._open.setdefault(uid, _open(now)).due = now + after_s

    def recheck_all(self, now: float) -> None:
        """Call for every pod again, at the slow pace: kubelet was restarted."""
        self._complete = dict.fromkeys(self._complete, now)


def _open(due: float) -> _Open:
    return _Open(due, Backoff(base_s=FIRST_RETRY_S, cap_s=MAX_RETRY_S, jitter=0))
