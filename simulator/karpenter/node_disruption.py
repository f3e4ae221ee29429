"""Nodes that go: those that are empty for long enough, and those whose NodePool has changed.

A drifted node with pods is kept unless they fit on other nodes that exist; Karpenter itself would launch another node
for them first.
"""

import datetime as dt
import math
import re
from typing import TYPE_CHECKING, Final

from api.foreign.karpenter import DO_NOT_DISRUPT_ANNOTATION
from api.quantity import DURATION_PATTERN
from kube.resources import NODE_CLAIMS, NODES
from simulator.karpenter.karpenter_writes import (
    Report,
    delete_claim,
    once,
    patch_claim,
    with_conditions,
)
from simulator.karpenter.node_claims import HASH_ANNOTATION, disrupt_node, hash_of
from simulator.karpenter.provisioning import pack, template_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kube.resources import Resource
    from simulator.karpenter.karpenter_writes import Action
    from simulator.karpenter.observed_cluster import (
        ClusterSight,
        Look,
        SeenClaim,
        SeenNode,
        SeenNodePool,
        SeenPod,
    )

CONSOLIDATABLE: Final = "Consolidatable"
DRIFTED: Final = "Drifted"
EMPTY: Final = "Empty"
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0}
_BLOCKED_FOR_S: Final = 120.0


def mark(look: "Look", claim: "SeenClaim") -> "list[Action]":
    """Return the conditions Consolidatable and Drifted of a NodeClaim, where they change."""
    pool = look.sight.node_pools.get(claim.node_pool)
    if pool is None or claim.is_going or not claim.is_launched:
        return []
    drift = _drift(pool, claim)
    changes = [(DRIFTED, "True", drift, drift)] if drift else []
    if _is_consolidatable(look, pool, claim):
        changes.append((CONSOLIDATABLE, "True", CONSOLIDATABLE, ""))
    absent = {CONSOLIDATABLE, DRIFTED} - {kind for kind, _, _, _ in changes}
    conditions = with_conditions(claim.status.conditions, look.now, *changes, without=absent)
    if conditions is None:
        return []
    return [patch_claim(claim, {"status": {"conditions": conditions}}, "status")]


def disrupt(look: "Look") -> "list[Action]":
    """Return the end of nodes; of empty ones after a time in which they stay empty."""
    memory, sight = look.memory, look.sight
    if memory.validating is not None:
        ends, names = memory.validating
        if look.now < ends:
            return []
        memory.validating = None
        still = [sight.claims[name] for name in names if name in sight.claims]
        return _end(sight, [item for item in still if _is_to_go(look, item)], EMPTY)
    if memory.looked and not look.has_passed(memory.looked, look.times.disruption_poll_s):
        return []
    memory.looked = look.now
    drifted = [item for item in _disruptable(look) if item.has(DRIFTED)]
    empty = [item for item in drifted if _is_empty(sight, item)]
    if ended := _end(sight, _within_budgets(sight, empty, DRIFTED), DRIFTED):
        return ended
    if moved := [action for item in drifted for action in _move(look, item)]:
        return moved
    found = [item for item in _disruptable(look) if _is_to_go(look, item)]
    allowed = tuple(budget.name for budget in _within_budgets(sight, found, EMPTY))
    if allowed:
        memory.validating = (look.after(look.times.validation_s), allowed)
    return []


def _is_consolidatable(look: "Look", pool: "SeenNodePool", claim: "SeenClaim") -> bool:
    after = _seconds(pool.spec.disruption.consolidate_after)
    initialized = claim.since("Initialized") if claim.is_initialized else None
    if after is None or initialized is None:
        return False
    last = claim.status.last_pod_event_time
    since = dt.datetime.fromisoformat(last) if last else initialized
    return look.has_passed(since, after)


def _seconds(text: str) -> float | None:
    """Return a duration; None for `Never`, and for none."""
    if not re.match(DURATION_PATTERN, text):
        return None
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall("([0-9]+)(h|m|s)", text))


def _drift(pool: "SeenNodePool", claim: "SeenClaim") -> str:
    if (claim.metadata.annotation(HASH_ANNOTATION) or "") != hash_of(pool):
        return "NodePoolDrifted"
    if not template_of(pool).allow(claim.metadata.labels or {}):
        return "RequirementsDrifted"
    return ""


def _disruptable(look: "Look") -> "list[SeenClaim]":
    """Return NodeClaims whose nodes may be disrupted at all."""
    sight = look.sight
    return [
        claim
        for _, claim in sorted(sight.claims.items())
        if claim.is_initialized
        and not claim.is_going
        and (node := sight.node_of(claim)) is not None
        and node.metadata.deletion_timestamp is None
        and look.memory.nominated.get(node.metadata.name, look.now) <= look.now
        and node.metadata.annotation(DO_NOT_DISRUPT_ANNOTATION) != "true"
        and not any(_forbids(pod) for pod in sight.pods_on(node.metadata.name))
        and claim.node_pool in sight.node_pools
        and sight.node_pools[claim.node_pool].spec.replicas is None
    ]


def _forbids(pod: "SeenPod") -> bool:
    is_active = not pod.is_terminal and pod.metadata.deletion_timestamp is None
    return is_active and pod.metadata.annotation(DO_NOT_DISRUPT_ANNOTATION) == "true"


def _is_empty(sight: "ClusterSight", claim: "SeenClaim") -> bool:
    node = sight.node_of(claim)
    return node is not None and not any(pod.keeps_node for pod in sight.pods_on(node.metadata.name))


def _is_to_go(look: "Look", claim: "SeenClaim") -> bool:
    return (
        claim.has(CONSOLIDATABLE)
        and _is_empty(look.sight, claim)
        and any(item.name == claim.name for item in _disruptable(look))
    )


def _within_budgets(
    sight: "ClusterSight", claims: "Iterable[SeenClaim]", reason: str
) -> "list[SeenClaim]":
    """Return as many NodeClaims of each NodePool as its budgets allow now."""
    allowed: list[SeenClaim] = []
    left: dict[str, int] = {}
    for claim in claims:
        name = claim.node_pool
        if name not in left:
            of_pool = sight.claims_of(name)
            going = sum(item.is_going for item in of_pool)
            left[name] = _budget(sight.node_pools[name], len(of_pool), reason) - going
        if left[name] > 0:
            left[name] -= 1
            allowed.append(claim)
    return allowed


def _budget(pool: "SeenNodePool", nodes: int, reason: str) -> int:
    budgets = pool.spec.disruption.budgets
    least = nodes
    for budget in budgets if budgets is not None else ({"nodes": "10%"},):
        if reason in (budget.get("reasons") or (reason,)):
            text = str(budget.get("nodes", "10%"))
            share = math.ceil(nodes * int(text[:-1]) / 100) if text.endswith("%") else int(text)
            least = min(least, share)
    return least


def _move(look: "Look", claim: "SeenClaim") -> "list[Action]":
    """End a drifted node whose pods fit on others; record an Event where they do not."""
    sight = look.sight
    node = sight.node_of(claim)
    if node is None or _is_empty(sight, claim):
        return []
    pods = [pod for pod in sight.pods_on(node.metadata.name) if pod.keeps_node]
    results = pack(sight, pods, unavailable=frozenset(), leaving_out={claim.name})
    if not results.failed and not results.new:
        return _end(sight, _within_budgets(sight, [claim], DRIFTED), DRIFTED)
    why = results.failed[0][1] if results.failed else "would launch another node"
    report = _report(node, "DisruptionBlocked", f"Not all pods would schedule, {why}")
    return once(look, report, for_s=_BLOCKED_FOR_S)


def _end(sight: "ClusterSight", claims: "Iterable[SeenClaim]", reason: str) -> "list[Action]":
    written: list[Action] = []
    for claim in claims:
        node = sight.node_of(claim)
        if node is not None:
            written += disrupt_node(node)
            written.append(_report(node, "DisruptionTerminating", f"Disrupting Node: {reason}"))
            note = f"Disrupting NodeClaim: {reason}"
            written.append(_report(claim, "DisruptionTerminating", note, resource=NODE_CLAIMS))
        written.append(delete_claim(claim))
    return written


def _report(
    regarding: "SeenNode | SeenClaim", reason: str, note: str, *, resource: "Resource" = NODES
) -> Report:
    metadata = regarding.metadata
    return Report(resource=resource, regarding=metadata, type="Normal", reason=reason, note=note)
