"""What filter and prioritize should answer, node by node, with nothing kept and nothing shared."""

from typing import TYPE_CHECKING, Any

from pool.index.node_view import score_of
from pool.placement.unit_request import UnitRequest
from pool.refusal import NodeReason, NodeRefusal
from scheduler.codec import MalformedArgs, decode_candidates
from scheduler.pod_demand import ImpossibleDemand, NoDemand, binding_text, read_pod
from telemetry.reasons import node_refusal_text

if TYPE_CHECKING:
    from api.names import NodeName
    from pool.allocation_state import AllocationState
    from scheduler.codec import CandidatesRequest
    from scheduler.pod_demand import UnitDemand


def naive_filter(body: bytes, allocation_state: "AllocationState") -> dict[str, Any]:
    request = decode_candidates(body)
    if isinstance(request, MalformedArgs):
        return _reply([], {}, {}, error=request.error)
    asked = read_pod(request.pod, allocation_state.index)
    if isinstance(asked, NoDemand):
        return _reply(request.names, {}, {})
    if isinstance(asked, ImpossibleDemand):
        return _reply([], {}, dict.fromkeys(request.names, asked.text))
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    passing: list[str] = []
    bound = allocation_state.reader.bound_to(asked.uid) if asked.uid else None
    own = _own(asked, allocation_state)
    if bound is None and own in request.names:
        return _reply([own], {}, {})
    for name in request.names:
        if bound is not None:
            if name == bound.node:
                passing.append(name)
            else:
                unresolvable[name] = f"GPU pool {asked.pool.name}: {binding_text(bound)}"
            continue
        refusal = _refusal(name, asked, allocation_state)
        if refusal is None:
            passing.append(name)
        else:
            part = failed if refusal.reason.is_resolvable else unresolvable
            part[name] = node_refusal_text(refusal, asked.pool.name)
    if bound is None and (failed or unresolvable):
        passing = list(dict.fromkeys(passing))
    return _reply(passing, failed, unresolvable)


def naive_prioritize(body: bytes, allocation_state: "AllocationState") -> list[dict[str, Any]]:
    request = decode_candidates(body)
    if isinstance(request, MalformedArgs):
        return []
    scores = _scores(request, allocation_state)
    return [
        {"Host": name, "Score": score} for name, score in zip(request.names, scores, strict=True)
    ]


def _scores(request: "CandidatesRequest", allocation_state: "AllocationState") -> list[int]:
    asked = read_pod(request.pod, allocation_state.index)
    if isinstance(asked, NoDemand | ImpossibleDemand):
        return [0] * len(request.names)
    state = allocation_state.index.state(asked.pool.name)
    scores: list[int] = []
    for name in request.names:
        node = state.node(name)
        fits = node is not None and node.available >= asked.demand.units
        requested = UnitRequest(asked.demand.units)
        scores.append(score_of(node, requested, asked.pool.strategy) if fits else 0)  # type: ignore[arg-type]  # it fits, so it is there
    best = _own(asked, allocation_state)
    if best in request.names:
        scores[request.names.index(best)] = 10
    return scores


def _own(asked: "UnitDemand", allocation_state: "AllocationState") -> "NodeName | None":
    if asked.uid is None:
        return None
    bound = allocation_state.reader.bound_to(asked.uid)
    if bound is not None:
        return bound.node
    held = allocation_state.ledger.of_pod(asked.uid)
    if (
        held is None
        or held.node is None
        or _refusal(held.node, asked, allocation_state) is not None
    ):
        return None
    return held.node


def _refusal(
    name: "NodeName", asked: "UnitDemand", allocation_state: "AllocationState"
) -> NodeRefusal | None:
    refusal = allocation_state.reader.refusal_on(name, asked.pool, asked.demand, uid=asked.uid)
    if refusal is None or refusal.reason is not NodeReason.NODE_NOT_IN_POOL:
        return refusal
    is_in_index = allocation_state.index.knows_node(name)
    return NodeRefusal(reason=refusal.reason if is_in_index else NodeReason.UNKNOWN_NODE)


def _reply(
    names: "list[Any]",
    failed: "dict[Any, str]",
    unresolvable: "dict[Any, str]",
    *,
    error: str = "",
) -> dict[str, Any]:
    return {
        "Nodes": None,
        "NodeNames": names,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": unresolvable,
        "Error": error,
    }
