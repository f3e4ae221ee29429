"""The four verbs: bytes in, a `VerbResult` out. Each decodes, decides and encodes; none raises for its input.

Where the protocol has no field for an error (prioritize, preempt), the reply is the harmless one: no score, no
eviction. The outcome and the log line have the reason.
"""

from typing import TYPE_CHECKING, Final

from api.names import owner_of
from api.status_conditions import parse_time
from api.units import part_of
from pool.placement.topology import TopologyQuality, quality_of, topology_of
from scheduler.bind import bind_pod
from scheduler.codec import (
    MalformedArgs,
    decode_bind,
    decode_preemption,
    encode_bind,
    encode_filter_error,
    encode_preemption,
    encode_priorities,
)
from scheduler.filter import filter_names
from scheduler.outcome import NOT_READY, Outcome, PlacementQuality, PodPlacement, VerbResult, Warmth
from scheduler.pod_demand import NoDemand, UnitDemand, read_pod, remember_pod
from scheduler.preempt import keep_nodes
from scheduler.prioritize import no_scores, score_names

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from pool.index.reader import IndexReader
    from pool.model import PodFacts, PoolFacts
    from pool.reservations.reservation import Reservation
    from scheduler.bind import Bound
    from scheduler.codec import BindRequest, ExtenderPod
    from scheduler.context import ExtenderContext
    from scheduler.node_lists import Scored
    from scheduler.pod_demand import PodDemand

_QUALITIES: Final = {
    TopologyQuality.ISLAND: PlacementQuality.ONE_ISLAND,
    TopologyQuality.NUMA_NODE: PlacementQuality.ONE_NUMA_NODE,
    TopologyQuality.SPLIT: PlacementQuality.SPLIT,
    TopologyQuality.UNKNOWN: PlacementQuality.UNKNOWN,
}


def filter_nodes(body: bytes, context: "ExtenderContext") -> VerbResult:
    """Answer ExtenderArgs with ExtenderFilterResult."""
    call = context.candidates.read(body)
    if isinstance(call, MalformedArgs):
        error = encode_filter_error(call.error)
        return VerbResult(error, Outcome.MALFORMED, {"error": call.error})
    pod, candidates = call.pod, call.candidates
    asked = read_pod(pod, context.index)
    remember_pod(pod, asked, context)
    if _must_wait(asked, context):
        return VerbResult(encode_filter_error(NOT_READY), Outcome.NOT_READY, _facts(pod, asked))
    outcome, filtered = filter_names(asked, candidates, context)
    if filtered.passing is not None:
        context.candidates.expect(filtered.passing)
    facts = _facts(pod, asked, nodes=len(candidates.names), fit=filtered.fit)
    return VerbResult(filtered.body, outcome, facts)


def prioritize(body: bytes, context: "ExtenderContext") -> VerbResult:
    """Answer ExtenderArgs with HostPriorityList."""
    call = context.candidates.read(body)
    if isinstance(call, MalformedArgs):
        return VerbResult(encode_priorities([]), Outcome.MALFORMED, {"error": call.error})
    pod, candidates = call.pod, call.candidates
    asked = read_pod(pod, context.index)
    facts = _facts(pod, asked, nodes=len(candidates.names))
    if _must_wait(asked, context):
        return VerbResult(no_scores(candidates.names), Outcome.NOT_READY, facts)
    outcome, scored = score_names(asked, candidates, context)
    return VerbResult(scored.body, outcome, {**facts, **_best_facts(asked, scored)})


def preempt(body: bytes, context: "ExtenderContext") -> VerbResult:
    """Answer ExtenderPreemptionArgs with ExtenderPreemptionResult."""
    request = decode_preemption(body)
    if isinstance(request, MalformedArgs):
        return VerbResult(encode_preemption({}), Outcome.MALFORMED, {"error": request.error})
    asked = read_pod(request.pod, context.index)
    if _must_wait(asked, context):
        return VerbResult(encode_preemption({}), Outcome.NOT_READY, _facts(request.pod, asked))
    outcome, kept = keep_nodes(asked, request.victims_by_node, context.reader)
    facts = _facts(request.pod, asked, nodes=len(request.victims_by_node), kept=len(kept))
    return VerbResult(encode_preemption(kept), outcome, facts)


async def bind(body: bytes, context: "ExtenderContext") -> VerbResult:
    """Answer ExtenderBindingArgs with ExtenderBindingResult; awaits only reports and the binder.

    When cancelled, or failed by the binder, it raises; `scheduler.bind` says what the allocation state then has.
    """
    request = decode_bind(body)
    if isinstance(request, MalformedArgs):
        return VerbResult(encode_bind(request.error), Outcome.MALFORMED, {"error": request.error})
    result = await bind_pod(request, context)
    bound = _placement(request, result, context)
    facts = _bind_facts(request, result, bound, index=context.index)
    return VerbResult(encode_bind(result.error), result.outcome, facts, bound)


def _must_wait(asked: "PodDemand", context: "ExtenderContext") -> bool:
    """Say whether the answer needs caches that are not synced; pods without a pool never wait."""
    return not isinstance(asked, NoDemand) and not context.is_ready()


def _facts(pod: "ExtenderPod", asked: "PodDemand", **figures: int) -> "Mapping[str, object]":
    facts: dict[str, object] = {
        "pod": f"{pod.metadata.namespace}/{pod.metadata.name}",
        "uid": pod.metadata.uid,
    }
    if isinstance(asked, UnitDemand):
        facts |= {"pool": asked.pool.name, "units": asked.demand.units}
    return {**facts, **figures}


def _best_facts(asked: "PodDemand", scored: "Scored") -> "Mapping[str, object]":
    """Return the strategy that scored, and the one best node where there is one."""
    if not scored.any_fits or not isinstance(asked, UnitDemand):
        return {}
    facts = _strategy_facts(asked.pool, scored.value_lost)
    return facts if scored.best is None else {"node": scored.best, **facts}


def _strategy_facts(pool: "PoolFacts", value_lost: int | None) -> "Mapping[str, object]":
    facts: dict[str, object] = {"strategy": pool.strategy.value}
    if value_lost is not None:
        facts["value_lost"] = value_lost
    return facts


def _placement(
    request: "BindRequest", result: "Bound", context: "ExtenderContext"
) -> PodPlacement | None:
    """Return the facts of a pod that this call has bound; None for any other."""
    if result.outcome is not Outcome.BOUND or result.reservation is None:
        return None
    pod = context.reader.pods.get(request.pod.uid)
    created = None if pod is None else parse_time(pod.created)
    now = context.now().utc
    waited = None if created is None else now - created
    return PodPlacement(
        pool=owner_of(result.reservation.pool),
        quality=_placement_quality(result.reservation, context.index),
        waited_s=None if waited is None else max(0.0, waited.total_seconds()),
        reserved_for_s=_reserved_for_s(pod, result.reservation, context.index, now=now),
        warmth=_warmth(result.reservation, context.index),
    )


def _reserved_for_s(
    pod: "PodFacts | None", bound: "Reservation", index: "IndexReader", *, now: "dt.datetime"
) -> float | None:
    """Return how long ago the pod got the reservation that became its Binding, None where it had none.

    By the annotation, which outlives the leader that made it.
    """
    note, pool = None if pod is None else pod.reservation, index.pool(bound.pool)
    if note is None or pool is None or note.id != bound.id or note.expires_at is None:
        return None
    left = note.expires_at - now
    return max(0.0, pool.ttl_s - left.total_seconds())


def _warmth(reservation: "Reservation", index: "IndexReader") -> Warmth | None:
    """Return whether the node has the caches of the pod; None where it mounts none that is known."""
    preference = index.cache_demand_of(reservation.demand)
    if preference is None:
        return None
    return Warmth.WARM if reservation.node in preference.warm_nodes else Warmth.COLD


def _bind_facts(
    request: "BindRequest", result: "Bound", bound: PodPlacement | None, *, index: "IndexReader"
) -> "Mapping[str, object]":
    facts: dict[str, object] = {
        "pod": str(request.pod),
        "uid": request.pod.uid,
        "node": request.node,
    }
    if result.reservation is not None:
        facts |= {
            "pool": result.reservation.pool,
            "devices": result.reservation.devices,
            "reservation": result.reservation.id,
        }
        pool = index.pool(result.reservation.pool)
        if pool is not None:
            facts |= _strategy_facts(pool, result.value_lost)
    if bound is not None:
        facts["quality"] = bound.quality.value
        if bound.waited_s is not None:
            facts["waited_s"] = bound.waited_s
        if bound.warmth is not None:
            facts["warmth"] = bound.warmth.value
    if result.error:
        facts["error"] = result.error
    return facts


def _placement_quality(reservation: "Reservation", index: "IndexReader") -> PlacementQuality:
    """Return how the devices of a reservation with units are connected."""
    names = {
        name
        for unit in reservation.units
        for name in index.devices.with_part(part_of(unit))[:1]  # its owner
    }
    if len(names) == 1 or reservation.node is None:
        return PlacementQuality.SINGLE
    devices = [entry.facts for entry in index.devices_on(reservation.pool, reservation.node)]
    mask = sum(1 << position for position, item in enumerate(devices) if item.name in names)
    return _QUALITIES[quality_of(topology_of(devices), mask)]
