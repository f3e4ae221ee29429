"""Resource types: one `ResourceType` for each path that is served, built in or from a CRD."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from simulator.apiserver.schema import list_types as shapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from simulator.apiserver.schema.structural import StructuralSchema

Json = dict[str, Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResourceType:
    """One kind under one API version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = False
    has_status: bool = False
    """`/status` is served, and status is not written through the main path."""
    has_generation: bool = False
    field_labels: "Mapping[str, tuple[str, ...]]" = field(default_factory=dict)
    """Field selectors beside metadata.name and metadata.namespace -> its path."""
    shape: "Mapping[str, Any]" = field(default_factory=dict)
    """Structural schema, or as much of it as says how lists merge."""
    schema: "StructuralSchema | None" = None
    """Set for custom resources only."""
    creates_on_update: bool = False
    needs_version_to_update: bool = False
    returns_deleted: bool = False
    """DELETE answers with the object instead of a Status."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_name(self) -> str:
        """Return the name in messages, such as `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> tuple[str, str]:
        return (self.group, self.plural)

    @property
    def is_custom(self) -> bool:
        return self.schema is not None


def _paths(*labels: str) -> dict[str, tuple[str, ...]]:
    return {label: tuple(label.split(".")) for label in labels}


_REGARDING = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_LABELS = {
    **_paths("reason", "type", "reportingController"),
    **_paths(*(f"regarding.{part}" for part in _REGARDING)),
}


def _core(plural: str, kind: str, **more: Any) -> ResourceType:  # noqa: ANN401  # fields as they are
    return ResourceType(group="", version="v1", plural=plural, kind=kind, **more)


def _registration(plural: str, kind: str) -> ResourceType:
    return ResourceType(
        group="admissionregistration.k8s.io",
        version="v1",
        plural=plural,
        kind=kind,
        has_generation=True,
        shape=shapes.of_kind(kind),
    )


NAMESPACES = _core("namespaces", "Namespace", has_status=True, returns_deleted=True)
PODS = _core(
    "pods",
    "Pod",
    namespaced=True,
    has_status=True,
    has_generation=True,
    returns_deleted=True,
    shape=shapes.of_kind("Pod"),
    field_labels=_paths(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
)
CUSTOM_RESOURCE_DEFINITIONS = ResourceType(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    has_status=True,
    has_generation=True,
    shape=shapes.of_kind("CustomResourceDefinition"),
)
PRIORITY_CLASSES = ResourceType(
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    kind="PriorityClass",
    has_generation=True,
)
MUTATING_CONFIGURATIONS = _registration(
    "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"
)
VALIDATING_CONFIGURATIONS = _registration(
    "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"
)
LEASES = ResourceType(
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    kind="Lease",
    namespaced=True,
    creates_on_update=True,
    needs_version_to_update=True,
)
DAEMON_SETS = ResourceType(
    group="apps",
    version="v1",
    plural="daemonsets",
    kind="DaemonSet",
    namespaced=True,
    has_status=True,
    has_generation=True,
    shape=shapes.of_kind("DaemonSet"),
)
CONTROLLER_REVISIONS = ResourceType(
    group="apps",
    version="v1",
    plural="controllerrevisions",
    kind="ControllerRevision",
    namespaced=True,
)
RUNTIME_CLASSES = ResourceType(
    group="node.k8s.io",
    version="v1",
    plural="runtimeclasses",
    kind="RuntimeClass",
    namespaced=False,
)
DEPLOYMENTS = ResourceType(
    group="apps",
    version="v1",
    plural="deployments",
    kind="Deployment",
    namespaced=True,
    has_status=True,
    has_generation=True,
    shape=shapes.of_kind("Deployment"),
)


def _rbac(plural: str, kind: str, *, namespaced: bool) -> ResourceType:
    group = "rbac.authorization.k8s.io"
    return ResourceType(group=group, version="v1", plural=plural, kind=kind, namespaced=namespaced)


SERVICES = _core("services", "Service", namespaced=True, has_status=True)
ENDPOINT_SLICES = ResourceType(
    group="discovery.k8s.io",
    version="v1",
    plural="endpointslices",
    kind="EndpointSlice",
    namespaced=True,
    has_generation=True,
)
POD_DISRUPTION_BUDGETS = ResourceType(
    group="policy",
    version="v1",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    namespaced=True,
    has_status=True,
    has_generation=True,
    shape=shapes.of_kind("PodDisruptionBudget"),
)
EVENTS = ResourceType(
    group="events.k8s.io",
    version="v1",
    plural="events",
    kind="Event",
    namespaced=True,
    creates_on_update=True,
    field_labels=_EVENT_LABELS,
)

BINDINGS = _core("bindings", "Binding", namespaced=True)
"""Can only be created, and is never stored: it is the older path to bind a pod."""

BUILT_IN = (
    NAMESPACES,
    PODS,
    BINDINGS,
    _core(
        "nodes",
        "Node",
        has_status=True,
        shape=shapes.of_kind("Node"),
        field_labels=_paths("spec.unschedulable"),
    ),
    _core("secrets", "Secret", namespaced=True, field_labels=_paths("type")),
    _core("configmaps", "ConfigMap", namespaced=True),
    _core("podtemplates", "PodTemplate", namespaced=True),
    _core("serviceaccounts", "ServiceAccount", namespaced=True),
    EVENTS,
    LEASES,
    DAEMON_SETS,
    CONTROLLER_REVISIONS,
    RUNTIME_CLASSES,
    DEPLOYMENTS,
    SERVICES,
    ENDPOINT_SLICES,
    _core("persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True),
    _core("persistentvolumes", "PersistentVolume"),
    ResourceType(
        group="storage.k8s.io", version="v1", plural="storageclasses", kind="StorageClass"
    ),
    _rbac("clusterroles", "ClusterRole", namespaced=False),
    _rbac("clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _rbac("roles", "Role", namespaced=True),
    _rbac("rolebindings", "RoleBinding", namespaced=True),
    POD_DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    MUTATING_CONFIGURATIONS,
    VALIDATING_CONFIGURATIONS,
    _registration("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    _registration("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    ResourceType(group="storage.k8s.io", version="v1", plural="csidrivers", kind="CSIDriver"),
    CUSTOM_RESOURCE_DEFINITIONS,
)


@final
class Registry:
    """The resource types that are served at present; CRDs add and remove some."""

    def __init__(self) -> None:
        # (group, version, plural) -> resource type
        self._by_path = {(r.group, r.version, r.plural): r for r in BUILT_IN}

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        return self._by_path.get((group, version, plural))

    def add(self, resource: ResourceType) -> None:
        """Serve the resource type, in place of an older one of the same path."""
        self._by_path[resource.group, resource.version, resource.plural] = resource

    def discard(self, group: str, plural: str) -> None:
        for key in [k for k in self._by_path if k[0] == group and k[2] == plural]:
            del self._by_path[key]

    def of_group(self, group: str, version: str) -> "list[ResourceType]":
        return [r for (of, at, _), r in self._by_path.items() if (of, at) == (group, version)]

    def group_versions(self) -> "list[tuple[str, str]]":
        """Return groups with a name, each with a version."""
        return sorted({(group, version) for group, version, _ in self._by_path if group})

    def all_namespaced(self) -> "Iterator[ResourceType]":
        return (resource for resource in self._by_path.values() if resource.namespaced)
