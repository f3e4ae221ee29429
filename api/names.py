"""Externally visible names: group, resources, labels, annotations, identifiers.

A name that is written in two places is a bug; every other package imports it from here.
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
"""Id of a unit in the device plugin: a device's UUID, `<uuid>::<n>`, or a MIG instance's UUID."""

GROUP: Final = "gpu.deckhouse.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

RESOURCE_PREFIX: Final = f"{GROUP}/"
"""Extended resources with this prefix are pools; admission refuses those that are not."""
MAX_RESOURCE_NAME_LENGTH: Final = 63
"""kubelet and the NVIDIA device plugin accept resource names of up to 63 characters."""
MAX_POOL_NAME_LENGTH: Final = MAX_RESOURCE_NAME_LENGTH - len(RESOURCE_PREFIX)

MAX_SLICES_PER_DEVICE: Final = 100
"""Most slices of a device, beyond `MAX_DISTINCT_SLICES` with slicePlacement SameDevice only."""
MOST_SLICES_READ: Final = 1_000
"""Most slices of a device, in what another version wrote: its units are enumerated."""
MAX_DISTINCT_SLICES: Final = 64
"""Slices of a device where a container's slices may lie on several devices."""
MAX_UUID_LENGTH: Final = 63
"""Greatest length of the UUID of a device or a MIG instance; NVIDIA's have 40."""
UUID_PATTERN: Final = f"[A-Za-z0-9][A-Za-z0-9-]{{2,{MAX_UUID_LENGTH - 1}}}"
"""Pattern of the UUID of a device or a MIG instance; it has no `::`, which separates the number of a time slice."""
MAX_MIG_INSTANCES: Final = 64
"""Most MIG instances of a device; NVIDIA's have at most seven, each with up to seven compute instances."""
MAX_NUMA_NODE: Final = 1024

POOL_LABEL: Final = f"{GROUP}/pool"
"""On pods: the pool that the pod requests."""
POOL_NODE_LABEL_PREFIX: Final = f"pool.{GROUP}/"
"""On every node that has a device of the pool: the prefix and the pool's name. Its own prefix, so that
no pool name can collide with a control label."""
IGNORE_LABEL: Final = f"{GROUP}/ignore"
"""On a GPUDevice: `true` keeps the device out of every pool."""
DEVICE_NODE_LABEL: Final = f"{GROUP}/node"
"""On a GPUDevice that the inventory created: a digest of its node's name, since a node's name may be longer
than a label value. A device without it was created by hand, and the inventory ignores it."""
DEVICE_NODE_ANNOTATION: Final = f"{GROUP}/node"
"""On a GPUDevice that the inventory created: its node's name, until its status names the node."""
DEVICE_LABEL_PREFIX: Final = f"{GROUP}/device."
"""A pool's autoApproveSelector sees a device's observed facts as labels with this prefix
(`inventory.assignment.eligibility.node_labels_of`)."""
MANAGED_LABEL: Final = f"{GROUP}/enabled"
"""On a Node: `false` keeps its devices out of every pool."""
TOPOLOGY_MANAGER_POLICY_LABEL: Final = f"{GROUP}/topology-manager-policy"
"""On a Node, set by hand: kubelet's topologyManagerPolicy, over what its agent reads from kubelet."""
TOPOLOGY_MANAGER_SCOPE_LABEL: Final = f"{GROUP}/topology-manager-scope"
"""On a Node, set by hand beside the policy: kubelet's topologyManagerScope; `container` without it."""
PRESENT_LABEL: Final = f"{GROUP}/present"
"""On a Node: `true` where a device is, set by the control plane or a NodeFeatureRule; `false`, set by hand,
keeps the node agent away."""
PRESENT_LABEL_MANAGER: Final = "gpu-control-plane/present-label"
"""Field manager of that label: one of another manager stays as it is."""
REBOOT_LABEL: Final = f"{GROUP}/reboot-needed"
"""On a Node that the control plane cordoned: a device needs a reboot of it."""
REPAIR_MANAGER: Final = "gpu-control-plane/device-repair"
"""Field manager of that label and cordon, and of the repair in a GPUDevice's status."""
NVIDIA_PRESENT_LABEL: Final = "nvidia.com/gpu.present"
"""On a Node with a device: NVIDIA's GPU Operator sets it, and administrators of clusters without it."""
NVIDIA_GROUP: Final = "nvidia.com"
"""Group of the kinds of NVIDIA's GPU Operator."""
DRIVER_OWNER_LABEL: Final = f"{NVIDIA_GROUP}/gpu-operator.driver.owner"
"""On a Node: the NVIDIADriver whose driver it gets."""
WORKLOAD_CONFIG_LABEL: Final = f"{NVIDIA_GROUP}/gpu.workload.config"
"""On a Node, set by hand: `container`, `vm-passthrough` or `vm-vgpu`, where a ClusterPolicy serves virtual machines."""
OPERANDS_LABEL: Final = f"{NVIDIA_GROUP}/gpu.deploy.operands"
"""On a Node, set by hand: `false` keeps all operands of a ClusterPolicy away."""
MIG_CONFIG_LABEL: Final = f"{NVIDIA_GROUP}/mig.config"
"""On a Node: the layout of MIG instances that NVIDIA's MIG manager makes."""
WAIT_FOR_POOLS_ANNOTATION: Final = f"{GROUP}/wait-for-pools"
"""On a ClusterPolicy or an NVIDIADriver: GPUPools, with commas between them, whose pods an upgrade of the driver lets end first."""
UPGRADE_ENABLED_ANNOTATION: Final = f"{NVIDIA_GROUP}/gpu-driver-upgrade-enabled"
"""On a Node: `true` where it gets a new driver by itself."""
DEPLOY_LABELS_ANNOTATION: Final = f"{GROUP}/deploy-labels"
"""On a Node: the labels and annotations for a ClusterPolicy's operands that the control plane set, and removes again."""
POOL_TAINTS_ANNOTATION: Final = f"{GROUP}/pool-taints"
"""On a Node: `key:effect` of the taints that the control plane added for its pools."""
POOL_FINALIZER: Final = f"{GROUP}/pool"
"""On a GPUPool: removed once nodes, devices and the control plane's namespace have no trace of the pool."""
POLICY_FINALIZER: Final = f"{GROUP}/node-software"
"""On a ClusterPolicy or NVIDIADriver: removed once nothing is left of what the object brought."""
CONFIG_HASH_ANNOTATION: Final = f"{GROUP}/config-hash"
"""On a pool's workloads: hash of the whole desired object, so that fields no longer set are detected."""

ADOPTED_ANNOTATION: Final = f"{GROUP}/adopted"
"""On a DaemonSet that NVIDIA's GPU Operator made: digest of that for which its pods stay; empty: they are being replaced."""

OPERAND_LABEL: Final = f"{GROUP}/operand"
"""On every object of an operand, of the built-in policy, a ClusterPolicy or an NVIDIADriver: its state, such as `state-dcgm`."""

POLICY_DRIVER_LABEL: Final = f"{GROUP}/nvidia-driver"
"""On the objects of an NVIDIADriver: its name, as the value of `DRIVER_OWNER_LABEL` on its nodes."""
INSTALLATION_HASH_ANNOTATION: Final = f"{GROUP}/installation-settings"
"""On the GPUControlPlaneConfig: digest of the installation's values that were written into it last."""
TRUST_HASH_ANNOTATION: Final = f"{GROUP}/trusted-authorities"
"""On the pod template of kube-scheduler's Deployment: digest of the CAs that its pods read when they start."""

ASSIGNMENT_ANNOTATION: Final = f"{GROUP}/assignment"
"""On a GPUDevice: the pool to which the operator assigns it."""
DECIDED_BY_ANNOTATION: Final = f"{GROUP}/decided-by"
"""On a GPUDevice: the user who last changed its assignment, or its label `ignore`; admission alone writes it."""
CONFIRM_ANNOTATION: Final = f"{GROUP}/confirm"
"""On a GPUPool whose devices were partitioned by others: the generation for which an operator says that this has ended."""
RESERVATION_ANNOTATION: Final = f"{GROUP}/reservation"
"""On pods: the reservation made at admission (`api.annotations.ReservationNote`)."""
ACCESS_ANNOTATION: Final = f"{GROUP}/access"
"""On pod templates, and their pods: whose groups open the pool to the workload (`api.annotations.AccessNote`)."""
DEVICES_ANNOTATION: Final = f"{GROUP}/devices"
"""On bound pods: container name -> unit ids (`api.annotations.encode_devices`)."""
WOKEN_ANNOTATION: Final = f"{GROUP}/woken"
"""On waiting pods: changed to make kube-scheduler retry when units became free without its notice."""
CAPACITY_GATE: Final = f"{GROUP}/capacity"
"""Scheduling gate of a pod whose pool has no capacity for it and scales: removed once its units are reserved."""
UNITS_CONDITION: Final = f"{GROUP}/UnitsAvailable"
"""Condition of a pod that waits for units, with the reason; True once it does not wait for units any more."""
AGENT_NOT_READY_TAINT: Final = f"{GROUP}/agent-not-ready"
"""Startup taint (NoSchedule) of a NodePool's nodes: removed once the node's devices are in their pool."""
SCALE_REQUEST_LABEL: Final = f"{GROUP}/scale-request"
"""On signal pods, and by Karpenter on the NodeClaim and the Node that a signal causes: the id of the request."""
COMPONENT_LABEL: Final = f"{GROUP}/component"
"""On pods of the control plane that are no workload of a user: what the pod is for, such as `scale-signal`."""
SCALE_SIGNAL: Final = "scale-signal"
"""Value of the component label of a pod that makes a node autoscaler add a node, and never runs."""
SIGNAL_SCHEDULER: Final = f"{GROUP}/none"
"""`schedulerName` of such a pod: no scheduler has the name, so that nothing binds it or preempts others for it."""
SCALING_POOL_LABEL: Final = f"{GROUP}/scaling-pool"
"""On objects that make an autoscaler add nodes: the pool that they are for."""
SHAPE_ANNOTATION: Final = f"{GROUP}/shape"
"""On a signal pod: the name of the shape of the node that it asks for."""
SCALE_DEVICES_ANNOTATION: Final = f"{GROUP}/scale-devices"
"""On a signal pod: the number of devices that a node of its shape has."""
MODEL_LABEL: Final = f"{GROUP}/gpu-model"
"""On a signal pod: the product of the pool's devices, where its deviceSelector names one."""
TRIGGER_TYPE_LABEL: Final = f"{GROUP}/trigger-type"
"""On a signal pod: what it was made for, `waiting-pods` or `warm-units`."""
CREATED_BY_ANNOTATION: Final = f"{GROUP}/created-by"
"""On a signal pod: the controller that made it."""
PURPOSE_ANNOTATION: Final = f"{GROUP}/purpose"
"""On a signal pod: what it is for."""
CLEANUP_AFTER_ANNOTATION: Final = f"{GROUP}/cleanup-after"
"""On a signal pod: after what it is deleted."""
KEEP_UNTIL_ANNOTATION: Final = f"{GROUP}/keep-until"
"""On a Node that has `karpenter.sh/do-not-disrupt` from this control plane: until when."""
LEADER_ANNOTATION: Final = f"{GROUP}/leader"
"""On bound pods: `<holder>/<number>` of the GPUControlPlaneTerm under which the pod was bound.
A ValidatingAdmissionPolicy refuses Bindings of any other term than the present one."""
FENCED_LABEL: Final = f"{GROUP}/fenced"
"""On Bindings that name a term: the leadership policy selects by it, so that a missing term affects no
other Binding. The API server copies it to the pod, where it has no meaning."""
FENCED: Final = "true"
"""Its value."""
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""On the pod by which a kubelet shows a static pod; it means so in a kubelet's own writes only."""
NODES_GROUP: Final = "system:nodes"
"""The group of kubelets."""
ENGINE_ANNOTATIONS: Final = (
    RESERVATION_ANNOTATION,
    DEVICES_ANNOTATION,
    LEADER_ANNOTATION,
    WOKEN_ANNOTATION,
)
"""Only the control plane may write these; a ValidatingAdmissionPolicy and admission enforce it."""

GKM_GROUP: Final = "gkm.io"
"""Group of the kernel caches' kinds; their names are GKM's, so that its objects keep their meaning."""
GKM_API_VERSION: Final = f"{GKM_GROUP}/{VERSION}"
RESOLVED_DIGEST_ANNOTATION: Final = f"{GKM_GROUP}/resolvedDigest"
"""On a cache: the digest of its image, which admission resolved."""
MUTATION_SIGNATURE_ANNOTATION: Final = f"{GKM_GROUP}/mutationSig"
"""On a cache: proves that admission wrote the digest for this object."""
LAST_MUTATED_BY_ANNOTATION: Final = f"{GKM_GROUP}/lastMutatedBy"
"""On a cache: the user whose request resolved the digest."""
CACHE_SIZE_ANNOTATION: Final = f"{GKM_GROUP}/cache-size-bytes"
"""On a cache: bytes of the extracted files, as the image's labels say."""
CACHE_IMAGE_ANNOTATION: Final = f"{GKM_GROUP}/cacheImage"
"""On a cache: what its image says of itself, as JSON (`api.kinds.gkmcache.CacheImageFacts`)."""
GKM_ANNOTATIONS: Final = (
    RESOLVED_DIGEST_ANNOTATION,
    CACHE_IMAGE_ANNOTATION,
    MUTATION_SIGNATURE_ANNOTATION,
    LAST_MUTATED_BY_ANNOTATION,
    CACHE_SIZE_ANNOTATION,
)
"""Only admission may write these."""
KYVERNO_ANNOTATION: Final = "kyverno.io/verify-images"
"""On a cache: the images that Kyverno verified, as JSON `{"<image>@<digest>": "pass"}`."""
SIGNATURE_FORMAT_LABEL: Final = f"{GKM_GROUP}/signature-format"
"""On a cache: `cosign-v2` or `cosign-v3`; selects a policy of Kyverno's."""
CACHE_FINALIZER: Final = f"{GKM_GROUP}.gkmcachenode/finalizer"
"""On a GKMCache: removed once no node has it."""
CLUSTER_CACHE_FINALIZER: Final = f"{GKM_GROUP}.clustergkmcachenode/finalizer"
"""On a ClusterGKMCache: removed once no node has it."""

RESERVED_POOL_NAMES: Final = frozenset(
    {
        "access",
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
"""Names that could be confused with one of our labels or annotations, or with "any GPU"."""

POOL_NAME_PATTERN: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""A DNS-1123 label: it becomes part of a resource name and a label value."""
_POOL_NAME = re.compile(POOL_NAME_PATTERN)

DEFAULT_SCHEDULER_NAME: Final = "gpu-scheduler"
"""The profile that our Deployment of the stock kube-scheduler serves."""


def pool_name_fault(name: str) -> str | None:
    """Return why the name is not allowed for a pool, or None."""
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


def part_name(pool: PoolName, profile: str) -> PoolName:
    """Return the name under which the units of one MIG profile of a pool are accounted; no pool's name has a dot."""
    return PoolName(f"{pool}.{profile}")


def owner_of(name: PoolName) -> PoolName:
    """Return the pool of which the name is a part, or the pool itself."""
    return PoolName(name.partition(".")[0])


def pool_node_label(pool: PoolName) -> str:
    """Return the label key of the nodes of a pool."""
    return POOL_NODE_LABEL_PREFIX + pool


def cache_node_finalizer(cache: str) -> str:
    """Return the finalizer of a node object while the node has a cache of this name."""
    return f"{GKM_GROUP}.{cache}/finalizer"
