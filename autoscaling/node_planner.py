"""Nodes that a pool needs: waiting pods minus free units, and minus nodes on their way.

The plan is a function of what is known, so it is made again whenever something changes, and nothing is remembered
between plans. Pods are packed in order of priority, then age. Where that asks for nodes, or a limit keeps one from a
pod, packing the pods that demand labels first, and the largest first, is tried as well: it is taken where it needs fewer
nodes, or serves all pods.

With pods that count units only, nodes of one shape are at most 1.7 times the fewest that their pods need (first fit;
Dósa and Sgall 2013), and at most 11/9 of them plus 6/9 where the largest were packed first (Dósa 2007).
"""

import functools
import itertools
from typing import TYPE_CHECKING, Final

from autoscaling.packing import ExistingNodes
from autoscaling.plan_attempt import MOST_PODS, PlanAttempt, waiting_order
from autoscaling.request_ids import request_id
from autoscaling.scaling_model import Cancel, RequestPhase, ScalingPlan
from autoscaling.wait_causes import closed_cause

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from api.names import PodUid
    from autoscaling.scaling_model import RequestId, ScalingParameters, Supply
    from pool.index.reader import IndexReader
    from pool.model import PodFacts, PoolFacts

_MOST_NUMBERS: Final = 2
"""Most ids of requests of one origin: a second one is in use while the node of the first one goes."""
_MOST_PODS_TWICE: Final = 500
"""Most pods that are packed in a second order, too: with more, one node more or less hardly counts, and a plan takes a
third of a second where sets of devices are constrained.
"""
_CANCELLABLE: Final = frozenset({RequestPhase.PLANNED, RequestPhase.SIGNALLED})
"""Phases before the node is launched; a launched one comes, and goes when it is empty."""


def plan(
    parameters: "ScalingParameters",
    waiting: "Sequence[PodFacts]",
    index: "IndexReader",
    *,
    supply: "Supply",
    now: "dt.datetime",
) -> ScalingPlan:
    """Return what to ask for, what to cancel, and why pods wait; equal inputs give equal plans.

    Args:
        parameters: the pool's parameters.
        waiting: pods of the pool that wait for units, gated by this control plane or not, in any order.
        index: the live device index; it is only read.
        supply: requests that left a trace in the API, failures, NodePools, and money.
        now: the time, against which back-offs are held.
    """
    closed = closed_cause(parameters.pool)
    if closed is not None:
        return ScalingPlan(
            waits={pod.uid: closed for pod in waiting},
            cancels=_cancels(supply, frozenset(), closed.message),
        )
    pods = sorted(waiting, key=waiting_order)
    coming = frozenset(
        item.node.name for item in supply.in_flight if item.is_in_flight and item.node is not None
    )
    attempted = functools.partial(
        PlanAttempt,
        parameters,
        index,
        supply=supply,
        existing=ExistingNodes(index, parameters.pool.name, coming=coming),
        origins=_origins(parameters.pool, pods, supply),
        now=now,
    )
    attempt = attempted()
    attempt.pack(pods)
    is_small = not attempt.is_cut and attempt.packed <= _MOST_PODS_TWICE
    if is_small and (attempt.opened or attempt.is_capped):
        hardest_first = sorted(pods, key=_placement_order)  # stable: else in the same order
        other = attempted()
        other.pack(hardest_first)
        if not other.is_capped and (attempt.is_capped or other.opened < attempt.opened):
            attempt = other
    warm_wait = attempt.add_warm_units()
    return ScalingPlan(
        requests=attempt.requests(),
        assigned=attempt.assigned(),
        waits=attempt.waits,
        cancels=_cancels(
            supply, attempt.needed(), f"nothing in pool {parameters.pool.name} needs it any more"
        ),
        warm_wait=warm_wait,
    )


def _placement_order(pod: "PodFacts") -> tuple[bool, int]:
    """Sort key: pods that few nodes take come first, and of these the largest."""
    selection = pod.selection
    demands_labels = selection is not None and bool(selection.node_selector or selection.affinity)
    return (not demands_labels, -pod.demand.units)


def _origins(
    pool: "PoolFacts", pods: "Sequence[PodFacts]", supply: "Supply"
) -> "dict[RequestId, PodUid]":
    """Return the waiting pods that nodes on their way were asked for, as their ids show."""
    left = {item.id for item in supply.in_flight if item.is_in_flight}
    shapes = sorted({item.shape.name for item in supply.in_flight if item.shape is not None})
    found: dict[RequestId, PodUid] = {}
    for number, shape in itertools.product(range(_MOST_NUMBERS), shapes):
        for pod in pods[:MOST_PODS] if left else ():
            id_ = request_id(pool, pod.uid, shape, number=number)
            if id_ in left:
                left.discard(id_)
                found[id_] = pod.uid
    return found


def _cancels(supply: "Supply", needed: "frozenset[RequestId]", text: str) -> tuple[Cancel, ...]:
    """Return the requests whose signals are to go: those that failed, and those that nothing needs."""
    found: list[Cancel] = []
    for item in supply.in_flight:
        if item.phase in {RequestPhase.FAILED, RequestPhase.EXPIRED}:
            found.append(Cancel(item.id, item.phase, item.message))
        elif item.phase in _CANCELLABLE and item.id not in needed:
            reason = text if item.shape is not None else "its shape is not in the spec any more"
            found.append(Cancel(item.id, RequestPhase.SUPERSEDED, reason))
    return tuple(sorted(found, key=lambda item: item.id))
