"""What a check reads of a cluster; a list that may not be read is None, and is named."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, final

import msgspec

from api.field_errors import UNDECODABLE
from api.foreign.core import Node, Pod, Toleration
from api.foreign.karpenter import NodePool
from api.foreign.leases import PartialLease
from api.kinds.gpucontrolplaneconfig import GPUControlPlaneConfig
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.kinds.leadershipterm import GPUControlPlaneTerm
from api.meta import Condition, Model, ObjectMeta
from api.vendor import AMD_RESOURCE_PREFIX, NFD_AMD_LABELS
from autoscaling.node_daemons import NodeDaemon, is_node_software
from kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    GPU_CONTROL_PLANE_CONFIGS,
    GPU_CONTROL_PLANE_TERMS,
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    GPU_POOLS,
    LEASES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NODE_POOLS,
    NODES,
    PODS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from kubectl_gpu.cluster_lists import read_list
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.errors import ForbiddenError, NotFoundError
from pool.demand import units_by_resource

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from kubectl_gpu.cluster_source import AnsweringSource

T = TypeVar("T")


class CheckedContainer(Model, frozen=True):
    image: str = ""


class CheckedPodSpec(Model, frozen=True):
    containers: list[CheckedContainer] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None


class CheckedTemplate(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CheckedPodSpec = CheckedPodSpec()


class CheckedWorkloadSpec(Model, frozen=True):
    replicas: int = 1
    template: CheckedTemplate = CheckedTemplate()


class CheckedWorkloadStatus(Model, frozen=True):
    ready_replicas: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0


class CheckedWorkload(Model, frozen=True):
    """A Deployment or a DaemonSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CheckedWorkloadSpec = CheckedWorkloadSpec()
    status: CheckedWorkloadStatus = CheckedWorkloadStatus()

    @property
    def image(self) -> str:
        containers = self.spec.template.spec.containers
        return containers[0].image if containers else ""


class CheckedClient(Model, frozen=True):
    ca_bundle: str | None = None


class CheckedWebhook(Model, frozen=True):
    name: str = ""
    client_config: CheckedClient = CheckedClient()


class CheckedWebhooks(Model, frozen=True):
    """A webhook configuration of either kind."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: list[CheckedWebhook] | None = None


class CheckedVersion(Model, frozen=True):
    """A version of a definition."""

    name: str = ""
    served: bool = False
    schema: dict[str, Any] | None = None


class CheckedDefinitionSpec(Model, frozen=True):
    group: str = ""
    versions: list[CheckedVersion] | None = None


class CheckedDefinitionStatus(Model, frozen=True):
    conditions: list[Condition] | None = None


class CheckedDefinition(Model, frozen=True):
    """A CustomResourceDefinition."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CheckedDefinitionSpec = CheckedDefinitionSpec()
    status: CheckedDefinitionStatus = CheckedDefinitionStatus()


class _KubernetesRelease(Model, frozen=True):
    git_version: str = ""


@final
@dataclass(slots=True, kw_only=True)
class CheckedCluster:
    """Objects by kind."""

    now: "dt.datetime"
    namespace: str
    """Namespace of the control plane."""
    origin: str = ""
    kubernetes: str = ""
    """Version of the API server, such as v1.36.3; empty where it is unknown."""
    definitions: "list[CheckedDefinition] | None" = None
    deployments: "list[CheckedWorkload] | None" = None
    daemon_sets: "list[CheckedWorkload] | None" = None
    node_daemons: "list[NodeDaemon] | None" = None
    """DaemonSets of node software, of all namespaces."""
    node_pools: "list[NodePool] | None" = None
    leases: "list[PartialLease] | None" = None
    terms: "list[GPUControlPlaneTerm] | None" = None
    configs: "list[GPUControlPlaneConfig] | None" = None
    """None where they may not be read, which only an admin of the cluster may."""
    mutating: "list[CheckedWebhooks] | None" = None
    validating: "list[CheckedWebhooks] | None" = None
    pools: "list[GPUPool] | None" = None
    devices: "list[GPUDevice] | None" = None
    inventories: "list[GPUNodeInventory] | None" = None
    nodes: "list[Node] | None" = None
    """All before an installation; of an installed one those with AMD's devices."""
    pods: "list[Pod] | None" = None
    unread: "dict[str, str]" = field(default_factory=dict)
    """Resource -> why its list could not be read."""
    not_served: "set[str]" = field(default_factory=set)
    """Resources that the API server does not know."""


def read_cluster_state(source: "AnsweringSource", *, namespace: str) -> CheckedCluster:
    """Read what a check of an installation needs.

    Raises:
        UnreadableError: the API server cannot be reached, or accepts no credentials.
    """
    read = _Reading(source, CheckedCluster(now=source.now(), namespace=namespace))
    found = read.cluster
    found.origin = source.origin
    found.kubernetes = _kubernetes(source)
    found.definitions = read.list(ListQuery(CUSTOM_RESOURCE_DEFINITIONS), CheckedDefinition)
    found.deployments = read.list(ListQuery(DEPLOYMENTS, namespace), CheckedWorkload)
    found.daemon_sets = read.list(ListQuery(DAEMON_SETS, namespace), CheckedWorkload)
    everywhere = read.list(ListQuery(DAEMON_SETS), CheckedWorkload, _is_node_software)
    if everywhere is not None:
        found.node_daemons = [_node_daemon(item) for item in everywhere]
    found.node_pools = read.list(ListQuery(NODE_POOLS), NodePool)
    found.leases = read.list(ListQuery(LEASES, namespace), PartialLease)
    found.terms = read.list(ListQuery(GPU_CONTROL_PLANE_TERMS), GPUControlPlaneTerm)
    found.configs = read.list(ListQuery(GPU_CONTROL_PLANE_CONFIGS), GPUControlPlaneConfig)
    found.mutating = read.list(ListQuery(MUTATING_WEBHOOK_CONFIGURATIONS), CheckedWebhooks)
    found.validating = read.list(ListQuery(VALIDATING_WEBHOOK_CONFIGURATIONS), CheckedWebhooks)
    found.pools = read.list(ListQuery(GPU_POOLS), GPUPool)
    found.devices = read.list(ListQuery(GPU_DEVICES), GPUDevice)
    found.inventories = read.list(ListQuery(GPU_NODE_INVENTORIES), GPUNodeInventory)
    found.nodes = read.list(ListQuery(NODES), Node, has_amd_device)
    found.pods = read.list(ListQuery(PODS), Pod, lambda pod: units_by_resource(pod.spec))
    return found


def has_amd_device(node: Node) -> bool:
    """Say whether Node Feature Discovery or AMD's device plugin shows one."""
    labels = node.metadata.labels or {}
    resources = node.status.allocatable or {}
    return any(labels.get(item) == "true" for item in NFD_AMD_LABELS) or any(
        item.startswith(AMD_RESOURCE_PREFIX) for item in resources
    )


def _is_node_software(workload: CheckedWorkload) -> bool:
    template = workload.spec.template
    return is_node_software(template.metadata.labels or {}, template.spec.node_selector or {})


def _node_daemon(workload: CheckedWorkload) -> NodeDaemon:
    meta = workload.metadata
    tolerations = tuple(workload.spec.template.spec.tolerations or ())
    return NodeDaemon(name=f"{meta.namespace}/{meta.name}", tolerations=tolerations)


def read_bare_cluster(source: "AnsweringSource", *, namespace: str) -> CheckedCluster:
    """Read what a check before an installation needs.

    Raises:
        UnreadableError: the API server cannot be reached, or accepts no credentials.
    """
    read = _Reading(source, CheckedCluster(now=source.now(), namespace=namespace))
    found = read.cluster
    found.origin = source.origin
    found.kubernetes = _kubernetes(source)
    found.definitions = read.list(ListQuery(CUSTOM_RESOURCE_DEFINITIONS), CheckedDefinition)
    found.deployments = read.list(ListQuery(DEPLOYMENTS), CheckedWorkload)
    found.nodes = read.list(ListQuery(NODES), Node)
    return found


@final
@dataclass(frozen=True, slots=True)
class _Reading:
    source: "AnsweringSource"
    cluster: CheckedCluster

    def list(
        self,
        query: ListQuery,
        item_type: type[T],
        is_selected: "Callable[[T], object]" = lambda _: True,
    ) -> "list[T] | None":
        """Return a list; None where it may not be read, or is of a kind that the API server does not serve."""
        try:
            listed = read_list(
                self.source,
                query,
                item_type,
                keep=lambda item: item if is_selected(item) else None,
            )
        except (ForbiddenError, NotFoundError) as error:
            self.cluster.unread[query.resource.plural] = str(error)
            if isinstance(error, NotFoundError):
                self.cluster.not_served.add(query.resource.plural)
            return None
        if listed.undecodable:
            self.cluster.unread[query.resource.plural] = (
                f"{listed.undecodable} {query.resource.plural} cannot be decoded"
            )
        return listed.items


def _kubernetes(source: "AnsweringSource") -> str:
    try:
        return msgspec.json.decode(source.get("/version"), type=_KubernetesRelease).git_version
    except (NotFoundError, ForbiddenError, *UNDECODABLE):
        return ""
