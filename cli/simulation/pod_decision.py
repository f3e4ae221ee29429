"""One pod's way through admission, filter, prioritize and the plan of bind, on a snapshot.

The webhook's and the extender's own functions decide. kube-scheduler's part before them is reduced to readiness,
node selection, taints, CPU, memory and the number of pods.
"""

from contextlib import contextmanager
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
from cli.simulation.answers import (
    ChosenDevice,
    Placement,
    PodDecision,
    RefusedNodes,
    Verdict,
)
from cli.simulation.node_resources import requests_of
from pool.demand import demand_of
from pool.model import Constraints, Demand
from pool.placement.planner import Placed, may_go_to
from pool.placement.topology import TopologyQuality, quality_of, topology_of
from scheduler.extender import filter_nodes, prioritize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from api.kinds.gpupool import GPUPool
    from cli.simulation.node_resources import Resources
    from cli.simulation.pod_file import AskedPod
    from cli.simulation.snapshot import Snapshot
    from pool.model import NodeFacts, PoolFacts

CONTROLLER_GROUPS: Final = (
    "system:serviceaccounts",
    "system:serviceaccounts:kube-system",
    "system:authenticated",
)
"""Of the controllers that create pods by template (docs/access.md)."""
_EXAMPLES: Final = 3
_NOT_READY: Final = "node is not ready"
_CORDONED: Final = "node is cordoned"


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
    """A pod that a pool serves, and the pool's nodes."""

    asked: "AskedPod"
    pool: "PoolFacts"
    demand: Demand
    constraints: Constraints
    requests: "Resources"


class _FilterReply(msgspec.Struct, rename="pascal"):
    node_names: list[NodeName] | None = None
    failed_nodes: dict[NodeName, str] = {}
    failed_and_unresolvable_nodes: dict[NodeName, str] = {}


class _Score(msgspec.Struct, rename="pascal"):
    host: NodeName
    score: int


_filter_reply: Final = msgspec.json.Decoder(_FilterReply)
_scores: Final = msgspec.json.Decoder(list[_Score])


@dataclass(slots=True)
class _Refusals:
    """Reasons by node, to be grouped."""

    reasons: dict[NodeName, str] = field(default_factory=dict)
    resolvable: set[str] = field(default_factory=set)

    def grouped(self) -> list[RefusedNodes]:
        nodes: dict[str, list[NodeName]] = {}
        for node, reason in self.reasons.items():
            nodes.setdefault(reason, []).append(node)
        return [
            RefusedNodes(
                reason=reason,
                count=len(names),
                examples=sorted(names)[:_EXAMPLES],
                may_change=reason in self.resolvable,
            )
            for reason, names in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0]))
        ]


def question_of(asked: "AskedPod", snapshot: "Snapshot") -> PoolQuestion | None:
    """Return what a pod asks of the pool that serves it; None where no pool does."""
    demand = demand_of(asked.pod.spec)
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


def decide(asked: "AskedPod", snapshot: "Snapshot", caller: PodCreator) -> PodDecision:
    """Return what would become of the pod now; the snapshot is afterwards as before."""
    request = PodRequest(
        AdmissionRequest(
            uid=asked.pod.metadata.uid,
            kind=POD_KIND,
            operation=Operation.CREATE,
            namespace=asked.namespace,
            user_info=UserInfo(username=caller.username, groups=list(caller.groups)),
        ),
        asked.pod,
    )
    with _tried(snapshot, asked):
        decision = mutate(request, snapshot.admission)
        question = question_of(asked, snapshot)
        if isinstance(decision, Denied):
            return _denied(decision, question, snapshot)
        if question is None:
            return PodDecision(verdict=Verdict.NO_POOL)
        _tie(decision.facts.get("reservation"), asked, snapshot)
        return _scheduled(question, snapshot, warnings=list(decision.warnings))


def reachable(question: PoolQuestion, snapshot: "Snapshot") -> "Iterator[NodeName]":
    """Yield the pool's nodes that the pod may go to, whatever is free on them."""
    for name in snapshot.index.state(question.pool.name).devices_by_node:
        facts = snapshot.index.nodes.get(name)
        if facts is not None and _objection(facts, question) is None:
            yield name


def _constraints(asked: "AskedPod", pool: "GPUPool") -> Constraints:
    spec = asked.pod.spec
    tolerations = pod_patch.missing_tolerations(spec, pool.taints)
    return constraints_of(spec, pool.name, tolerations)


@contextmanager
def _tried(snapshot: "Snapshot", asked: "AskedPod") -> "Iterator[None]":
    """Undo what a decision leaves in the allocation state."""
    before = {one.id for one in snapshot.state.reader.reservations()}
    try:
        yield
    finally:
        snapshot.state.discard_pod(PodUid(asked.pod.metadata.uid))
        for one in list(snapshot.state.reader.reservations()):
            if one.id not in before:
                snapshot.state.withdraw(one.id)


def _tie(reservation: object, asked: "AskedPod", snapshot: "Snapshot") -> None:
    """Give the reservation to the pod, as validation does."""
    if reservation is not None:
        snapshot.state.tie(
            ReservationId(str(reservation)),
            PodUid(asked.pod.metadata.uid),
            name=asked.pod.metadata.name,
            now=snapshot.admission.now(),
        )


def _denied(denied: Denied, question: PoolQuestion | None, snapshot: "Snapshot") -> PodDecision:
    refused = _Refusals() if question is None else _filtered(question, snapshot)[1]
    return PodDecision(
        verdict=Verdict.DENIED,
        pool=question.pool.name if question is not None else None,
        resource=question.demand.resource if question is not None else None,
        units=question.demand.units if question is not None else 0,
        reason=denied.reason.value,
        message=denied.text,
        refused=refused.grouped(),
    )


def _scheduled(question: PoolQuestion, snapshot: "Snapshot", *, warnings: list[str]) -> PodDecision:
    fitting, refusals = _filtered(question, snapshot)
    placement = _placement(question, snapshot, fitting) if fitting else None
    return PodDecision(
        verdict=Verdict.PLACED if placement is not None else Verdict.WAITS,
        pool=question.pool.name,
        resource=question.demand.resource,
        units=question.demand.units,
        placement=placement,
        warnings=warnings,
        refused=refusals.grouped(),
    )


def _filtered(question: PoolQuestion, snapshot: "Snapshot") -> tuple[list[NodeName], _Refusals]:
    """Return the pool's nodes that take the pod, and why the others do not."""
    refusals = _Refusals()
    candidates: list[NodeName] = []
    for name in sorted(snapshot.index.state(question.pool.name).devices_by_node):
        facts, free = snapshot.index.nodes.get(name), snapshot.free.get(name)
        fault = "node does not exist" if facts is None else _objection(facts, question)
        if fault is None and free is not None:
            fault = free.lacks(question.requests)
            refusals.resolvable |= {fault} if fault is not None else set()
        if fault is None:
            candidates.append(name)
        else:
            refusals.reasons[name] = fault
    reply = _filter_reply.decode(
        filter_nodes(_args(question, candidates), snapshot.scheduling).body
    )
    refusals.reasons |= reply.failed_nodes | reply.failed_and_unresolvable_nodes
    refusals.resolvable |= set(reply.failed_nodes.values())
    return reply.node_names or [], refusals


def _objection(node: "NodeFacts", question: PoolQuestion) -> str | None:
    """Return why kube-scheduler does not consider a node, whatever is free on it."""
    if node.is_cordoned:
        return _CORDONED
    if not node.is_ready:
        return _NOT_READY
    if may_go_to(node, question.constraints):
        return None
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not question.constraints.tolerated.cover(taint):
            return f"taint {taint.key}:{taint.effect} is not tolerated"
    return "nodeSelector or required nodeAffinity of the pod excludes the node"


def _args(question: PoolQuestion, names: list[NodeName]) -> bytes:
    pod = msgspec.Raw(question.asked.encoded())
    return msgspec.json.encode({"Pod": pod, "NodeNames": names})


def _placement(
    question: PoolQuestion, snapshot: "Snapshot", fitting: list[NodeName]
) -> Placement | None:
    reader, uid = snapshot.state.reader, PodUid(question.asked.pod.metadata.uid)
    scores = _scores.decode(prioritize(_args(question, fitting), snapshot.scheduling).body)
    best = max(one.score for one in scores)
    equal = sorted(one.host for one in scores if one.score == best)
    planned = reader.plan_bind(equal[0], question.pool, question.demand, uid=uid)
    if not isinstance(planned, Placed):
        return None
    reservation = reader.reservation_of(uid)
    return Placement(
        node=planned.node,
        devices=_devices(planned, snapshot),
        topology=_quality(planned, snapshot).value,
        strategy=question.pool.strategy.value,
        is_reserved=reservation is not None and reservation.node == planned.node,
        fitting_nodes=len(fitting),
        equal_nodes=len(equal),
    )


def _quality(placed: Placed, snapshot: "Snapshot") -> TopologyQuality:
    """Return how near the devices are, as the pool's other devices of the node show it."""
    chosen = {unit for units in placed.devices.values() for unit in units}
    entries = snapshot.index.devices_on(placed.pool, placed.node)
    mask = sum(
        1 << position
        for position, entry in enumerate(entries)
        if not chosen.isdisjoint(entry.layout.ids)
    )
    return quality_of(topology_of([entry.facts for entry in entries]), mask)


def _devices(placed: Placed, snapshot: "Snapshot") -> list[ChosenDevice]:
    chosen = {unit for units in placed.devices.values() for unit in units}
    found: list[ChosenDevice] = []
    for entry in snapshot.index.devices_on(placed.pool, placed.node):
        units = [unit for unit in entry.layout.ids if unit in chosen]
        if not units:
            continue
        device = snapshot.caches.devices.get(entry.facts.name)
        found.append(
            ChosenDevice(
                name=entry.facts.name,
                product=device.status.product if device is not None else "",
                numa_node=entry.facts.numa_node,
                units=[str(unit) for unit in units],
            )
        )
    return found
