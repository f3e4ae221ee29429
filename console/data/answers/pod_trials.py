"""Pods that do not exist, placed one after the other on what is free now, and taken back.

Each is decided as admission, filter, prioritize and bind decide it: with units reserved at admission where it may reserve,
and otherwise on the node that scores best. The state is the live one, so that all of it is one synchronous step.
"""

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

from admission.pods.patch import missing_tolerations
from api.foreign.core import PodSpec
from api.kinds.gpupool import WhenExhausted
from api.names import NodeName, PodUid, PoolName, ReservationId, owner_of
from api.text import listed, units
from console.console_data import BadQuestionError
from console.data.state.watched_pods import WatchedPod
from console.rows import PlacedPods, WhatIfAnswer
from pool import model
from pool.admission_planner import Exhausted
from pool.admission_rules import IncomingPod
from pool.compute_resources import ComputeResources
from pool.placement.planner import Placed
from pool.pods.selection import constraints_of_selection
from pool.reservations.reservation import PlacementRequest
from pool.value_ranking import rank_nodes
from pool.what_if.explanation import HAVE_UNITS
from pool.what_if.trial import Trial, TrialPod
from telemetry.explanation_texts import wait_summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from console.console_data import PodTrial
    from console.data.explanations.waits import WaitExplanations
    from console.data.state.cluster import ClusterState
    from console.data.tables.visible_rows import RowViewer
    from pool.what_if.explanation import Explanation

MOST_UNITS: Final = 10_000
MOST_TIMES: Final = 1_000
MOST_CORDONED: Final = 100


def try_pods(
    cluster: "ClusterState",
    explanations: "WaitExplanations",
    trial: "PodTrial",
    *,
    viewer: "RowViewer",
) -> WhatIfAnswer:
    """Place the pods and take them back; the state is as before.

    Raises:
        BadQuestionError: there is no such pool or node, a number is out of range, or not all pods are known.
    """
    pool = _checked(cluster, trial)
    rank_nodes(cluster.index)
    with cluster.trying(), _cordoned(cluster, trial.cordoned):
        tried = _TrialPlacements(cluster, pool, _pod_of(cluster, pool, trial.units))
        try:
            tried.place(trial.times)
            at, missing = cluster.now().monotonic, None
            if len(tried.nodes) < trial.times:
                missing = explanations.explain(WatchedPod(tried.pod), most_nodes=0, is_quick=False)
        finally:
            tried.take_back()
    pods = Counter(tried.nodes)
    return WhatIfAnswer(
        pods=trial.times,
        placed=tuple(
            PlacedPods(node=node, pods=count, units=count * trial.units)
            for node, count in sorted(pods.items())
        ),
        fits=missing is None,
        message=_message(trial, tried.nodes, missing, pool=pool),
        remedies=()
        if missing is None
        else viewer.remedies(missing.remedies, namespace=tried.pod.namespace, at=at),
    )


def _checked(cluster: "ClusterState", trial: "PodTrial") -> model.PoolFacts:
    """Return the pool that is asked about."""
    if not cluster.is_exact:
        raise BadQuestionError(
            "pods of all namespaces may not be listed, without which the answer would be a guess"
        )
    _check_number("units", trial.units, MOST_UNITS)
    _check_number("times", trial.times, MOST_TIMES)
    if len(trial.cordoned) > MOST_CORDONED:
        raise BadQuestionError(f"at most {MOST_CORDONED} nodes can count as cordoned")
    unknown = [node for node in trial.cordoned if NodeName(node) not in cluster.index.nodes]
    if unknown:
        raise BadQuestionError(f"there is no node {listed(unknown)}")
    pool = cluster.index.pool(PoolName(trial.pool))
    if pool is None:
        raise BadQuestionError(f"there is no pool {trial.pool}")
    if pool.parts:
        names = listed(part.name for part in pool.parts)
        raise BadQuestionError(f"pool {pool.name} has several MIG profiles: name one, as {names}")
    serving = cluster.index.pool_of(pool.resource)
    if serving is not None and serving.name != pool.name:
        raise BadQuestionError(f"pool {pool.name} gets no pods: {serving.name} has its resource")
    return pool


def _check_number(name: str, number: int, most: int) -> None:
    if not 1 <= number <= most:
        raise BadQuestionError(f"{name} is a number from 1 to {most}, and not {number}")


@contextmanager
def _cordoned(cluster: "ClusterState", names: "Sequence[str]") -> "Iterator[None]":
    """Let nodes count as cordoned for one synchronous step."""
    nodes = [cluster.index.nodes[NodeName(name)] for name in dict.fromkeys(names)]
    for node in nodes:
        cluster.index.replace_node(replace(node, is_cordoned=True))
    try:
        yield
    finally:
        for node in nodes:
            cluster.index.replace_node(node)


def _pod_of(cluster: "ClusterState", pool: model.PoolFacts, count: int) -> model.PodFacts:
    """Return the pod as admission lets it be: it tolerates the taints of the pool."""
    owner = cluster.catalog.pools.get(owner_of(pool.name))
    taints = owner.taints if owner is not None else ()
    tolerations = missing_tolerations(PodSpec(), taints)
    return model.PodFacts(
        uid=PodUid("what-if"),
        namespace="",
        name="what-if",
        demand=model.Demand(
            pool.resource, (model.ContainerDemand("main", model.ContainerRole.MAIN, count),), count
        ),
        phase=model.PodPhase.PENDING,
        selection=model.PodSelection(tolerations=tuple(tolerations)),
    )


def _message(
    trial: "PodTrial",
    nodes: "Sequence[NodeName]",
    missing: "Explanation | None",
    *,
    pool: model.PoolFacts,
) -> str:
    if missing is None and trial.times == 1:
        return f"the pod would be placed now, on node {nodes[0]}"
    head = f"{len(nodes)} of {trial.times} pods would be placed now, each with {units(trial.units)}"
    if missing is None:
        return head
    is_refused = pool.when_exhausted is WhenExhausted.REJECT or pool.closed is not None
    fate = "would be refused at admission" if is_refused else "would wait"
    if missing.reason in HAVE_UNITS:
        why = "the units that are free are for pods that come first"
    else:
        why = wait_summary(missing)
    if trial.times == 1:
        return f"the pod {fate}: {why}"
    return f"{head}; the next one {fate}: {why}"


@final
@dataclass(slots=True)
class _TrialPlacements:
    """Equal pods on the live state."""

    cluster: "ClusterState"
    pool: model.PoolFacts
    pod: model.PodFacts
    nodes: list[NodeName] = field(default_factory=list)
    """Nodes of each pod that was placed, in their order."""

    def place(self, times: int) -> None:
        """Place pods until one is not placed: those behind it are equal."""
        for number in range(times):
            uid = PodUid(f"what-if-{number}")
            plan = self._plan(uid)
            if plan is None:
                return
            request = PlacementRequest(
                id=ReservationId(uid), pool=self.pool, demand=self.pod.demand, namespace=""
            )
            self.cluster.allocation_state.commit(request, plan, uid=uid, now=self.cluster.now())
            self.nodes.append(plan.node)

    def take_back(self) -> None:
        for number in range(len(self.nodes)):
            self.cluster.allocation_state.release(PodUid(f"what-if-{number}"))

    def _plan(self, uid: PodUid) -> Placed | None:
        """Return where admission reserves units, or else where kube-scheduler's choice leads."""
        reader, pod = self.cluster.reader, replace(self.pod, uid=uid)
        constraints = constraints_of_selection(pod.selection or model.PodSelection(), pod.peer)
        trial = Trial(
            reader, self.cluster.index, TrialPod(facts=pod, pool=self.pool, constraints=constraints)
        )
        incoming = IncomingPod(now=self.cluster.now().monotonic)
        plan = reader.admission.plan(self.pool, pod.demand, constraints, incoming=incoming)
        if isinstance(plan, Placed) and not trial.limit(plan.node, self._freed):
            return plan
        if isinstance(plan, Exhausted) and self._is_denied(plan):
            return None
        chosen = trial.choose(freed=self._freed)
        return None if chosen is None else chosen.placed

    def _freed(self, node: NodeName) -> ComputeResources:
        """Return, as less than nothing, the places of the pods that were tried before."""
        return ComputeResources(pods=-self.nodes.count(node))

    def _is_denied(self, exhausted: Exhausted) -> bool:
        rejects = self.pool.when_exhausted is WhenExhausted.REJECT
        return rejects and exhausted.deferral is None
