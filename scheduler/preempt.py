"""preempt: the proposed nodes on which evicting the proposed victims really frees capacity.

kube-scheduler's dry run counts units on a node. It does not know of units reserved for unbound pods, of faulted
devices, or of pods on unknown devices. Nodes where that decides are dropped. None is added.

Nor does it know which devices a pod may have together. Where that is constrained, its victims may free enough units
that do not do; then further pods of a lower priority are added to them, as few as possible. None of the proposed
victims is left out, since the pod may need their CPU or memory. Each added pod counts as a violation of a
PodDisruptionBudget, which is the most that it can be, so that kube-scheduler prefers other nodes.
"""

import itertools
from typing import TYPE_CHECKING, Final

from scheduler.codec import MetaPod, MetaVictims
from scheduler.outcome import Outcome
from scheduler.pod_demand import ImpossibleDemand, NoDemand, UnitDemand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.names import NodeName, PodUid
    from pool.allocation_reader import AllocationReader
    from scheduler.codec import VictimsByNode
    from scheduler.pod_demand import PodDemand

_MOST_SETS: Final = 128
"""Sets of further victims that are tried on a node: some 5 ms."""


def keep_nodes(
    asked: "PodDemand", proposed: "VictimsByNode", reader: "AllocationReader"
) -> "tuple[Outcome, VictimsByNode]":
    """Return the nodes worth an eviction.

    A node without victims is dropped: kube-scheduler takes one in the reply for an error of the call.
    """
    match asked:
        case NoDemand():
            return Outcome.NOT_OURS, {node: item for node, item in proposed.items() if item.pods}
        case ImpossibleDemand():
            return Outcome.IMPOSSIBLE, {}
        case UnitDemand():
            kept: VictimsByNode = {}
            for node, victims in proposed.items():
                found = _victims_that_help(asked, node, victims, reader=reader)
                if found is not None:
                    kept[node] = found
            return Outcome.FITS if kept else Outcome.NONE_FITS, kept


def _victims_that_help(
    asked: UnitDemand,
    node: "NodeName",
    victims: "MetaVictims",
    *,
    reader: "AllocationReader",
) -> "MetaVictims | None":
    """Return the victims with which the pod fits: those proposed, or with as few others of the pool as do."""
    if not victims.pods:
        return None
    if asked.uid is not None and reader.bound_to(asked.uid) is not None:
        return None  # it may not go anywhere else, and has its units there
    uids = [pod.uid for pod in victims.pods]
    requested = (asked.pool, asked.demand)
    if reader.fits_without(uids, node, requested, uid=asked.uid):
        return victims
    for others in _others(asked, node, victims, reader=reader):
        if reader.fits_without([*uids, *others], node, requested, uid=asked.uid):
            return MetaVictims(
                pods=[*victims.pods, *map(MetaPod, others)],
                pdb_violations=victims.pdb_violations + len(others),
            )
    return None


def _others(
    asked: UnitDemand,
    node: "NodeName",
    victims: "MetaVictims",
    *,
    reader: "AllocationReader",
) -> "Iterator[tuple[PodUid, ...]]":
    """Yield sets of further pods of the pool that the pod may evict, smaller ones and lower priorities first."""
    pod = reader.pods.get(asked.uid) if asked.uid is not None else None
    if pod is None or not reader.has_constraints(asked.pool, node, asked.demand):
        return
    proposed = {victim.uid for victim in victims.pods or ()}
    lower = [
        other.uid
        for other in reader.pods_of_pool(asked.pool, node)
        if other.priority < pod.priority and other.uid not in proposed
    ]
    sets = itertools.chain.from_iterable(
        itertools.combinations(lower, count) for count in range(1, len(lower) + 1)
    )
    yield from itertools.islice(sets, _MOST_SETS)
    if lower:
        yield tuple(lower)
