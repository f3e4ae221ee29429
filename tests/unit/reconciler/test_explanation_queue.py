"""When a waiting pod is explained and written: against a model that keeps the whole history and searches it."""

import random
from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from api.clock import Instant
from api.names import PodUid
from api.status_conditions import format_time
from pool.model import PodFacts, PodPhase, UnitsCondition
from reconciler.pod.explanation_queue import (
    AFTER_S,
    AGAIN_S,
    MOST_DUE,
    PAUSE_S,
    REFUSED_FOR_S,
    RESYNC_S,
    STAMP_S,
    ExplanationQueue,
)
from tests.support.builders import a_pod_facts, at

OUTCOMES = ("explained", "wrote", "failed", "refused")
PAUSES = {"explained": AGAIN_S, "wrote": PAUSE_S, "failed": PAUSE_S, "refused": REFUSED_FOR_S}


def says_it_waits(now: Instant) -> UnitsCondition:
    moment = format_time(now.utc)
    return UnitsCondition(False, "UnitsExhausted", "none free", moment, moment)


class TurnsRun:
    """Two pools, six pods; looks, and what comes of them, at any time."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.queue = ExplanationQueue()
        self.pods: dict[PodUid, PodFacts] = {}
        self.waiting: set[PodUid] = set()
        self.said: defaultdict[PodUid, list[tuple[float, str]]] = defaultdict(list)
        # pod -> (when, what): "waits", "stops", and the outcomes
        self.changes: dict[str, list[float]] = {"a": [], "b": []}
        self.sent: defaultdict[PodUid, list[float]] = defaultdict(list)
        # pod -> when a write was sent, by whichever leader

        self.deleted: Counter[int] = Counter()
        # number -> pods that had it: each has a uid of its own

    def name(self, number: int) -> str:
        return f"p{number}-{self.deleted[number]}"

    def time(self) -> Instant:
        return at(self.now)

    # --- what others do ----------------------------------------------------------------------------

    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    def a_pod_waits(self, number: int) -> None:
        name = self.name(number)
        pod = a_pod_facts(name, pool="ab"[number % 2], created=str(number))
        self.pods.setdefault(pod.uid, pod)
        if self.pods[pod.uid].phase is PodPhase.PENDING:
            self.waiting.add(pod.uid)

    def a_pod_waits_no_more(self, number: int, *, is_bound: bool) -> None:
        uid = PodUid(f"uid-{self.name(number)}")
        self.waiting.discard(uid)
        if uid in self.pods and is_bound:
            self.pods[uid] = replace(self.pods[uid], phase=PodPhase.BOUND)

    def a_pod_is_deleted(self, number: int) -> None:
        uid = PodUid(f"uid-{self.name(number)}")
        self.deleted[number] += 1
        self.waiting.discard(uid)
        for by_uid in (self.pods, self.said, self.sent):
            by_uid.pop(uid, None)

    def a_pool_changes(self, pool: str) -> None:
        self.queue.note_change(f"gpu.deckhouse.io/{pool}", self.now)
        self.changes[pool].append(self.now)

    def another_leader_begins(self) -> None:
        self.queue = ExplanationQueue()
        for pod in self.pods.values():
            self.queue.adopt(pod, self.time())
        for uid in self.said:
            self.said[uid] = []
        self.changes = {"a": [], "b": []}

    # --- looks -------------------------------------------------------------------------------------

    def explain(self, outcomes: list[str], *, is_visible: bool) -> None:
        for uid in self.pods:
            state = "waits" if uid in self.waiting else "stops"
            if self.last_state(uid) != state:
                self.said[uid].append((self.now, state))
        due = self.queue.due([self.pods[uid] for uid in self.waiting], self.time())
        self.check(due)
        explained = [
            self.last_explained(pod.uid)
            for pod in due
            if "stops" not in [what for _, what in self.said[pod.uid]]
        ]
        assert explained == sorted(explained), "the one that was explained longest ago is first"
        for pod, outcome in zip(due, outcomes, strict=False):
            as_of = {"as_of": self.now} if outcome in {"explained", "wrote"} else {}
            getattr(self.queue, outcome)(pod.uid, self.now, **as_of)
            self.said[pod.uid].append((self.now, outcome))
            if outcome == "wrote" or (outcome == "failed" and is_visible):
                self.note_write(pod.uid)
                self.pods[pod.uid] = replace(pod, units_condition=says_it_waits(self.time()))
        stale = self.queue.stale(self.pods.get, self.time())
        for pod in stale:
            assert pod.uid not in self.waiting
            assert pod.units_condition is not None
            assert not pod.units_condition.is_true
        self.check_stale({pod.uid for pod in stale})
        assert len(self.queue) <= len(self.pods), "pods that are gone are remembered"
        for pod in stale:
            self.note_write(pod.uid)
            self.queue.wrote(pod.uid, self.now, as_of=self.now)
            self.said[pod.uid].append((self.now, "wrote"))
            self.pods[pod.uid] = replace(pod, units_condition=None)

    def note_write(self, uid: PodUid) -> None:
        if self.sent[uid] and self.pods[uid].units_condition is not None:
            assert self.now - self.sent[uid][-1] >= PAUSE_S, "two writes of a pod within the pause"
        self.sent[uid].append(self.now)

    # --- the model ---------------------------------------------------------------------------------

    def last_state(self, uid: PodUid) -> str | None:
        states = [what for _, what in self.said[uid] if what in {"waits", "stops"}]
        return states[-1] if states else None

    def last_explained(self, uid: PodUid) -> float:
        return max((when for when, what in self.said[uid] if what in OUTCOMES), default=0.0)

    def may_be_written(self, uid: PodUid, slack: float) -> bool:
        pauses = [when + PAUSES.get(what, 0.0) for when, what in self.said[uid]]
        if self.sent[uid] and self.pods[uid].units_condition is not None:
            pauses.append(self.sent[uid][-1] + PAUSE_S + slack)
        return all(self.now >= end for end in pauses)

    def wants_explanation(self, uid: PodUid) -> bool:
        outcomes = [item for item in self.said[uid] if item[1] in OUTCOMES]
        if not outcomes:
            return True
        when, what = outcomes[-1]
        pool = self.pods[uid].demand.resource[-1]
        return (
            what in {"failed", "refused"}
            or any(change >= when for change in self.changes[pool])
            or self.now - when >= RESYNC_S
            or any(said == "waits" and moment >= when for moment, said in self.said[uid])
        )

    def is_due(self, uid: PodUid, *, slack: float) -> bool:
        waits = [when for when, what in self.said[uid] if what == "waits"]
        is_long = self.now - waits[-1] >= AFTER_S
        return is_long and self.may_be_written(uid, slack) and self.wants_explanation(uid)

    def check(self, due: list[PodFacts]) -> None:
        found = {pod.uid for pod in due}
        assert found <= {uid for uid in self.waiting if self.is_due(uid, slack=0.0)}
        assert found >= {uid for uid in self.waiting if self.is_due(uid, slack=STAMP_S)}

    def check_stale(self, found: set[PodUid]) -> None:
        stale = [
            uid
            for uid, pod in self.pods.items()
            if uid not in self.waiting and pod.units_condition is not None
        ]
        assert found <= {uid for uid in stale if self.may_be_written(uid, 0.0)}
        assert found >= {uid for uid in stale if self.may_be_written(uid, STAMP_S)}


def act(run: TurnsRun, rng: random.Random) -> None:
    number = rng.randrange(6)
    match rng.choices(range(7), (30, 12, 5, 2, 6, 1, 40))[0]:
        case 0:
            run.time_passes(rng.choice((0.25, 1, 1, 3, 7, 20, 31, 130)))
        case 1:
            run.a_pod_waits(number)
        case 2:
            run.a_pod_waits_no_more(number, is_bound=rng.random() < 0.3)
        case 3:
            run.a_pod_is_deleted(number)
        case 4:
            run.a_pool_changes(rng.choice("ab"))
        case 5:
            run.another_leader_begins()
        case _:
            outcomes = rng.choices(OUTCOMES, (4, 4, 1, 1), k=rng.randrange(7))
            run.explain(outcomes, is_visible=rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(40))
def test_turns_are_those_of_the_model(seed: int):
    rng, run = random.Random(seed), TurnsRun()
    for _ in range(400):
        act(run, rng)
    assert run.sent


def test_pods_that_are_gone_or_bound_are_forgotten():
    queue = ExplanationQueue()
    pods = [a_pod_facts(f"p{number}") for number in range(3)]
    queue.due(pods, at(0))
    assert len(queue) == 3
    queue.due([], at(1))
    assert queue.stale({pods[0].uid: pods[0]}.get, at(1)) == []
    assert len(queue) == 0


def test_the_queue_decides_between_pods_that_were_never_explained():
    queue = ExplanationQueue()
    young = a_pod_facts("young", created="2026-01-02T00:00:00Z")
    old = a_pod_facts("old", created="2026-01-01T00:00:00Z")
    urgent = a_pod_facts("urgent", created="2026-01-03T00:00:00Z", priority=5)
    queue.due([young, old, urgent], at(0))
    assert [pod.name for pod in queue.due([young, old, urgent], at(AFTER_S))] == [
        "urgent",
        "old",
        "young",
    ]


def test_a_condition_with_a_time_to_come_or_none_delays_a_pod_by_a_pause_at_most():
    for written in ("2027-01-01T00:00:00Z", "yesterday", ""):
        queue = ExplanationQueue()
        current = UnitsCondition(False, "UnitsExhausted", "none free", written, written)
        pod = a_pod_facts(units_condition=current)
        queue.due([pod], at(0))
        assert queue.due([pod], at(PAUSE_S + STAMP_S)) == [pod]


def test_a_change_after_the_explanation_and_before_its_write_is_not_missed():
    queue, pod = ExplanationQueue(), a_pod_facts()
    queue.due([pod], at(0))
    assert queue.due([pod], at(10)) == [pod]
    queue.note_change(pod.demand.resource, 11)
    queue.wrote(pod.uid, 12, as_of=10)
    assert queue.due([pod], at(12 + PAUSE_S)) == [pod]


def test_so_many_pods_have_a_turn_at_once_and_the_others_later():
    queue, pods = ExplanationQueue(), [a_pod_facts(f"p{n}") for n in range(MOST_DUE + 3)]
    queue.due(pods, at(0))
    first = queue.due(pods, at(AFTER_S))
    assert len(first) == MOST_DUE
    for pod in first:
        queue.explained(pod.uid, AFTER_S, as_of=AFTER_S)
    remaining = queue.due(pods, at(AFTER_S))
    assert {pod.uid for pod in remaining} == {pod.uid for pod in pods} - {pod.uid for pod in first}
