"""Size limits of a pool pod, checked before anything is planned for it.

Kubernetes bounds the annotations of an object, keys and values of all of them together, to 262,144 bytes
(`totalAnnotationSizeLimitB`), and checks that at every write of the object but one: a Binding adds its
annotations unchecked, after which no status of the pod can be written any more. So a pod must have space for all
annotations of this control plane:

      28 + 512   reservation: key; id 24, pool 46, node 253, time 32, signature 43, and the JSON around them 70
      24         devices: key
      23 + 312   leader: key; holder 253 + 1 + 36, a slash, a number of at most 19 digits
      22 + 27    woken: key; time
    = 948, taken as 1,024, and in each of reservation and devices for every container
       4 + the name as JSON: `"main":[],`
      47 a unit: `"GPU-01234567-89ab-cdef-0123-456789abcdef::63",`
"""

from typing import TYPE_CHECKING, Final

import msgspec

from admission.decision import Denied
from api.names import ENGINE_ANNOTATIONS, POOL_NODE_LABEL_PREFIX
from pool.node_affinity import required_terms
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from api.foreign.core import Affinity, NodeSelectorTerm, Pod
    from api.meta import ObjectMeta
    from pool.model import Demand

MAX_ANNOTATIONS_BYTES: Final = 262_144
MAX_EXPRESSIONS: Final = 1_000
"""Each alternative costs an operation of the patch, 200 bytes; kube-scheduler compares every expression with every
node. A term for each node of a large pool is still possible.
"""

_FIXED_BYTES: Final = 1_024
_CONTAINER_BYTES: Final = 4
_UNIT_BYTES: Final = 47
_encode: Final = msgspec.json.Encoder().encode
_MOST_BYTES_OF_A_CHARACTER: Final = 4
_REQUIRED: Final = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def size_denial(pod: "Pod", demand: "Demand") -> Denied | None:
    """Deny a pod with too many node expressions, or without space for the annotations of this control plane."""
    return _expressions_denial(pod.spec.affinity) or _size_denial(pod.metadata, demand)


def _expressions_denial(affinity: "Affinity | None") -> Denied | None:
    found = 0
    for term in required_terms(affinity):
        found += max(1, _count_expressions(term))
    if found <= MAX_EXPRESSIONS:
        return None
    text = (
        f"{_REQUIRED} has {found} expressions in all terms, at most {MAX_EXPRESSIONS} are possible:"
        " select nodes by a label that they share"
    )
    return Denied(RefusalReason.TOO_LARGE, text)


def _count_expressions(term: "NodeSelectorTerm") -> int:
    """Count the expressions of a term, except the one that admission adds to it."""
    found = len(term.match_fields or ())
    for expression in term.match_expressions or ():
        found += not expression.key.startswith(POOL_NODE_LABEL_PREFIX)
    return found


def _size_denial(meta: "ObjectMeta", demand: "Demand") -> Denied | None:
    needed = _bytes_needed(demand)
    given = meta.annotations or {}
    characters = sum(map(len, given)) + sum(map(len, given.values()))
    if needed + characters * _MOST_BYTES_OF_A_CHARACTER <= MAX_ANNOTATIONS_BYTES:
        return None
    taken = sum(
        len(key.encode()) + len(value.encode())
        for key, value in given.items()
        if key not in ENGINE_ANNOTATIONS
    )
    if needed + taken <= MAX_ANNOTATIONS_BYTES:
        return None
    text = (
        f"metadata.annotations have {taken} bytes, and what gpu-control-plane writes about the pod's devices"
        f" takes up to {needed}: Kubernetes takes {MAX_ANNOTATIONS_BYTES} in all; shorten the annotations, or"
        " let fewer containers ask for units"
    )
    return Denied(RefusalReason.TOO_LARGE, text)


def _bytes_needed(demand: "Demand") -> int:
    listed = 0
    for container in demand.containers:
        listed += _CONTAINER_BYTES + len(_encode(container.name)) + container.units * _UNIT_BYTES
    return _FIXED_BYTES + 2 * listed
