"""The steps of a pod's way: admission, filter, prioritize, the plan of bind, and the Binding; on a snapshot.

The webhook's and the extender's own functions decide. kube-scheduler's part before them is reduced to readiness,
node selection, taints, CPU, memory and the number of pods; among equally scored nodes the first by name is taken.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

import msgspec

from admission.decision import Denied
from admission.pods import pod_patch
from admission.pods.constraints import constraints_of
from admission.pods.mutate import mutate
from admission.pods.request import POD_KIND, PodRequest
from admission.review import AdmissionRequest, Operation, UserInfo
from api.names import NodeName, PodUid, ReservationId
from cli.simulation.node_resources import requests_of
from pool.allocation_state import PlacementRequest
from pool.demand import demand_of
from pool.errors import InvariantViolatedError
from pool.facts import pod_facts
from pool.model import Constraints, Demand, PodPhase
from pool.placement.planner import Placed
from pool.what_if.exclusion import exclusion_of
from scheduler.extender import filter_nodes, prioritize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from admission.decision import Decision
    from api.kinds.gpupool import GPUPool
    from cli.simulation.node_resources import Resources
    from cli.simulation.pod_file import AskedPod
    from cli.simulation.snapshot import Snapshot
    from pool.model import PodFacts, PoolFacts

CONTROLLER_GROUPS: Final = (
    "system:serviceaccounts",
    "system:serviceaccounts:kube-system",
    "system:authenticated",
)
"""Of the controllers that create pods by template (docs/access.md)."""


@dataclass(frozen=True, slots=True)
class PodCreator:
    """Who creates the pod, for rules of access."""

    username: str = ""
    groups: tuple[str, ...] = ()

    @classmethod
    def of(cls, asked: "AskedPod", *, username: str, groups: "Sequence[str]") -> Self:
        """Return the creator of a pod: a controller's account for a template, unless told otherwise."""
        if asked.is_template and not username and not groups:
            return cls("", CONTROLLER_GROUPS)
        return cls(username, tuple(groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolQuestion:
    """A pod that a pool serves, and its limits."""

    asked: "AskedPod"
    pool: "PoolFacts"
    demand: Demand
    constraints: Constraints
    requests: "Resources"

    @property
    def uid(self) -> PodUid:
        return PodUid(self.asked.pod.metadata.uid)


@dataclass(slots=True)
class Refusals:
    """Reasons by node."""

    reasons: dict[NodeName, str] = field(default_factory=dict)
    resolvable: set[str] = field(default_factory=set)
    """Reasons that end with pods."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The node that the pod goes to, and the plan of bind there."""

    placed: Placed
    equal_nodes: int
    """Nodes with the best score."""


class _FilterReply(msgspec.Struct, rename="pascal"):
    node_names: list[NodeName] | None = None
    failed_nodes: dict[NodeName, str] = {}
    failed_and_unresolvable_nodes: dict[NodeName, str] = {}


class _Score(msgspec.Struct, rename="pascal"):
    host: NodeName
    score: int


_filter_reply: Final = msgspec.json.Decoder(_FilterReply)
_scores: Final = msgspec.json.Decoder(list[_Score])


def request_of(asked: "AskedPod", caller: PodCreator) -> PodRequest:
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


def question_of(asked: "AskedPod", snapshot: "Snapshot") -> PoolQuestion | None:
    """Return what a pod asks of the pool that serves it; None where no pool does."""
    demand = demand_of(asked.pod.spec, asked.namespace)
    served = snapshot.admission.served_pool(demand.resource) if isinstance(demand, Demand) else None
    if served is None or not isinstance(demand, Demand):
        return None
    facts, pool = served
    return PoolQuestion(
        asked=asked,
        pool=facts,
        demand=demand,
        constraints=_constraints(asked, pool),
        requests=requests_of(asked.pod.spec),
    )


def admit(asked: "AskedPod", snapshot: "Snapshot", caller: PodCreator) -> "Decision":
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


def reachable(question: PoolQuestion, snapshot: "Snapshot") -> "Iterator[NodeName]":
    """Yield the pool's nodes that the pod may go to, whatever is free on them."""
    for name in snapshot.index.state(question.pool.name).devices_by_node:
        facts = snapshot.index.nodes.get(name)
        if facts is not None and not exclusion_of(facts, question.constraints):
            yield name


def fitting_nodes(
    question: PoolQuestion, snapshot: "Snapshot", nodes: "Iterable[NodeName] | None" = None
) -> tuple[list[NodeName], Refusals]:
    """Return the nodes that take the pod, and why the others do not.

    Args:
        question: the pod.
        snapshot: the cluster.
        nodes: those that are asked about; all of the pool if left out.
    """
    refusals = Refusals()
    candidates: list[NodeName] = []
    if nodes is None:
        nodes = sorted(snapshot.index.state(question.pool.name).devices_by_node)
    for name in nodes:
        facts, free = snapshot.index.nodes.get(name), snapshot.free.get(name)
        fault = (
            "node does not exist" if facts is None else exclusion_of(facts, question.constraints)
        )
        if not fault and free is not None:
            fault = free.lacks(question.requests) or ""
            refusals.resolvable |= {fault} if fault else set()
        if not fault:
            candidates.append(name)
        else:
            refusals.reasons[name] = fault
    reply = _filter_reply.decode(
        filter_nodes(_args(question, candidates), snapshot.scheduling).body
    )
    refusals.reasons |= reply.failed_nodes | reply.failed_and_unresolvable_nodes
    refusals.resolvable |= set(reply.failed_nodes.values())
    return reply.node_names or [], refusals


def choose_node(
    question: PoolQuestion, snapshot: "Snapshot", fitting: list[NodeName]
) -> Chosen | None:
    """Return the best of the nodes that take the pod, with its devices; None without one."""
    if not fitting:
        return None
    scores = _scores.decode(prioritize(_args(question, fitting), snapshot.scheduling).body)
    best = max(one.score for one in scores)
    equal = sorted(one.host for one in scores if one.score == best)
    planned = snapshot.state.reader.plan_bind(
        equal[0], question.pool, question.demand, uid=question.uid
    )
    return Chosen(planned, len(equal)) if isinstance(planned, Placed) else None


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
        stored_pod(question.asked),
        phase=PodPhase.BOUND,
        node=placed.node,
        devices=placed.devices,
    )
    snapshot.state.observe_pod(bound, now)


def stored_pod(asked: "AskedPod") -> "PodFacts":
    """Return the facts of a pod with units as the watch shows it once it is admitted."""
    facts = pod_facts(asked.pod)
    if facts is None:
        raise InvariantViolatedError(f"pod {asked.ref} asks for no units")
    return facts


def _constraints(asked: "AskedPod", pool: "GPUPool") -> Constraints:
    spec = asked.pod.spec
    tolerations = pod_patch.missing_tolerations(spec, pool.taints)
    return constraints_of(spec, pool.name, tolerations)


def _args(question: PoolQuestion, names: list[NodeName]) -> bytes:
    pod = msgspec.Raw(question.asked.encoded())
    return msgspec.json.encode({"Pod": pod, "NodeNames": names})
