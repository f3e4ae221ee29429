"""The answer about one pod: the decision now, and what would have to change."""

from typing import TYPE_CHECKING, Final

from cli.simulation.answers import Answer, DecisionKind
from cli.simulation.errors import BadInputError
from cli.simulation.pod_decision import decide
from cli.simulation.pod_scheduling import question_of
from cli.simulation.proposals import new_node_for, remedies_for
from pool.errors import InvariantViolatedError
from pool.facts import pod_facts
from pool.model import PodPhase
from pool.pods.selection import constraints_of_selection
from pool.what_if.unweighed import unweighed_of

if TYPE_CHECKING:
    from cli.simulation.answers import NewNode
    from cli.simulation.pod_file import NewPod
    from cli.simulation.pod_scheduling import PodCreator
    from cli.simulation.snapshot import Snapshot
    from pool.what_if.explanation import AnyRemedy

_FINAL: Final = frozenset({DecisionKind.PLACED, DecisionKind.NO_POOL})


def answer_for(asked: "NewPod", snapshot: "Snapshot", caller: "PodCreator") -> Answer:
    """Return what would become of the pod now. A pod of this name that waits in the snapshot is this pod.

    Raises:
        BadInputError: the snapshot's objects contradict each other.
    """
    for pod in list(snapshot.state.reader.pods.all()):
        if pod.ref == asked.ref and pod.phase is PodPhase.PENDING:
            snapshot.state.discard_pod(pod.uid)
    remedies: list[AnyRemedy] = []
    new_node: NewNode | None = None
    try:
        decision = decide(asked, snapshot, caller)
        if decision.verdict not in _FINAL:
            remedies = remedies_for(asked, decision, snapshot, caller=caller)
            question = question_of(asked, snapshot)
            if question is not None and (remedies or decision.verdict is DecisionKind.WAITS):
                new_node = new_node_for(question, snapshot)
    except InvariantViolatedError as error:
        raise BadInputError(
            f"the objects of {snapshot.origin} contradict each other: {error}"
        ) from error
    placement = decision.placement
    is_reserved = placement is not None and placement.is_reserved
    return Answer(
        pod=asked.ref,
        cluster=snapshot.origin,
        decision=decision,
        remedies=remedies,
        new_node=new_node,
        partial=list(snapshot.gaps),
        not_checked=_not_checked(asked, snapshot, is_reserved=is_reserved),
    )


def _not_checked(asked: "NewPod", snapshot: "Snapshot", *, is_reserved: bool) -> list[str]:
    """Return what may decide otherwise: kube-scheduler, and before it the API server, which stores the pod as it admits it."""
    runtime_class = asked.manifest["spec"].get("runtimeClassName")
    return [
        *_unweighed(asked, snapshot, is_reserved=is_reserved),
        *(["spec.runtimeClassName"] if runtime_class else []),
        *(limit for namespace, limit in snapshot.limits if namespace == asked.namespace),
    ]


def _unweighed(asked: "NewPod", snapshot: "Snapshot", *, is_reserved: bool) -> tuple[str, ...]:
    question, facts = question_of(asked, snapshot), pod_facts(asked.pod)
    if facts is None or facts.selection is None:
        return ()
    return unweighed_of(
        snapshot.index,
        facts,
        None if question is None else question.pool,
        constraints=constraints_of_selection(facts.selection, facts.peer)
        if question is None
        else question.pod.constraints,
        is_reserved=is_reserved,
    )
