"""Why kube-scheduler does not consider a node for a pod, whatever units are free on it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from api.foreign.core import Taint
from pool.placement.planner import may_go_to

if TYPE_CHECKING:
    from pool.model import Constraints, NodeFacts

CORDONED: Final = "node is cordoned"
NOT_READY: Final = "node is not ready"
_UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_UNREADY: Final = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
"""Taints that Kubernetes itself sets on a cordoned node and on one that is not ready, a moment later."""
_OF_NOT_READY: Final = {_UNREADY.key, "node.kubernetes.io/unreachable"}


def exclusion_of(node: "NodeFacts", constraints: "Constraints") -> str:
    """Return why a node is not considered; an empty text where it is."""
    if node.is_cordoned and not constraints.tolerated.cover(_UNSCHEDULABLE):
        return CORDONED
    if not node.is_ready and not constraints.tolerated.cover(_UNREADY):
        return NOT_READY
    if may_go_to(node, constraints):
        rules = (rule for rule, test in constraints.by_peers if not test(node))
        return next((f"{rule} excludes the node" for rule in rules), "")
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not constraints.tolerated.cover(taint):
            return f"taint {taint.key}:{taint.effect} is not tolerated"
    if constraints.required is not None and constraints.required.is_exhausted:
        return "required nodeAffinity of the pod has too many expressions to compare them with every node"
    return "nodeSelector or required nodeAffinity of the pod excludes the node"


def once_uncordoned(node: "NodeFacts") -> "NodeFacts":
    taints = tuple(taint for taint in node.taints if taint.key != _UNSCHEDULABLE.key)
    return replace(node, is_cordoned=False, taints=taints)


def once_ready(node: "NodeFacts") -> "NodeFacts":
    taints = tuple(taint for taint in node.taints if taint.key not in _OF_NOT_READY)
    return replace(node, is_ready=True, taints=taints)
