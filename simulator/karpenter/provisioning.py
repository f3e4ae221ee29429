"""Pods that no node takes, into new NodeClaims: Karpenter's scheduling, with one term of affinity at a time.

Pods in order of CPU, memory and age, whatever their priority; onto nodes that exist or are on their way, then onto
NodeClaims of this look, then onto a new one of the NodePool with the highest weight. A NodeClaim keeps every instance
type that its pods fit on.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.foreign.core import Taint
from api.foreign.karpenter import NODE_POOL_LABEL
from api.well_known_labels import INSTANCE_TYPE_LABEL
from pool.node_affinity import Tolerations
from simulator.karpenter.label_values import WELL_KNOWN, LabelRequirements
from simulator.karpenter.observed_cluster import Amounts, add, amounts, fits, total_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from simulator.karpenter.instance_types import InstanceType
    from simulator.karpenter.observed_cluster import ClusterSight, SeenClaim, SeenNodePool, SeenPod

    Offerings = AbstractSet[tuple[str, str, str]]
    """Instance type, zone and capacity type of each."""

NODES_LIMIT: Final = "nodes"
_EPHEMERAL: Final = ("node.kubernetes.io/", "readiness.k8s.io/", "karpenter.sh/unregistered")
"""Beginnings of the keys of taints that go by themselves."""


@final
@dataclass(slots=True, kw_only=True)
class NewClaim:
    """A NodeClaim to create."""

    node_pool: "SeenNodePool"
    requirements: LabelRequirements
    types: "list[InstanceType]"
    pods: "list[SeenPod]" = field(default_factory=list)
    requests: Amounts = field(default_factory=dict)


@final
@dataclass(slots=True, kw_only=True)
class _Existing:
    """A node, or one on its way."""

    name: str
    labels: "Mapping[str, str]"
    taints: list[Any]
    free: Amounts


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Placing:
    """A pod with one of its alternatives."""

    pod: "SeenPod"
    wanted: LabelRequirements
    requests: Amounts
    unavailable: "Offerings"


@final
@dataclass(slots=True, kw_only=True)
class ProvisioningResults:
    """Where pods go."""

    new: list[NewClaim] = field(default_factory=list)
    nominated: "list[tuple[SeenPod, str]]" = field(default_factory=list)
    """Pods and names of nodes, or of NodeClaims that have none yet."""
    failed: "list[tuple[SeenPod, str]]" = field(default_factory=list)
    """Pods and why."""


def pack(
    sight: "ClusterSight",
    pods: "Iterable[SeenPod]",
    *,
    unavailable: "Offerings",
    leaving_out: "AbstractSet[str]" = frozenset(),
) -> ProvisioningResults:
    """Return where pods go; nodes of the NodeClaims to leave out take none."""
    results, existing = ProvisioningResults(), list(_existing(sight, leaving_out))
    room = {name: _remaining(sight, pool) for name, pool in sight.node_pools.items()}
    for pod in sorted(pods, key=_order):
        why = ""
        for wanted in _alternatives(pod):
            one = _Placing(pod=pod, wanted=wanted, requests=pod.requests, unavailable=unavailable)
            if _onto_existing(results, existing, one) or _onto_new(results, one):
                break
            why = _onto_another(sight, results, one, room=room)
            if not why:
                break
        else:
            results.failed.append((pod, why))
    return results


def template_of(node_pool: "SeenNodePool") -> LabelRequirements:
    """Return the requirements and labels of a NodePool's nodes."""
    labels = {NODE_POOL_LABEL: node_pool.name, **node_pool.labels}
    listed = LabelRequirements.of(node_pool.node_spec.get("requirements") or ())
    return listed.and_(LabelRequirements.of_labels(labels))


def lasting_taints(claim: "SeenClaim", taints: "Iterable[Any]") -> list[Any]:
    """Return the taints of a node that will not go by themselves."""
    startup = {(item["key"], item.get("effect")) for item in claim.spec.get("startupTaints") or ()}
    return [
        taint
        for taint in taints
        if (taint.key, taint.effect) not in startup and not taint.key.startswith(_EPHEMERAL)
    ]


def _order(pod: "SeenPod") -> tuple[int, int, str, str]:
    requests = pod.requests
    created = pod.metadata.creation_timestamp or ""
    return (-requests.get("cpu", 0), -requests.get("memory", 0), created, pod.metadata.uid)


def _alternatives(pod: "SeenPod") -> "Iterator[LabelRequirements]":
    """Yield a pod's requirements with one of its required terms each."""
    selector = LabelRequirements.of_labels(pod.spec.node_selector or {})
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    terms = required.node_selector_terms if required else None
    for term in terms or ():
        expressions = [
            {
                "key": expression.key,
                "operator": expression.operator.value,
                "values": expression.values or [],
            }
            for expression in term.match_expressions or ()
        ]
        yield selector.and_(LabelRequirements.of(expressions))
    if not terms:
        yield selector


def _existing(sight: "ClusterSight", leaving_out: "AbstractSet[str]") -> "Iterator[_Existing]":
    taken = set()
    for name, claim in sorted(sight.claims.items()):
        node = sight.node_of(claim)
        if node is not None:
            taken.add(node.metadata.name)
        if claim.is_going or not claim.is_launched or name in leaving_out:
            continue
        free = amounts(claim.status.allocatable)
        labels, taints, at = dict(claim.metadata.labels or {}), [], name
        if node is not None:
            at = node.metadata.name
            labels |= node.metadata.labels or {}
            # kubelet shows zero until a plugin has registered
            free |= {key: amount for key, amount in node.allocatable.items() if amount}
            taints = list(node.spec.taints or ())
        if not claim.is_initialized:
            taints = lasting_taints(claim, taints)
        used = total_of(pod.requests for pod in sight.pods_on(at) if not pod.is_terminal)
        yield _Existing(name=at, labels=labels, taints=taints, free=_minus(free, used))
    for name, node in sorted(sight.nodes.items()):
        if name not in taken and NODE_POOL_LABEL not in (node.metadata.labels or {}):
            used = total_of(pod.requests for pod in sight.pods_on(name) if not pod.is_terminal)
            yield _Existing(
                name=name,
                labels=node.metadata.labels or {},
                taints=list(node.spec.taints or ()),
                free=_minus(node.allocatable, used),
            )


def _minus(amount: "Mapping[str, int]", less: "Mapping[str, int]") -> Amounts:
    return {name: amount.get(name, 0) - less.get(name, 0) for name in {*amount, *less}}


def _remaining(sight: "ClusterSight", pool: "SeenNodePool") -> Amounts:
    """Return what a NodePool may still have of each limited resource."""
    used: Amounts = {NODES_LIMIT: 0}
    for claim in sight.claims_of(pool.name):
        used[NODES_LIMIT] += 1000
        type_ = sight.types.get(claim.metadata.label(INSTANCE_TYPE_LABEL) or "")
        add(used, type_.allocatable_milli if type_ else {})
    limits = amounts(pool.spec.limits)
    return {name: limit - used.get(name, 0) for name, limit in limits.items()}


def _tolerates(pod: "SeenPod", taints: "Iterable[Any]") -> bool:
    tolerated = Tolerations(pod.spec.tolerations or ())
    return all(taint.effect == "PreferNoSchedule" or tolerated.cover(taint) for taint in taints)


def _onto_existing(
    results: ProvisioningResults, existing: "Sequence[_Existing]", one: _Placing
) -> bool:
    for node in existing:
        if (
            _tolerates(one.pod, node.taints)
            and one.wanted.allow(node.labels)
            and fits(one.requests, node.free)
        ):
            node.free = _minus(node.free, one.requests)
            results.nominated.append((one.pod, node.name))
            return True
    return False


def _onto_new(results: ProvisioningResults, one: _Placing) -> bool:
    for claim in sorted(results.new, key=lambda new: len(new.pods)):
        if _pool_conflict(claim.node_pool, claim.requirements, one):
            continue
        combined = claim.requirements.and_(one.wanted)
        requests = total_of((claim.requests, one.requests))
        types = _fitting(claim.types, combined, requests, unavailable=one.unavailable)
        if types:
            claim.requirements, claim.types, claim.requests = combined, types, requests
            claim.pods.append(one.pod)
            return True
    return False


def _onto_another(
    sight: "ClusterSight", results: ProvisioningResults, one: _Placing, *, room: dict[str, Amounts]
) -> str:
    """Add a NodeClaim for a pod; return why not, or nothing."""
    whys: list[str] = []
    pools = (pool for pool in sight.node_pools.values() if _is_usable(pool))
    for pool in sorted(pools, key=lambda pool: (-(pool.spec.weight or 0), pool.name)):
        found = _new_claim(sight, pool, one, limit=room[pool.name])
        if isinstance(found, NewClaim):
            results.new.append(found)
            return ""
        whys.append(f"{found} (NodePool={pool.name})")
    return "; ".join(whys) or "no nodepools found"


def _new_claim(
    sight: "ClusterSight", pool: "SeenNodePool", one: _Placing, *, limit: Amounts
) -> NewClaim | str:
    """Return a NodeClaim for a pod, which counts against the limit; or why there is none."""
    template = template_of(pool)
    if why := _pool_conflict(pool, template, one):
        return why
    if limit.get(NODES_LIMIT, 1000) < 1000:
        return "node limits have been exhausted for nodepool"
    within = [type_ for type_ in sight.types.values() if fits(_limited(type_, limit), limit)]
    if not within:
        return "all available instance types exceed limits for nodepool"
    combined = template.and_(one.wanted)
    types = _fitting(within, combined, one.requests, unavailable=one.unavailable)
    if not types:
        return _why_no_type(sight, combined, one)
    for name in limit:  # the largest of the types that it may become
        limit[name] -= max(_limited(type_, limit)[name] for type_ in types)
    new = NewClaim(node_pool=pool, requirements=combined, types=types, requests=dict(one.requests))
    new.pods.append(one.pod)
    return new


def _is_usable(pool: "SeenNodePool") -> bool:
    is_ready = any(
        condition.type == "Ready" and condition.status == "True"
        for condition in pool.status.conditions or ()
    )
    return is_ready and pool.spec.replicas is None and pool.metadata.deletion_timestamp is None


def _pool_conflict(pool: "SeenNodePool", requirements: LabelRequirements, one: _Placing) -> str:
    taints = [msgspec.convert(taint, Taint) for taint in pool.node_spec.get("taints") or ()]
    if not _tolerates(one.pod, taints):
        return "did not tolerate taint"
    return requirements.conflict_with(one.wanted)


def _limited(type_: "InstanceType", limit: "Mapping[str, int]") -> Amounts:
    have = {NODES_LIMIT: 1000, **type_.allocatable_milli}
    return {name: have.get(name, 0) for name in limit}


def _fitting(
    types: "Iterable[InstanceType]",
    requirements: LabelRequirements,
    requests: "Mapping[str, int]",
    *,
    unavailable: "Offerings",
) -> "list[InstanceType]":
    """Return the instance types that requests fit on, with an offering that requirements allow."""
    known = LabelRequirements(
        {key: item for key, item in requirements.by_key.items() if key in WELL_KNOWN}
    )
    return [
        type_
        for type_ in types
        if fits(requests, type_.allocatable_milli)
        and any(
            known.allow(type_.all_labels | offering.labels)
            and (type_.name, offering.zone, offering.capacity_type) not in unavailable
            for offering in type_.offerings
        )
    ]


def _why_no_type(sight: "ClusterSight", requirements: LabelRequirements, one: _Placing) -> str:
    listed = (
        f"{expression['key']} {expression['operator']} {expression.get('values', [])}"
        for expression in requirements.expressions()
    )
    resources = ", ".join(f"{name}={amount / 1000:g}" for name, amount in one.requests.items())
    has_type = any(fits(one.requests, type_.allocatable_milli) for type_ in sight.types.values())
    what = "met all requirements" if has_type else "has enough resources"
    return f"no instance type {what}, requirements={', '.join(listed)}, resources={resources}"
