"""The answer about one pod: the decision now, and what would have to change."""

from typing import TYPE_CHECKING, Final

from cli.simulation.answers import Answer, Proposals, Verdict
from cli.simulation.errors import BadInputError
from cli.simulation.pod_decision import decide
from cli.simulation.proposals import proposals_for
from pool.errors import InvariantViolatedError
from pool.model import PodPhase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.simulation.pod_file import AskedPod
    from cli.simulation.pod_scheduling import PodCreator
    from cli.simulation.snapshot import Snapshot

_SETTLED: Final = frozenset({Verdict.PLACED, Verdict.NO_POOL})


def answer_for(asked: "AskedPod", snapshot: "Snapshot", caller: "PodCreator") -> Answer:
    """Return what would become of the pod now. A pod of this name that waits in the snapshot is this pod.

    Raises:
        BadInputError: the snapshot's objects contradict each other.
    """
    for pod in list(snapshot.state.reader.pods()):
        if pod.ref == asked.ref and pod.phase is PodPhase.PENDING:
            snapshot.state.discard_pod(pod.uid)
    changes: Proposals | None = None
    try:
        decision = decide(asked, snapshot, caller)
        if decision.verdict not in _SETTLED:
            changes = proposals_for(asked, decision, snapshot, caller=caller)
    except InvariantViolatedError as error:
        raise BadInputError(
            f"the objects of {snapshot.origin} contradict each other: {error}"
        ) from error
    return Answer(
        pod=asked.ref,
        cluster=snapshot.origin,
        decision=decision,
        changes=changes,
        partial=list(snapshot.gaps),
        not_checked=list(_not_checked(asked)),
    )


def _not_checked(asked: "AskedPod") -> "Iterator[str]":
    """Yield the fields of the pod on which kube-scheduler may decide otherwise."""
    spec = asked.manifest["spec"]
    affinity = spec.get("affinity") or {}
    for field in ("podAffinity", "podAntiAffinity"):
        if affinity.get(field):
            yield f"spec.affinity.{field}"
    if spec.get("topologySpreadConstraints"):
        yield "spec.topologySpreadConstraints"
    if any("persistentVolumeClaim" in volume for volume in spec.get("volumes") or ()):
        yield "spec.volumes[].persistentVolumeClaim"
