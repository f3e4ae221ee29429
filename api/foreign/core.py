"""Projections of Kubernetes' own kinds: only the fields that this project reads.

A cache of whole objects costs six times the memory and the garbage collector's pauses.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from api.meta import Model, ObjectMeta, SelectorRequirement

DEFAULT_SCHEDULER: Final = "default-scheduler"
"""What the API server writes where a pod names no scheduler."""
PullPolicy = Literal["Always", "IfNotPresent", "Never"]


class ResourceRequirements(Model, frozen=True):
    """Resources of a container; quantities are strings or numbers, as the API server sends them."""

    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class ContainerPort(Model, frozen=True):
    """A port of a container; with the network of its host each one is a port of the host."""

    host_port: int = 0


class Container(Model, frozen=True):
    """A container, or an init container; `restart_policy` Always makes the latter a sidecar."""

    name: str = ""
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None


class NodeSelectorTerm(Model, frozen=True):
    """Expressions that must all hold."""

    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(Model, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(Model, frozen=True):
    """A preference among nodes."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Model, frozen=True):
    """Node affinity: what is required of a node, and what is preferred."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[PreferredSchedulingTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Model, frozen=True):
    """Other pods, by the places of whose nodes a pod's nodes are judged; selectors as they are written."""

    topology_key: str = ""
    label_selector: dict[str, Any] | None = None
    namespaces: list[str] | None = None
    namespace_selector: dict[str, Any] | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(Model, frozen=True):
    """A preference by other pods."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Model, frozen=True):
    """Affinity, or anti-affinity, with other pods."""

    required: list[PodAffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Model, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None

    def requires(self, label: str) -> bool:
        """Return whether every node that is selected is judged by this label."""
        required = self.node_affinity.required if self.node_affinity is not None else None
        terms = (required.node_selector_terms or ()) if required is not None else ()
        return bool(terms) and all(
            any(expression.key == label for expression in term.match_expressions or ())
            for term in terms
        )


class Toleration(Model, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


EVERY_TAINT: Final = Toleration(operator="Exists")
"""Toleration of the DaemonSets of node software. Labels say on which nodes it runs: a list of taints would be outdated by
each new pool, and each change of it would restart the pods of all nodes."""


class Taint(Model, frozen=True):
    key: str
    """Key of the taint."""
    value: str = ""
    """Value of the taint; may be empty."""
    effect: str = ""
    """NoSchedule, PreferNoSchedule or NoExecute."""

    def __str__(self) -> str:
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


class NodeTaint(Taint, frozen=True):
    """A taint of a Node with all its fields, so that a list of taints can be written back."""

    time_added: str | None = None


class SchedulingGate(Model, frozen=True):
    """A gate that keeps a pod out of the scheduling queue."""

    name: str = ""


class CSIVolume(Model, frozen=True, gc=False):
    """An inline volume of a CSI driver."""

    driver: str = ""
    volume_attributes: dict[str, str] | None = None


class ClaimVolume(Model, frozen=True, gc=False):
    """A volume of a PersistentVolumeClaim."""

    claim_name: str = ""


class Volume(Model, frozen=True, gc=False):
    """A volume of a pod; the other kinds decide nothing."""

    name: str = ""
    csi: CSIVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: dict[str, Any] | None = None
    """A claim that is made for the pod alone."""


class PodContainers(Model, frozen=True):
    """What decides the devices of a pod."""

    containers: Sequence[Container] | None = None
    init_containers: Sequence[Container] | None = None
    volumes: Sequence[Volume] | None = None


class PodSpec(PodContainers, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    service_account_name: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    """`Never` keeps kube-scheduler from evicting pods for this one."""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[dict[str, Any]] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    resources: ResourceRequirements | None = None
    """Resources of the whole pod, where its author gave them."""
    overhead: dict[str, str | int | float] | None = None
    """Overhead of the pod's runtime class."""
    host_network: bool = False
    resource_claims: list[dict[str, Any]] | None = None


class ContainerState(Model, frozen=True):
    running: dict[str, Any] | None = None


class ContainerStatus(Model, frozen=True):
    name: str = ""
    state: ContainerState = ContainerState()
    resources: ResourceRequirements | None = None
    """What the container has."""
    allocated_resources: dict[str, str | int | float] | None = None
    """What kubelet has accepted of a resize, the requests alone."""


class PodCondition(Model, frozen=True):
    """A condition of a pod with its times, so that it can be written again."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None


class PodStatus(Model, frozen=True):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    """What the pod as a whole has, where its spec has resources of the pod."""
    allocated_resources: dict[str, str | int | float] | None = None


class Pod(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_terminal(self) -> bool:
        """Return whether the phase is terminal: no container runs again."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def has_ended(self) -> bool:
        """Return whether the pod's devices are free: a terminal phase, and no container that may run.

        kubelet writes a terminal phase after all containers have stopped. Users with the right to
        `pods/status` can write one at any time, while containers still run.
        """
        return self.is_terminal and (self._is_without_node or not self._shows_running_containers)

    @property
    def is_contradicted(self) -> bool:
        """Return whether the phase is terminal and containers are shown running that kubelet may still correct."""
        return self.is_terminal and not self.has_ended

    @property
    def _is_without_node(self) -> bool:
        """Return whether the pod garbage collector ended the pod: its Node was gone, and no kubelet updates its containers.

        A Node of this name that comes later is another one.
        """
        return self.status.phase == "Failed" and any(
            condition.type == "DisruptionTarget"
            and condition.status == "True"
            and condition.reason == "DeletionByPodGC"
            for condition in self.status.conditions or ()
        )

    @property
    def _shows_running_containers(self) -> bool:
        status = self.status
        return any(
            item.state.running is not None
            for statuses in (status.container_statuses, status.init_container_statuses)
            for item in statuses or ()
        )


class OwnedMetadata(Model, frozen=True):
    """Fields of `metadata` in an entry of managedFields; keys begin with `f:`."""

    labels: dict[str, Any] | None = msgspec.field(default=None, name="f:labels")
    annotations: dict[str, Any] | None = msgspec.field(default=None, name="f:annotations")


class OwnedNodeSpec(Model, frozen=True):
    """Fields of a Node's `spec` in an entry of managedFields."""

    unschedulable: dict[str, Any] | None = msgspec.field(default=None, name="f:unschedulable")


class OwnedFields(Model, frozen=True):
    metadata: OwnedMetadata | None = msgspec.field(default=None, name="f:metadata")
    spec: OwnedNodeSpec | None = msgspec.field(default=None, name="f:spec")


class ManagedFieldsEntry(Model, frozen=True):
    """The fields that one manager owns, as far as they are read."""

    manager: str = ""
    fields: OwnedFields | None = msgspec.field(default=None, name="fieldsV1")


class NodeMetadata(ObjectMeta, frozen=True):
    """Metadata with the owners of labels."""

    managed_fields: list[ManagedFieldsEntry] | None = None

    def owns_label(self, manager: str, key: str) -> bool:
        """Return whether the field manager owns the label."""
        return any(
            f"f:{key}" in (entry.fields.metadata.labels or ())
            for entry in self.managed_fields or ()
            if entry.manager == manager and entry.fields and entry.fields.metadata
        )

    def owns_cordon(self, manager: str) -> bool:
        """Return whether the field manager owns `spec.unschedulable`."""
        return any(
            entry.fields.spec.unschedulable is not None
            for entry in self.managed_fields or ()
            if entry.manager == manager and entry.fields and entry.fields.spec
        )


class NodeSpec(Model, frozen=True):
    unschedulable: bool = False
    taints: list[NodeTaint] | None = None


class NodeCondition(Model, frozen=True):
    """A node condition without its times, since a heartbeat is no change."""

    type: str
    status: str = ""


class NodeSystemInfo(Model, frozen=True):
    """What kubelet says about the machine."""

    kernel_version: str = ""
    container_runtime_version: str = ""


class NodeStatus(Model, frozen=True):
    allocatable: dict[str, str | int | float] | None = None
    conditions: list[NodeCondition] | None = None
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(Model, frozen=True):
    metadata: NodeMetadata = NodeMetadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions or ())


class Namespace(Model, frozen=True):
    """A namespace; its labels decide about access to pools."""

    metadata: ObjectMeta = ObjectMeta()
