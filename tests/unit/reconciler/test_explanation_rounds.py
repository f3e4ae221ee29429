"""Explanations take their share of the time, and every pod has its turn nevertheless."""

from collections import Counter

from api.clock import Instant
from api.names import PodUid
from pool.model import Demand, PodFacts
from pool.what_if.explanation import UnitWaitReason
from reconciler.pod.shared_explanations import WaitText
from reconciler.pod.wait_explanation import MOST_EXPLAINED_S, SHARE, WaitExplanation
from tests.support.builders import a_pod_facts, at
from tests.support.controllers import a_context

KINDS = 20
COST_S = 0.05
FREE = WaitText(UnitWaitReason.UNITS_AVAILABLE, "a node has them")


class SteppedClock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def instant(self) -> Instant:
        return at(self.seconds)


class SlowExplainer:
    """Takes its time for each demand once; a pod that fits and says nothing costs no write."""

    def __init__(self, clock: SteppedClock, explained: Counter[PodUid]) -> None:
        self.clock, self.explained = clock, explained
        self.explained_demands: set[Demand] = set()

    def has_explained(self, pod: PodFacts) -> bool:
        return pod.demand in self.explained_demands

    def explain(self, pod: PodFacts) -> WaitText:
        if not self.has_explained(pod):
            self.clock.seconds += COST_S
        self.explained_demands.add(pod.demand)
        self.explained[pod.uid] += 1
        return FREE


async def test_explanations_take_their_share_and_each_pod_has_its_turn():
    clock, explained = SteppedClock(), Counter[PodUid]()
    context = a_context(clock=clock)
    pods = [a_pod_facts(f"p{n:03}", units=n % KINDS + 1) for n in range(4 * KINDS)]
    for pod in pods:
        context.allocation_state.observe_pod(pod, clock.instant())
    made: list[SlowExplainer] = []

    def new() -> SlowExplainer:
        made.append(SlowExplainer(clock, explained))
        return made[-1]

    explanation = WaitExplanation(context, new)
    began = clock.seconds
    for _ in range(300):
        clock.seconds += 1
        explanation.note_change(pods[0].demand.resource)
        await explanation.explain()
    spent = COST_S * sum(len(item.explained_demands) for item in made)
    assert spent <= SHARE * (clock.seconds - began) + MOST_EXPLAINED_S + COST_S
    assert spent >= SHARE * (clock.seconds - began) / 2
    assert set(explained) == {pod.uid for pod in pods}
