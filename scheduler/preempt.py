"""preempt: the proposed nodes on which evicting the proposed victims really makes room.

kube-scheduler's dry run counts units on a node. It does not know of units reserved for unbound pods, of faulted
devices, or of pods on unknown devices. Nodes where that decides are dropped. None is added, and victims and PDB
violations are returned unchanged.
"""

from typing import TYPE_CHECKING

from scheduler.outcome import Outcome
from scheduler.pod_demand import ImpossibleDemand, NoDemand, UnitDemand

if TYPE_CHECKING:
    from api.names import NodeName
    from pool.allocation_reader import AllocationReader
    from scheduler.codec import MetaVictims, VictimsByNode
    from scheduler.pod_demand import PodDemand


def keep_nodes(
    asked: "PodDemand", proposed: "VictimsByNode", reader: "AllocationReader"
) -> "tuple[Outcome, VictimsByNode]":
    """Return the nodes worth an eviction.

    A node without victims is dropped: kube-scheduler takes one in the reply for an error of the call.
    """
    match asked:
        case NoDemand():
            return Outcome.NOT_OURS, {node: one for node, one in proposed.items() if one.pods}
        case ImpossibleDemand():
            return Outcome.IMPOSSIBLE, {}
        case UnitDemand():
            kept = {
                node: victims
                for node, victims in proposed.items()
                if _is_worth_it(asked, node, victims, reader=reader)
            }
            return Outcome.FITS if kept else Outcome.NONE_FITS, kept


def _is_worth_it(
    asked: UnitDemand,
    node: "NodeName",
    victims: "MetaVictims",
    *,
    reader: "AllocationReader",
) -> bool:
    if not victims.pods:
        return False
    if asked.uid is not None and reader.bound_to(asked.uid) is not None:
        return False  # it may not go anywhere else, and has its units there
    uids = [pod.uid for pod in victims.pods]
    return reader.fits_without(uids, node, (asked.pool, asked.demand), uid=asked.uid)
