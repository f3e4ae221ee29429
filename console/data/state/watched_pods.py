"""Pods into the allocation state, and what the console shows of those of pools besides the core's facts.

The server makes reservations and writes them into annotations; here they are known by the annotations alone. So a
pending pod whose annotation changes is taken for a new pod, whose reservation is restored.
"""

from typing import TYPE_CHECKING, Final, final

import msgspec

from api.names import PodUid
from kube.batches import steps
from pool.facts import observed_pod
from pool.model import PodPhase, UnitlessPod
from pool.pods.conditions import scheduler_refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from api.annotations import Devices, ReservationNote
    from api.clock import Instant
    from api.foreign.core import Pod
    from kube.unread_objects import UnreadObject
    from pool.allocation_state import AllocationState
    from pool.model import PodFacts

_MOST_CHARACTERS: Final = 1024
"""Most words of kube-scheduler's message, which others may write, too."""


@final
class WatchedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod of a pool."""

    facts: "PodFacts"
    scheduler: str = ""
    """kube-scheduler's last refusal of a pending pod."""
    service_account: str = ""


def watched_pod(pod: "Pod") -> WatchedPod | UnitlessPod | None:
    """Return what is kept of a pod; None for one that asks for no unit and is on no node."""
    facts = observed_pod(pod)
    if facts is None or isinstance(facts, UnitlessPod):
        return facts
    if facts.phase is not PodPhase.PENDING:
        return WatchedPod(facts)
    return WatchedPod(
        facts, scheduler_refusal(pod)[:_MOST_CHARACTERS], pod.spec.service_account_name
    )


@final
class WatchedPods:
    """Keeps the pods of the allocation state equal to the API server's: the sink of an informer."""

    def __init__(
        self,
        state: "AllocationState",
        now: "Callable[[], Instant]",
        on_change: "Callable[[PodFacts], None]",
    ) -> None:
        """Start without pods.

        Args:
            state: that they go to.
            now: reads the clock.
            on_change: called after a change with what a pod was, and with what it is now.
        """
        self._state = state
        self._now = now
        self._on_change = on_change
        self._seen: dict[PodUid, WatchedPod] = {}
        self._uid_by_ref: dict[str, PodUid] = {}
        # namespace/name -> the pod that has it now

    def get(self, uid: "PodUid") -> WatchedPod | None:
        return self._seen.get(uid)

    def named(self, ref: str) -> WatchedPod | None:
        """Return the pod of a name, as namespace/name."""
        uid = self._uid_by_ref.get(ref)
        return self._seen.get(uid) if uid is not None else None

    def last_read(self, unread: "UnreadObject") -> WatchedPod | UnitlessPod | None:
        uid = PodUid(unread.uid)
        return self._seen.get(uid) or self._state.reader.unitless_pod(uid)

    def replace_all(self, items: "Sequence[WatchedPod | UnitlessPod]") -> None:
        """Take over a full list; pods that are not in it are gone."""
        for _ in self.replace_in_steps(items):
            pass

    def replace_in_steps(self, items: "Sequence[WatchedPod | UnitlessPod]") -> "Iterator[None]":
        """Take over a full list in steps."""
        pods = [item for item in items if isinstance(item, WatchedPod)]
        unitless = [item for item in items if isinstance(item, UnitlessPod)]
        listed = {item.facts.uid for item in pods}
        gone = [entry for uid, entry in self._seen.items() if uid not in listed]
        for entry in steps(gone):
            for item in entry:
                self.discard(item)
            yield
        kept = {pod.uid for pod in unitless}
        for uid in [uid for uid in self._state.reader.unitless_pods() if uid not in kept]:
            self._state.discard_unitless(uid)
        for some_unitless in steps(unitless):
            for pod in some_unitless:
                self.upsert(pod)
            yield
        for entry in steps(sorted(pods, key=lambda item: item.facts.phase.observe_order)):
            for item in entry:
                self.upsert(item)
            yield

    def upsert(self, item: WatchedPod | UnitlessPod) -> None:
        if isinstance(item, UnitlessPod):
            self._state.observe_unitless(item)
            return
        facts = item.facts
        self._forget_reservation(facts)
        self._state.observe_pod(facts, self._now())
        before = self._seen.get(facts.uid)
        if before == item:
            return
        self._seen[facts.uid] = item
        self._uid_by_ref[facts.ref] = facts.uid
        if before is not None:
            self._on_change(before.facts)
        self._on_change(facts)

    def discard(self, item: WatchedPod | UnitlessPod) -> None:
        if isinstance(item, UnitlessPod):
            self._state.discard_unitless(item.uid)
            return
        facts = item.facts
        self._state.discard_pod(facts.uid)
        self._seen.pop(facts.uid, None)
        if self._uid_by_ref.get(facts.ref) == facts.uid:
            del self._uid_by_ref[facts.ref]
        self._on_change(facts)

    def _forget_reservation(self, facts: "PodFacts") -> None:
        """Drop a pending pod whose annotation says other than its reservation; a later expiry is taken over."""
        before = self._state.reader.pods.get(facts.uid)
        if before is None or facts.phase is not PodPhase.PENDING:
            return
        current, note = before.reservation, facts.reservation
        if note == current:
            return
        if (
            note is None
            or current is None
            or _place_of(note) != _place_of(current)
            or self._state.reader.ledger.of_pod(facts.uid) is None
        ):
            self._state.discard_pod(facts.uid)
        elif note.expires_at is not None:
            now = self._now()
            self._state.extend(facts.uid, (note.expires_at - now.utc).total_seconds(), now)


def _place_of(note: "ReservationNote") -> "tuple[str, str, Devices]":
    return note.id, note.node, note.devices
