"""The steps of a pod's way on a snapshot: admission, by the webhook's own functions; the choice of a node; the Binding."""

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from admission.decision import Denied
from admission.pods import patch
from admission.pods.constraints import constraints_of
from admission.pods.mutate import mutate
from admission.pods.request import POD_KIND, PodRequest
from admission.review import AdmissionRequest, Operation, UserInfo
from api.names import NodeName, PodUid, ReservationId
from pool.demand import demand_of
from pool.errors import InvariantViolatedError
from pool.facts import pod_facts
from pool.model import Constraints, Demand, PodPhase
from pool.placement.planner import Placed
from pool.reservations.reservation import PlacementRequest
from pool.what_if.trial import Choice, Trial, TrialPod

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from admission.decision import Decision
    from api.kinds.gpupool import GPUPool
    from cli.simulation.pod_file import NewPod
    from cli.simulation.snapshot import Snapshot
    from pool.model import PodFacts, PoolFacts

CONTROLLER_GROUPS: Final = (
    "system:serviceaccounts",
    "system:serviceaccounts:kube-system",
    "system:authenticated",
)
"""Groups of the controllers that create pods by template (docs/access.md)."""


@dataclass(frozen=True, slots=True)
class PodCreator:
    """The user who creates the pod, for rules of access."""

    username: str = ""
    groups: tuple[str, ...] = ()

    @classmethod
    def of(cls, asked: "NewPod", *, username: str, groups: "Sequence[str]") -> Self:
        """Return the creator of a pod: a controller's account for a template, unless given otherwise."""
        if asked.is_template and not username and not groups:
            return cls("", CONTROLLER_GROUPS)
        return cls(username, tuple(groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolQuestion:
    """A pod that a pool serves."""

    asked: "NewPod"
    pod: TrialPod

    @property
    def pool(self) -> "PoolFacts":
        return self.pod.pool

    @property
    def demand(self) -> Demand:
        return self.pod.facts.demand

    @property
    def uid(self) -> PodUid:
        return self.pod.facts.uid


def request_of(asked: "NewPod", caller: PodCreator) -> PodRequest:
    """Return the pod as the webhook gets it."""
    return PodRequest(
        AdmissionRequest(
            uid=asked.pod.metadata.uid,
            kind=POD_KIND,
            operation=Operation.CREATE,
            namespace=asked.namespace,
            user_info=UserInfo(username=caller.username, groups=list(caller.groups)),
        ),
        asked.pod,
    )


def question_of(asked: "NewPod", snapshot: "Snapshot") -> PoolQuestion | None:
    """Return what a pod asks of the pool that serves it; None where no pool does."""
    demand = demand_of(asked.pod.spec, asked.namespace)
    served = snapshot.admission.served_pool(demand.resource) if isinstance(demand, Demand) else None
    if served is None or not isinstance(demand, Demand):
        return None
    facts, pool = served
    pod = TrialPod(facts=stored_pod(asked), pool=facts, constraints=_constraints(asked, pool))
    return PoolQuestion(asked=asked, pod=pod)


def admit(asked: "NewPod", snapshot: "Snapshot", caller: PodCreator) -> "Decision":
    """Admit the pod, with a reservation where the server makes one, and tie that to the pod as validation does."""
    decision = mutate(request_of(asked, caller), snapshot.admission)
    reservation = None if isinstance(decision, Denied) else decision.facts.get("reservation")
    if reservation is not None:
        snapshot.state.tie(
            ReservationId(str(reservation)),
            PodUid(asked.pod.metadata.uid),
            name=asked.pod.metadata.name,
            now=snapshot.admission.now(),
        )
    return decision


def trial_of(question: PoolQuestion, snapshot: "Snapshot") -> Trial:
    return Trial(snapshot.state.reader, snapshot.index, question.pod)


def choose_node(
    question: PoolQuestion, snapshot: "Snapshot", nodes: "Collection[NodeName] | None" = None
) -> Choice | None:
    """Return the node that the pod goes to, of all of the pool or of some."""
    return trial_of(question, snapshot).choose(nodes=nodes)


def bind(question: PoolQuestion, placed: Placed, snapshot: "Snapshot") -> None:
    """Bind a pod that the snapshot shows as pending: as the server does, and as the watch shows it then."""
    now, metadata = snapshot.scheduling.now(), question.asked.pod.metadata
    request = PlacementRequest(
        id=snapshot.scheduling.new_id(),
        pool=question.pool,
        demand=question.demand,
        namespace=question.asked.namespace,
        name=metadata.name,
    )
    snapshot.state.commit(request, placed, uid=question.uid, now=now)
    snapshot.state.written(question.uid)
    bound = dataclasses.replace(
        question.pod.facts,
        phase=PodPhase.BOUND,
        node=placed.node,
        devices=placed.devices,
    )
    snapshot.state.observe_pod(bound, now)


def stored_pod(asked: "NewPod") -> "PodFacts":
    """Return the facts of a pod with units as the watch shows it once it is admitted."""
    facts = pod_facts(asked.pod)
    if facts is None:
        raise InvariantViolatedError(f"pod {asked.ref} asks for no units")
    return facts


def _constraints(asked: "NewPod", pool: "GPUPool") -> Constraints:
    tolerations = patch.missing_tolerations(asked.pod.spec, pool.taints)
    return constraints_of(asked.pod, pool.name, tolerations, namespace=asked.namespace)
