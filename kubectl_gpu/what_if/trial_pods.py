"""Equal pods, placed one after the other on a copy until one is not."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from cli.simulation.answers import Answer, DecisionKind, Placement
from cli.simulation.pod_answer import answer_for
from cli.simulation.pod_scheduling import admit, bind, choose_node, question_of
from pool.errors import InvariantViolatedError

if TYPE_CHECKING:
    from cli.simulation.pod_file import NewPod
    from cli.simulation.pod_scheduling import PodCreator
    from cli.simulation.snapshot import Snapshot


@final
@dataclass(frozen=True, slots=True)
class TrialPlacement:
    """A pod that the copy took."""

    ref: str
    units: int
    placement: Placement


@final
@dataclass(slots=True)
class TrialPlacements:
    """What became of the pods."""

    requested: int
    """How many pods were to be placed."""
    placed: list[TrialPlacement] = field(default_factory=list)
    last_answer: Answer | None = None
    """Answer about the last pod that was tried: the first that the copy does not take, or the last of all."""

    @property
    def fits(self) -> bool:
        return len(self.placed) == self.requested


def try_pods(
    template: "NewPod", count: int, snapshot: "Snapshot", *, caller: "PodCreator"
) -> TrialPlacements:
    """Place equal pods; the snapshot has them afterwards. Behind one that is not placed none is tried: it is equal.

    Raises:
        BadInputError: the snapshot's objects contradict each other.
    """
    trial = TrialPlacements(count)
    for number in range(1, count + 1):
        pod = template if count == 1 else _numbered(template, number, snapshot)
        trial.last_answer = answer_for(pod, snapshot, caller)
        decision = trial.last_answer.decision
        if decision.verdict is not DecisionKind.PLACED or decision.placement is None:
            break
        trial.placed.append(TrialPlacement(pod.ref, decision.units, decision.placement))
        if number < count:
            _place(pod, snapshot, caller)
    return trial


def _numbered(template: "NewPod", number: int, snapshot: "Snapshot") -> "NewPod":
    return template.created(
        f"{template.pod.metadata.name}-{number}",
        namespace=template.namespace,
        uid=f"what-if-{number}",
        at=snapshot.admission.now().utc,
        after_s=float(number),
    )


def _place(pod: "NewPod", snapshot: "Snapshot", caller: "PodCreator") -> None:
    """Do what the answer said: the same functions on the same state come to the same node."""
    admit(pod, snapshot, caller)
    question = question_of(pod, snapshot)
    if question is None:
        raise InvariantViolatedError(f"pod {pod.ref} was placed, and no pool serves it")
    snapshot.state.observe_pod(question.pod.facts, snapshot.admission.now())
    chosen = choose_node(question, snapshot)
    if chosen is None:
        raise InvariantViolatedError(f"pod {pod.ref} was placed, and no node takes it")
    bind(question, chosen.placed, snapshot)
