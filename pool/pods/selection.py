"""What a pending pod demands of its node beyond units and the pool: node selector, required affinity, tolerations, resources.

Its claims and the rules about other pods are named: where volumes and pods are is in objects that no cache has, which are
read when a node is planned (`reconciler.scaling.demand.pod_places`).

Equal selections are one object: ten thousand waiting pods of one Job have the same.
"""

import functools
from sys import intern
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from api.foreign.core import Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, Toleration
from api.meta import LabelSelector, Model, SelectorOperator, SelectorRequirement
from api.names import CAPACITY_GATE, POOL_LABEL, RESOURCE_PREFIX, PoolName, pool_node_label
from api.selector_text import label_selector_text
from pool.compute_resources import others_requested
from pool.model import Constraints, PeerKind, PeerRule, PodSelection
from pool.node_affinity import terms_beyond_pool

if TYPE_CHECKING:
    from collections.abc import Iterator

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
]

_SELECTS_NOTHING: Final = NodeSelectorTerm()
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Parts).decode


class _PeerTerm(Model, frozen=True):
    """A term of affinity or anti-affinity, or a constraint on spreading."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
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
    peers = list(_peers(pod))
    parts: _Parts = (
        selector,
        _affinity(spec.affinity, key),
        tuple(spec.tolerations or ()),
        others_requested(spec, ours=RESOURCE_PREFIX),
        tuple(_claims(pod)),
        tuple(rule for rule in peers if isinstance(rule, PeerRule)),
        tuple(words for words in peers if isinstance(words, str)),
        unweighed(spec),
    )
    return _shared(_encode(parts))


def unweighed(spec: "PodSpec") -> tuple[str, ...]:
    """Return the fields of a pod's spec on which kube-scheduler may decide otherwise than `pool.what_if` does."""
    affinity, volumes = spec.affinity or Affinity(), spec.volumes or ()
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    ports = [port for container in containers for port in container.ports or ()]
    amounts = others_requested(spec, ours=RESOURCE_PREFIX)
    fields = {
        "spec.schedulingGates": any(
            gate.name != CAPACITY_GATE for gate in spec.scheduling_gates or ()
        ),
        "spec.affinity.podAffinity": affinity.pod_affinity,
        "spec.affinity.podAntiAffinity": affinity.pod_anti_affinity,
        "spec.topologySpreadConstraints": any(
            item.get("whenUnsatisfiable") != "ScheduleAnyway"
            for item in spec.topology_spread_constraints or ()
        ),
        "spec.volumes[].persistentVolumeClaim": any(
            volume.persistent_volume_claim for volume in volumes
        ),
        "spec.volumes[].ephemeral": any(volume.ephemeral is not None for volume in volumes),
        "spec.containers[].ports[].hostPort": any(port.host_port for port in ports),
        "spec.hostNetwork": spec.host_network and ports,
        "spec.resourceClaims": spec.resource_claims,
        **{f"spec.containers[].resources.requests[{name}]": amount for name, amount in amounts},
    }
    return tuple(path for path, is_there in fields.items() if is_there)


def constraints_of_selection(selection: PodSelection) -> Constraints:
    """Return the constraints that admission would derive from the pod, for one decision."""
    terms = list(selection.affinity)
    required = NodeSelector(node_selector_terms=terms) if terms else None
    return Constraints(
        node_selector=dict(selection.node_selector),
        affinity=Affinity(node_affinity=NodeAffinity(required=required)),
        tolerations=selection.tolerations,
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


def _peers(pod: "Pod") -> "Iterator[PeerRule | str]":
    """Yield the rules about other pods that kube-scheduler enforces; in words where one cannot be read."""
    for kind, given in _peer_terms(pod.spec):
        try:
            yield _peer_rule(pod, kind, msgspec.convert(given, _PeerTerm))
        except msgspec.ValidationError:
            yield f"{kind.value} that cannot be read"


def _peer_terms(spec: "PodSpec") -> "Iterator[tuple[PeerKind, object]]":
    affinity = spec.affinity or Affinity()
    for kind, terms in (
        (PeerKind.NEAR, affinity.pod_affinity),
        (PeerKind.APART, affinity.pod_anti_affinity),
    ):
        for term in (terms.required or ()) if terms is not None else ():
            yield kind, msgspec.to_builtins(term)
    for constraint in spec.topology_spread_constraints or ():
        if constraint.get("whenUnsatisfiable") == "DoNotSchedule":
            yield PeerKind.SPREAD, constraint


def _peer_rule(pod: "Pod", kind: PeerKind, given: _PeerTerm) -> PeerRule:
    namespace, labels = pod.metadata.namespace, pod.metadata.labels or {}
    selector = given.label_selector
    if selector is not None:
        same = [
            SelectorRequirement(key=key, operator=SelectorOperator.IN, values=[labels[key]])
            for key in given.match_label_keys or ()
            if kind is PeerKind.SPREAD and key in labels  # the API server merges those of affinity
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
    )


@functools.lru_cache(maxsize=1024)
def _shared(encoded: bytes) -> PodSelection:
    selector, *others = _decode(encoded)
    return PodSelection(tuple((intern(key), intern(value)) for key, value in selector), *others)
