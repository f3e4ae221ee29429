"""What a pending pod demands of its node beyond units and the pool: node selector, required affinity, tolerations, resources.

Where its volumes and other pods are is named, and not translated: it takes objects that no cache has.

Equal selections are one object: ten thousand waiting pods of one Job have the same.
"""

import functools
from sys import intern
from typing import TYPE_CHECKING, Final

import msgspec

from api.foreign.core import Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, Toleration
from api.names import POOL_LABEL, RESOURCE_PREFIX, PoolName, pool_node_label
from pool.compute_resources import others_requested
from pool.model import Constraints, PodSelection
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
]
_HOSTNAME: Final = "kubernetes.io/hostname"

_SELECTS_NOTHING: Final = NodeSelectorTerm()
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Parts).decode


def selection_of(pod: "Pod") -> PodSelection:
    """Return the selection of a pod that admission has mutated."""
    spec = pod.spec
    key = pool_node_label(PoolName(pod.metadata.label(POOL_LABEL) or ""))
    selector = tuple(sorted(one for one in (spec.node_selector or {}).items() if one[0] != key))
    parts: _Parts = (
        selector,
        _affinity(spec.affinity, key),
        tuple(spec.tolerations or ()),
        others_requested(spec, ours=RESOURCE_PREFIX),
        tuple(_untold(spec)),
    )
    return _shared(_encode(parts))


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


def _untold(spec: "PodSpec") -> "Iterator[str]":
    """Yield what decides about the node and is not translated.

    A new node has no other pod, so that anti-affinity and spreading over nodes do not keep the pod from it.
    """
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield f"the place of claim {volume.persistent_volume_claim.claim_name}"
        elif volume.ephemeral is not None:
            yield f"the place of ephemeral volume {volume.name}"
    affinity = spec.affinity or Affinity()
    for name, terms, own in (
        ("podAffinity", affinity.pod_affinity, ""),
        ("podAntiAffinity", affinity.pod_anti_affinity, _HOSTNAME),
    ):
        for term in (terms.required or ()) if terms is not None else ():
            if term.topology_key != own:
                yield f"{name} by {term.topology_key}"
    for constraint in spec.topology_spread_constraints or ():
        key = str(constraint.get("topologyKey", ""))
        if constraint.get("whenUnsatisfiable") == "DoNotSchedule" and key != _HOSTNAME:
            yield f"spreading by {key}"


@functools.lru_cache(maxsize=1024)
def _shared(encoded: bytes) -> PodSelection:
    selector, *others = _decode(encoded)
    return PodSelection(tuple((intern(key), intern(value)) for key, value in selector), *others)
