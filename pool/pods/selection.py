"""What a pending pod demands of its node beyond units and the pool: node selector, required affinity, tolerations, resources.

Its claims and the rules about other pods are named: where volumes and pods are is in objects that no cache has, which are
read when a node is planned (`reconciler.scaling.demand.pod_places`).

Equal selections are one object: ten thousand waiting pods of one Job have the same.
"""

import functools
from sys import intern
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import structs, to_builtins

from api.foreign.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodAffinity,
    PreferredSchedulingTerm,
    Toleration,
)
from api.meta import LabelSelector, Model, SelectorOperator, SelectorRequirement
from api.names import CAPACITY_GATE, POOL_LABEL, RESOURCE_PREFIX, PoolName, pool_node_label
from api.selector_text import label_selector_text
from pool.compute_resources import others_requested
from pool.model import Constraints, PodSelection
from pool.node_affinity import terms_beyond_pool
from pool.peer_rules import Peer, PeerKind, PeerRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from api.foreign.core import Pod, PodSpec

_Parts = tuple[
    tuple[tuple[str, str], ...],
    tuple[NodeSelectorTerm, ...],
    tuple[Toleration, ...],
    tuple[tuple[str, int], ...],
    tuple[str, ...],
    tuple[PeerRule, ...],
    tuple[str, ...],
    tuple[str, ...],
    str,
    tuple[PeerRule, ...],
    tuple[PreferredSchedulingTerm, ...],
]

_SELECTS_NOTHING: Final = NodeSelectorTerm()
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Parts).decode


class _PeerTerm(Model, frozen=True):
    """A term of affinity or anti-affinity, or a constraint on spreading."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    max_skew: int = 1
    min_domains: int | None = None
    node_taints_policy: str = ""


def selection_of(pod: "Pod") -> PodSelection:
    """Return the selection of a pod that admission has mutated."""
    spec = pod.spec
    key = pool_node_label(PoolName(pod.metadata.label(POOL_LABEL) or ""))
    selector = tuple(sorted(item for item in (spec.node_selector or {}).items() if item[0] != key))
    peers = list(_peers(spec, pod.metadata.namespace, pod.metadata.labels or {}))
    parts: _Parts = (
        selector,
        _affinity(spec.affinity, key),
        tuple(spec.tolerations or ()),
        others_requested(spec, ours=RESOURCE_PREFIX),
        tuple(_claims(pod)),
        tuple(rule for rule in peers if isinstance(rule, PeerRule) and not rule.weight),
        tuple(words for words in peers if isinstance(words, str)),
        unweighed(spec),
        "",
        tuple(rule for rule in peers if isinstance(rule, PeerRule) and rule.weight),
        tuple(preferred_node_terms(spec)),
    )
    return _shared(_encode(parts))


def unweighed(spec: "PodSpec") -> tuple[str, ...]:
    """Return the fields of a pod's spec that this control plane never weighs, and kube-scheduler does.

    Preferences and rules about other pods, which count in some decisions, are those of `pool.what_if.unweighed`.
    """
    volumes = spec.volumes or ()
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    ports = [port for container in containers for port in container.ports or ()]
    amounts = others_requested(spec, ours=RESOURCE_PREFIX)
    fields = {
        "spec.schedulingGates": any(
            gate.name != CAPACITY_GATE for gate in spec.scheduling_gates or ()
        ),
        "spec.volumes[].persistentVolumeClaim": any(
            volume.persistent_volume_claim for volume in volumes
        ),
        "spec.volumes[].ephemeral": any(volume.ephemeral is not None for volume in volumes),
        "spec.containers[].ports[].hostPort": any(port.host_port for port in ports),
        "spec.hostNetwork": spec.host_network and ports,
        # It counts pods on nodes of no pool, which the index does not have.
        "spec.topologySpreadConstraints[].nodeAffinityPolicy": any(
            constraint.get("nodeAffinityPolicy") == "Ignore"
            for constraint in spec.topology_spread_constraints or ()
        ),
        "spec.resourceClaims": spec.resource_claims,
        **{f"spec.containers[].resources.requests[{name}]": amount for name, amount in amounts},
    }
    return tuple(path for path, is_there in fields.items() if is_there)


def spread_constraint(pool: str, key: str, *, is_strict: bool) -> dict[str, Any]:
    """Return the constraint by which admission spreads the pods of a pool over the values of a node label.

    The selector is the label of the pool, which admission sets on its pods. Nodes whose taints keep the pod away do not
    count, which they would by default: a zone that is cordoned or unreachable after the pod was admitted would stay at 0
    pods, and limit every other zone to one.
    """
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if is_strict else "ScheduleAnyway",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {POOL_LABEL: pool}},
    }


@functools.lru_cache(maxsize=1024)
def soft_spread_rule(pool: str, key: str, namespace: str) -> PeerRule:
    """Return the rule of a pod to which admission has added the pool's soft constraint on spreading."""
    term = msgspec.convert(spread_constraint(pool, key, is_strict=False), _PeerTerm)
    labels = {POOL_LABEL: pool}
    return _peer_rule(term, namespace, labels, kind=PeerKind.SPREAD, weight=1)


def peer_of(spec: "PodSpec", namespace: str, labels: "Mapping[str, str]") -> Peer:
    """Return the pod as rules of other pods select it."""
    return _shared_peer(
        namespace, tuple(sorted(labels.items())), _anti_affinity(spec, namespace, labels)
    )


def peer_rules(
    spec: "PodSpec", namespace: str, labels: "Mapping[str, str]"
) -> "tuple[PeerRule, ...]":
    """Return the pod's rules about other pods, preferences among them; those that cannot be read are left out."""
    if spec.topology_spread_constraints is None and (
        spec.affinity is None
        or (spec.affinity.pod_affinity is None and spec.affinity.pod_anti_affinity is None)
    ):
        return ()
    return tuple(rule for rule in _peers(spec, namespace, labels) if isinstance(rule, PeerRule))


def preferred_node_terms(spec: "PodSpec") -> "Sequence[PreferredSchedulingTerm]":
    node_affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    return (node_affinity.preferred if node_affinity is not None else None) or ()


def constraints_of_selection(selection: PodSelection, peer: Peer | None = None) -> Constraints:
    """Return the constraints that admission would derive from the pod, for one decision."""
    terms = list(selection.affinity)
    required = NodeSelector(node_selector_terms=terms) if terms else None
    return Constraints(
        node_selector=dict(selection.node_selector),
        affinity=Affinity(node_affinity=NodeAffinity(required=required)),
        tolerations=selection.tolerations,
        peer=peer,
        rules=selection.peers,
        preferred=selection.preferred,
        preferred_nodes=selection.preferred_nodes,
    )


def _affinity(affinity: "Affinity | None", key: str) -> tuple[NodeSelectorTerm, ...]:
    node_affinity = affinity.node_affinity if affinity is not None else None
    required = node_affinity.required if node_affinity is not None else None
    if required is None:
        return ()
    terms = terms_beyond_pool(required.node_selector_terms or (), key)
    return () if terms is None else tuple(terms) or (_SELECTS_NOTHING,)


def _claims(pod: "Pod") -> "Iterator[str]":
    """Yield the names of claims, those that Kubernetes makes for the pod's ephemeral volumes among them."""
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}"


def _anti_affinity(
    spec: "PodSpec", namespace: str, labels: "Mapping[str, str]"
) -> "tuple[PeerRule, ...]":
    """Return the required podAntiAffinity."""
    if spec.affinity is None or spec.affinity.pod_anti_affinity is None:
        return ()
    rules = peer_rules(spec, namespace, labels)
    return tuple(rule for rule in rules if rule.kind is PeerKind.ANTI_AFFINITY and not rule.weight)


def _peers(
    spec: "PodSpec", namespace: str, labels: "Mapping[str, str]"
) -> "Iterator[PeerRule | str]":
    """Yield the rules about other pods, preferences among them; a required one that cannot be read in words."""
    for kind, given, weight in _peer_terms(spec):
        try:
            term = msgspec.convert(given, _PeerTerm)
        except msgspec.ValidationError:
            if not weight:
                yield f"{kind.value} that cannot be read"
        else:
            yield _peer_rule(term, namespace, labels, kind=kind, weight=weight)


def _peer_terms(spec: "PodSpec") -> "Iterator[tuple[PeerKind, object, int]]":
    """Yield the terms with their weights, 0 for required ones; a soft constraint on spreading has the weight 1."""
    affinity = spec.affinity or Affinity()
    for kind, terms in (
        (PeerKind.AFFINITY, affinity.pod_affinity or PodAffinity()),
        (PeerKind.ANTI_AFFINITY, affinity.pod_anti_affinity or PodAffinity()),
    ):
        yield from ((kind, to_builtins(term), 0) for term in terms.required or ())
        for item in terms.preferred or ():
            if item.weight > 0:
                yield kind, to_builtins(item.pod_affinity_term), item.weight
    for constraint in spec.topology_spread_constraints or ():
        is_soft = constraint.get("whenUnsatisfiable") == "ScheduleAnyway"
        if is_soft or constraint.get("whenUnsatisfiable") == "DoNotSchedule":
            yield PeerKind.SPREAD, constraint, int(is_soft)


def _peer_rule(
    given: _PeerTerm,
    namespace: str,
    labels: "Mapping[str, str]",
    *,
    kind: PeerKind,
    weight: int,
) -> PeerRule:
    selector = given.label_selector
    if selector is not None:
        # Of a stored pod the API server has merged them, and the same again changes nothing.
        same = [
            SelectorRequirement(key=key, operator=operator, values=[labels[key]])
            for keys, operator in (
                (given.match_label_keys, SelectorOperator.IN),
                (given.mismatch_label_keys, SelectorOperator.NOT_IN),
            )
            for key in keys or ()
            if key in labels
        ]
        selector = structs.replace(
            selector, match_expressions=[*(selector.match_expressions or ()), *same]
        )
    others, namespaces = given.namespace_selector, tuple(sorted(given.namespaces or ()))
    if others is None and not namespaces:
        namespaces = (namespace,)
    return PeerRule(
        kind=kind,
        key=given.topology_key,
        selector=None if selector is None else label_selector_text(selector),
        namespaces=namespaces,
        namespace_selector=None if others is None else label_selector_text(others),
        counts_itself=selector is not None
        and selector.matches(labels)
        and (others is not None or namespace in namespaces),
        max_skew=given.max_skew,
        min_domains=given.min_domains or 1,
        honors_taints=given.node_taints_policy == "Honor",
        weight=weight,
    )


@functools.lru_cache(maxsize=4096)
def _shared_peer(
    namespace: str, labels: tuple[tuple[str, str], ...], anti_affinity: tuple[PeerRule, ...]
) -> Peer:
    """Return one object for the equal pods of a workload."""
    return Peer(intern(namespace), labels, anti_affinity)


@functools.lru_cache(maxsize=1024)
def _shared(encoded: bytes) -> PodSelection:
    selector, *others = _decode(encoded)
    return PodSelection(tuple((intern(key), intern(value)) for key, value in selector), *others)
