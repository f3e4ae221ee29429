"""One pod's way through admission, filter, prioritize and the plan of bind, as an answer; the snapshot stays as it is."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from admission.decision import Denied
from api.names import PodUid
from cli.simulation.answers import (
    ChosenDevice,
    DecisionKind,
    Placement,
    PodDecision,
    RefusedNodes,
)
from cli.simulation.pod_scheduling import admit, choose_node, question_of, trial_of
from pool.placement.topology import TopologyQuality, quality_of, topology_of
from telemetry.reasons import node_refusal_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.names import NodeName
    from cli.simulation.pod_file import NewPod
    from cli.simulation.pod_scheduling import PodCreator, PoolQuestion
    from cli.simulation.snapshot import Snapshot
    from pool.placement.planner import Placed

_EXAMPLES: Final = 3


def decide(asked: "NewPod", snapshot: "Snapshot", caller: "PodCreator") -> PodDecision:
    """Return what would become of the pod now; the snapshot is afterwards as before."""
    with _rolled_back(snapshot, asked):
        decision = admit(asked, snapshot, caller)
        question = question_of(asked, snapshot)
        if isinstance(decision, Denied):
            return _denied(decision, question, snapshot)
        if question is None:
            return PodDecision(verdict=DecisionKind.NO_POOL)
        return _scheduled(question, snapshot, warnings=list(decision.warnings))


@contextmanager
def _rolled_back(snapshot: "Snapshot", asked: "NewPod") -> "Iterator[None]":
    """Undo what a decision leaves in the allocation state."""
    before = {reservation.id for reservation in snapshot.state.reader.ledger.all()}
    try:
        yield
    finally:
        snapshot.state.discard_pod(PodUid(asked.pod.metadata.uid))
        for reservation in list(snapshot.state.reader.ledger.all()):
            if reservation.id not in before:
                snapshot.state.withdraw(reservation.id)


def _denied(denied: Denied, question: "PoolQuestion | None", snapshot: "Snapshot") -> PodDecision:
    return PodDecision(
        verdict=DecisionKind.DENIED,
        pool=question.pool.name if question is not None else None,
        resource=question.demand.resource if question is not None else None,
        units=question.demand.units if question is not None else 0,
        reason=denied.reason.value,
        message=denied.text,
        refused=[] if question is None else _refused(question, snapshot),
    )


def _scheduled(
    question: "PoolQuestion", snapshot: "Snapshot", *, warnings: list[str]
) -> PodDecision:
    placement = _placement(question, snapshot)
    return PodDecision(
        verdict=DecisionKind.PLACED if placement is not None else DecisionKind.WAITS,
        pool=question.pool.name,
        resource=question.demand.resource,
        units=question.demand.units,
        placement=placement,
        warnings=warnings,
        refused=_refused(question, snapshot),
    )


def _refused(question: "PoolQuestion", snapshot: "Snapshot") -> list[RefusedNodes]:
    nodes: dict[tuple[str, bool], list[NodeName]] = {}
    pool = question.pool.name
    for node, fault in trial_of(question, snapshot).faults():
        text = fault.limit if fault.refusal is None else node_refusal_text(fault.refusal, pool)
        nodes.setdefault((text, fault.ends_with_pods), []).append(node)
    return [
        RefusedNodes(
            reason=reason, count=len(names), examples=names[:_EXAMPLES], may_change=may_change
        )
        for (reason, may_change), names in sorted(
            nodes.items(), key=lambda item: (-len(item[1]), item[0])
        )
    ]


def _placement(question: "PoolQuestion", snapshot: "Snapshot") -> Placement | None:
    chosen = choose_node(question, snapshot)
    if chosen is None:
        return None
    placed = chosen.placed
    return Placement(
        node=placed.node,
        devices=_devices(placed, snapshot),
        topology=_quality(placed, snapshot).value,
        strategy=question.pool.strategy.value,
        is_reserved=chosen.is_reserved,
        fitting_nodes=chosen.fitting_nodes,
        equal_nodes=chosen.equal_nodes,
    )


def _quality(placed: "Placed", snapshot: "Snapshot") -> TopologyQuality:
    """Return how near the devices are, as the pool's other devices of the node show it."""
    chosen = {unit for units in placed.devices.values() for unit in units}
    entries = snapshot.index.devices_on(placed.pool, placed.node)
    mask = sum(
        1 << position
        for position, entry in enumerate(entries)
        if not chosen.isdisjoint(entry.layout.ids)
    )
    return quality_of(topology_of([entry.facts for entry in entries]), mask)


def _devices(placed: "Placed", snapshot: "Snapshot") -> list[ChosenDevice]:
    chosen = {unit for units in placed.devices.values() for unit in units}
    found: list[ChosenDevice] = []
    for entry in snapshot.index.devices_on(placed.pool, placed.node):
        units = [unit for unit in entry.layout.ids if unit in chosen]
        if not units:
            continue
        device = snapshot.stores.devices.get(entry.facts.name)
        found.append(
            ChosenDevice(
                name=entry.facts.name,
                product=device.status.product if device is not None else "",
                numa_node=entry.facts.numa_node,
                units=[str(unit) for unit in units],
            )
        )
    return found
