"""Names that the outside world sees: group, resources, labels, annotations, identifiers.

A name written in two places is a bug; every other package takes it from here.
"""

import re
from typing import Final, NewType

NodeName = NewType("NodeName", str)
PoolName = NewType("PoolName", str)
DeviceName = NewType("DeviceName", str)
"""`metadata.name` of a GPUDevice."""
PodUid = NewType("PodUid", str)
ReservationId = NewType("ReservationId", str)
UnitId = NewType("UnitId", str)
"""What the device plugin calls the device: a card's UUID, `<uuid>::<n>`, or a MIG instance's UUID."""

GROUP: Final = "gpu.deckhouse.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

RESOURCE_PREFIX: Final = f"{GROUP}/"
"""Extended resources with this prefix are pools; admission refuses those that are not."""
MAX_RESOURCE_NAME_LENGTH: Final = 63
"""kubelet and the NVIDIA device plugin take resource names up to 63 characters."""
MAX_POOL_NAME_LENGTH: Final = MAX_RESOURCE_NAME_LENGTH - len(RESOURCE_PREFIX)

MAX_SLICES_PER_DEVICE: Final = 64
MAX_UUID_LENGTH: Final = 63
"""Of a card or a MIG instance; NVIDIA's have 40."""
UUID_PATTERN: Final = f"[A-Za-z0-9][A-Za-z0-9-]{{2,{MAX_UUID_LENGTH - 1}}}"
"""Of a card or a MIG instance; `::` cannot be in one, since it parts off a slice."""
MAX_MIG_INSTANCES: Final = 64
"""Of a card; NVIDIA's have seven at most, each of which may be cut into seven compute instances."""
MAX_NUMA_NODE: Final = 1024

POOL_LABEL: Final = f"{GROUP}/pool"
"""On pods: the pool that the pod asks for."""
POOL_NODE_LABEL_PREFIX: Final = f"pool.{GROUP}/"
"""On nodes: `<prefix><pool>`, on every node that has a device of the pool. Its own prefix, so that
no pool name can collide with a control label."""
IGNORE_LABEL: Final = f"{GROUP}/ignore"
"""On a GPUDevice: `true` keeps the device out of every pool."""
DEVICE_NODE_LABEL: Final = f"{GROUP}/node"
"""On a GPUDevice that the inventory made: a digest of its node's name, since a node's name may be longer
than a label's value. A device without it was made by hand, and the inventory leaves it alone."""
DEVICE_NODE_ANNOTATION: Final = f"{GROUP}/node"
"""On a GPUDevice that the inventory made: its node's name, for as long as its status does not say it."""
DEVICE_LABEL_PREFIX: Final = f"{GROUP}/device."
"""A pool's autoApproveSelector sees a device's observed facts as labels with this prefix
(`inventory.assignment.eligibility.labels_of`)."""
MANAGED_LABEL: Final = f"{GROUP}/enabled"
"""On a Node: `false` keeps its devices out of every pool."""
POOL_TAINTS_ANNOTATION: Final = f"{GROUP}/pool-taints"
"""On a Node: `key:effect` of the taints that we put there for its pools; all others are foreign."""
POOL_FINALIZER: Final = f"{GROUP}/pool"
"""On a GPUPool: it goes once nothing of the pool is left on nodes, devices and in our namespace."""
CONFIG_HASH_ANNOTATION: Final = f"{GROUP}/config-hash"
"""On what a pool runs: of the whole desired object, so that a field which we stopped setting is seen."""

ASSIGNMENT_ANNOTATION: Final = f"{GROUP}/assignment"
"""On a GPUDevice: the pool that the operator puts it in."""
RESERVATION_ANNOTATION: Final = f"{GROUP}/reservation"
"""On pods: the reservation taken at admission (`api.annotations.ReservationNote`)."""
DEVICES_ANNOTATION: Final = f"{GROUP}/devices"
"""On bound pods: container name -> unit ids (`api.annotations.encode_devices`)."""
WOKEN_ANNOTATION: Final = f"{GROUP}/woken"
"""On waiting pods: touched to make kube-scheduler try again when units came free unseen."""
LEADER_ANNOTATION: Final = f"{GROUP}/leader"
"""On bound pods: `<holder>/<number>` of the GPUControlPlaneTerm under which the pod was bound.
A ValidatingAdmissionPolicy refuses bindings of any other than the present term."""
FENCED_LABEL: Final = f"{GROUP}/fenced"
"""On our Bindings that name a term: the fence looks at those alone, so that a term which is missing
concerns no Binding of anybody else. The API server copies it to the pod, where it means nothing."""
FENCED: Final = "true"
"""Its value."""
ENGINE_ANNOTATIONS: Final = (
    RESERVATION_ANNOTATION,
    DEVICES_ANNOTATION,
    LEADER_ANNOTATION,
    WOKEN_ANNOTATION,
)
"""Only the engine may write these; a ValidatingAdmissionPolicy and admission hold that."""

RESERVED_POOL_NAMES: Final = frozenset(
    {
        "assignment",
        "devices",
        "enabled",
        "fenced",
        "gpu",
        "ignore",
        "leader",
        "managed",
        "node",
        "pool",
        "present",
        "reservation",
        "woken",
    }
)
"""Names that would read as one of our labels or annotations, or as "any GPU"."""

POOL_NAME_PATTERN: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""A DNS-1123 label: it becomes part of a resource name and a label value."""
_POOL_NAME = re.compile(POOL_NAME_PATTERN)

DEFAULT_SCHEDULER_NAME: Final = "gpu-scheduler"
"""The profile that our own Deployment of the stock kube-scheduler serves."""


def pool_name_fault(name: str) -> str | None:
    """Say what forbids this name for a pool, or None where nothing does."""
    if name in RESERVED_POOL_NAMES:
        return f'"{name}" is a reserved word; choose another name'
    if len(name) > MAX_POOL_NAME_LENGTH:
        return (
            f"the name has {len(name)} characters; at most {MAX_POOL_NAME_LENGTH} are possible, "
            f"so that {RESOURCE_PREFIX}<name> fits {MAX_RESOURCE_NAME_LENGTH}"
        )
    if not _POOL_NAME.match(name):
        return "only lower-case letters, digits and '-' are possible, with no '-' at either end"
    return None


def pool_node_label(pool: PoolName) -> str:
    """Return the label key that marks the nodes of a pool."""
    return POOL_NODE_LABEL_PREFIX + pool
