"""Changes of a pool pod, as JSON Patch (RFC 6902) operations.

Each builder returns no operation where the pod is as it should be, so that a reinvocation changes nothing.
No other field is touched, reordered or read back: a newer API server may send fields unknown to this code.

Operations are `add` and `remove` only. A failing `test`, or an `add` under a missing parent, is an internal
error for the user, so the builders create parents first. `add` on an existing member replaces it.
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.foreign.core import DEFAULT_SCHEDULER, SchedulingGate, Toleration
from api.meta import SelectorOperator
from api.names import (
    CAPACITY_GATE,
    ENGINE_ANNOTATIONS,
    POOL_LABEL,
    RESERVATION_ANNOTATION,
    PoolName,
    pool_node_label,
)
from api.text import pointer_token
from pool.node_affinity import Tolerations, required_terms, toleration_of
from pool.pods.selection import spread_constraint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from admission.decision import PatchOperation
    from api.foreign.core import NodeSelectorTerm, Pod, PodSpec, Taint
    from api.meta import ObjectMeta


WRITTEN_LATER: Final = tuple(key for key in ENGINE_ANNOTATIONS if key != RESERVATION_ANNOTATION)
"""Annotations that no new pod may carry."""

_LABELS: Final = "/metadata/labels"
_ANNOTATIONS: Final = "/metadata/annotations"
_POOL_LABEL_PATH: Final = f"{_LABELS}/{pointer_token(POOL_LABEL)}"
_RESERVATION_PATH: Final = f"{_ANNOTATIONS}/{pointer_token(RESERVATION_ANNOTATION)}"
_GATES: Final = "/spec/schedulingGates"
_AFFINITY: Final = "/spec/affinity"
_NODE_AFFINITY: Final = f"{_AFFINITY}/nodeAffinity"
_REQUIRED_KEY: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_REQUIRED: Final = f"{_NODE_AFFINITY}/{_REQUIRED_KEY}"
_TERMS: Final = f"{_REQUIRED}/nodeSelectorTerms"


def _add(path: str, value: object) -> "PatchOperation":
    """Set a member, or append to a list where the path ends in `/-`."""
    return {"op": "add", "path": path, "value": value}


def _remove(path: str) -> "PatchOperation":
    return {"op": "remove", "path": path}


def strip_annotations(
    meta: "ObjectMeta", keys: "Iterable[str]" = ENGINE_ANNOTATIONS
) -> "list[PatchOperation]":
    """Remove annotations that only this control plane may write."""
    present = meta.annotations or {}
    return [_remove(f"{_ANNOTATIONS}/{pointer_token(key)}") for key in keys if key in present]


def annotate(meta: "ObjectMeta", reservation: str) -> "list[PatchOperation]":
    """Set the reservation annotation, and remove the other annotations of this control plane."""
    operations = strip_annotations(meta, WRITTEN_LATER)
    if meta.annotation(RESERVATION_ANNOTATION) == reservation:
        return operations
    if meta.annotations is None:
        return [_add(_ANNOTATIONS, {RESERVATION_ANNOTATION: reservation})]
    return [*operations, _add(_RESERVATION_PATH, reservation)]


def label(meta: "ObjectMeta", pool: PoolName) -> "list[PatchOperation]":
    if meta.label(POOL_LABEL) == pool:
        return []
    if meta.labels is None:
        return [_add(_LABELS, {POOL_LABEL: pool})]
    return [_add(_POOL_LABEL_PATH, pool)]


def missing_tolerations(spec: "PodSpec", taints: "Collection[Taint]") -> list[Toleration]:
    """Return tolerations for the pool's taints that the pod does not tolerate yet.

    Only for these: a pod that tolerated other taints of the pool's nodes would survive cordon and drain.
    """
    if not taints:
        return []
    given = Tolerations(spec.tolerations or ())
    return [toleration_of(taint) for taint in taints if not given.cover(taint)]


def tolerate(spec: "PodSpec", missing: "Sequence[Toleration]") -> "list[PatchOperation]":
    if not missing:
        return []
    if spec.tolerations is None:
        return [_add("/spec/tolerations", list(missing))]
    return [_add("/spec/tolerations/-", item) for item in missing]


def require_pool_nodes(spec: "PodSpec", pool: PoolName) -> "list[PatchOperation]":
    """Require a node of the pool in every term of the pod's node affinity.

    Terms are alternatives, so one without the requirement would undo it. An empty term, and an empty list of terms,
    select nothing; with the requirement in them they would select something.
    """
    key = pool_node_label(pool)
    expression = {"key": key, "operator": SelectorOperator.EXISTS.value}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    if spec.affinity is None:
        return [_add(_AFFINITY, {"nodeAffinity": {_REQUIRED_KEY: required}})]
    if spec.affinity.node_affinity is None:
        return [_add(_NODE_AFFINITY, {_REQUIRED_KEY: required})]
    if spec.affinity.node_affinity.required is None:
        return [_add(_REQUIRED, required)]
    operations: list[PatchOperation] = []
    for number, term in enumerate(required_terms(spec.affinity)):
        if not (term.match_expressions or term.match_fields) or _names_pool_nodes(term, key):
            continue
        expressions = f"{_TERMS}/{number}/matchExpressions"
        operations.append(
            _add(expressions, [expression])
            if term.match_expressions is None
            else _add(f"{expressions}/-", expression)
        )
    return operations


def without_own_spread(pod: "Pod") -> "Pod":
    """Return the pod as its author wrote it, without the constraint that an earlier admission added."""
    given = pod.spec.topology_spread_constraints
    if not given:
        return pod
    kept = [item for item in given if not _is_own_spread(pod, item)]
    if len(kept) == len(given):
        return pod
    spec = msgspec.structs.replace(pod.spec, topology_spread_constraints=kept or None)
    return msgspec.structs.replace(pod, spec=spec)


def spread(pod: "Pod", constraint: "Mapping[str, Any] | None") -> "list[PatchOperation]":
    """Add the constraint; None: the pool's pods are not spread.

    An existing constraint on the same key stays alone. One that an earlier admission added, of this pod or of the pod
    of which it is a copy, is strict where `constraint` is, and a preference otherwise: in another cluster, or after a
    change of the pool, no node may have its key.
    """
    path, given = "/spec/topologySpreadConstraints", pod.spec.topology_spread_constraints
    key = constraint["topologyKey"] if constraint else None
    operations = []
    for number, item in enumerate(given or ()):
        if _is_own_spread(pod, item):
            is_same = constraint is not None and item["topologyKey"] == key
            when = constraint["whenUnsatisfiable"] if constraint and is_same else "ScheduleAnyway"
            if item["whenUnsatisfiable"] != when:
                operations.append(_add(f"{path}/{number}/whenUnsatisfiable", when))
    if constraint is None or any(item.get("topologyKey") == key for item in given or ()):
        return operations
    addition = _add(path, [constraint]) if given is None else _add(f"{path}/-", constraint)
    return [*operations, addition]


def _is_own_spread(pod: "Pod", item: "Mapping[str, Any]") -> bool:
    pool, given = pod.metadata.label(POOL_LABEL), item.get
    return pool is not None and item == spread_constraint(
        pool, given("topologyKey", ""), is_strict=given("whenUnsatisfiable") == "DoNotSchedule"
    )


def gate(spec: "PodSpec") -> "list[PatchOperation]":
    """Keep the pod out of the scheduling queue until its pool has units for it."""
    given = spec.scheduling_gates
    ours = SchedulingGate(name=CAPACITY_GATE)
    if given is None:
        return [_add(_GATES, [ours])]
    return [] if ours in given else [_add(f"{_GATES}/-", ours)]


def ungate(spec: "PodSpec") -> "list[PatchOperation]":
    """Remove the gate from a pod that has units, or whose pool does not scale: nothing else would remove it."""
    given = spec.scheduling_gates
    if not given:
        return []
    ours = [number for number, item in enumerate(given) if item.name == CAPACITY_GATE]
    if len(ours) == len(given):
        return [_remove(_GATES)]
    return [_remove(f"{_GATES}/{number}") for number in reversed(ours)]


def choose_scheduler(spec: "PodSpec", scheduler: str | None) -> "list[PatchOperation]":
    """Set this control plane's scheduler, unless the pod names another one than the default."""
    if scheduler is None or scheduler == spec.scheduler_name:
        return []
    if spec.scheduler_name not in {"", DEFAULT_SCHEDULER}:
        return []
    return [_add("/spec/schedulerName", scheduler)]


def _names_pool_nodes(term: "NodeSelectorTerm", key: str) -> bool:
    return any(
        expression.key == key
        and expression.operator in {SelectorOperator.EXISTS, SelectorOperator.IN}
        for expression in term.match_expressions or ()
    )
