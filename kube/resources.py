"""Where each kind lives at the API server: group, version, plural, scope, path."""

from dataclasses import dataclass
from typing import Final, final
from urllib.parse import quote

from api.names import GKM_GROUP, GROUP, NVIDIA_GROUP, VERSION


@final
@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API; `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the path of an object, or without `name` of the collection; every part escaped.

        A namespaced resource without a namespace is the collection over all namespaces.

        Raises:
            ValueError: the parts do not make a path, as a namespace for a cluster-scoped resource.
        """
        self._check(namespace, name, subresource)
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part is not None]
        return "".join(f"/{quote(part, safe='')}" for part in parts)

    def _check(self, namespace: str | None, name: str | None, subresource: str | None) -> None:
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.plural} are cluster-scoped; there is no namespace {namespace}")
        if name is not None and self.namespaced and namespace is None:
            raise ValueError(f"{self.plural} are namespaced; {name} needs a namespace")
        if subresource is not None and name is None:
            raise ValueError(f"subresource {subresource} of {self.plural} needs a name")
        # quote() leaves dots alone, and proxies resolve "..".
        if {namespace, name, subresource} & {"", ".", ".."}:
            raise ValueError(
                f"no path of {self.plural} from {namespace!r}, {name!r}, {subresource!r}"
            )


def _core(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource("", "v1", plural, kind, namespaced)


def _registration(plural: str, kind: str) -> Resource:
    return Resource("admissionregistration.k8s.io", "v1", plural, kind, namespaced=False)


def _rbac(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource("rbac.authorization.k8s.io", "v1", plural, kind, namespaced)


def _monitoring(plural: str, kind: str) -> Resource:
    return Resource("monitoring.coreos.com", "v1", plural, kind, namespaced=True)


def _cert_manager(plural: str, kind: str) -> Resource:
    return Resource("cert-manager.io", "v1", plural, kind, namespaced=True)


def _control_plane(plural: str, kind: str) -> Resource:
    return Resource(GROUP, VERSION, plural, kind, namespaced=False)


def _gkm(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource(GKM_GROUP, VERSION, plural, kind, namespaced)


PODS: Final = _core("pods", "Pod", namespaced=True)
NODES: Final = _core("nodes", "Node", namespaced=False)
NAMESPACES: Final = _core("namespaces", "Namespace", namespaced=False)
RESOURCE_QUOTAS: Final = _core("resourcequotas", "ResourceQuota", namespaced=True)
LIMIT_RANGES: Final = _core("limitranges", "LimitRange", namespaced=True)
SECRETS: Final = _core("secrets", "Secret", namespaced=True)
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
MUTATING_WEBHOOK_CONFIGURATIONS: Final = _registration(
    "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"
)
VALIDATING_WEBHOOK_CONFIGURATIONS: Final = _registration(
    "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"
)
VALIDATING_ADMISSION_POLICIES: Final = _registration(
    "validatingadmissionpolicies", "ValidatingAdmissionPolicy"
)
VALIDATING_ADMISSION_POLICY_BINDINGS: Final = _registration(
    "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"
)
CONFIG_MAPS: Final = _core("configmaps", "ConfigMap", namespaced=True)
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True)
CONTROLLER_REVISIONS: Final = Resource(
    "apps", "v1", "controllerrevisions", "ControllerRevision", namespaced=True
)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment", namespaced=True)
ENDPOINT_SLICES: Final = Resource(
    "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", namespaced=True
)
POD_DISRUPTION_BUDGETS: Final = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True
)
RESOURCE_CLAIMS: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True
)
"""Claims of Dynamic Resource Allocation; served since Kubernetes 1.34."""
NODE_FEATURES: Final = Resource(
    "nfd.k8s-sigs.io", "v1alpha1", "nodefeatures", "NodeFeature", namespaced=True
)
PERSISTENT_VOLUME_CLAIMS: Final = _core(
    "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True
)
PERSISTENT_VOLUMES: Final = _core("persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES: Final = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False
)
SERVICES: Final = _core("services", "Service", namespaced=True)
SERVICE_ACCOUNTS: Final = _core("serviceaccounts", "ServiceAccount", namespaced=True)
ROLES: Final = _rbac("roles", "Role", namespaced=True)
ROLE_BINDINGS: Final = _rbac("rolebindings", "RoleBinding", namespaced=True)
CLUSTER_ROLES: Final = _rbac("clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = _rbac("clusterrolebindings", "ClusterRoleBinding", namespaced=False)
NETWORK_POLICIES: Final = Resource(
    "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", namespaced=True
)
SERVICE_MONITORS: Final = _monitoring("servicemonitors", "ServiceMonitor")
POD_MONITORS: Final = _monitoring("podmonitors", "PodMonitor")
PROMETHEUS_RULES: Final = _monitoring("prometheusrules", "PrometheusRule")
VERTICAL_POD_AUTOSCALERS: Final = Resource(
    "autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler", namespaced=True
)
CERTIFICATES: Final = _cert_manager("certificates", "Certificate")
ISSUERS: Final = _cert_manager("issuers", "Issuer")
SELF_SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
GPU_CONTROL_PLANE_CONFIGS: Final = _control_plane("gpucontrolplaneconfigs", "GPUControlPlaneConfig")
MODULE_CONFIGS: Final = Resource(
    "deckhouse.io", "v1alpha1", "moduleconfigs", "ModuleConfig", namespaced=False
)
"""Deckhouse's."""
GPU_CONTROL_PLANE_TERMS: Final = _control_plane("gpucontrolplaneterms", "GPUControlPlaneTerm")
GPU_DEVICES: Final = _control_plane("gpudevices", "GPUDevice")
GPU_NODE_INVENTORIES: Final = _control_plane("gpunodeinventories", "GPUNodeInventory")
GPU_POOLS: Final = _control_plane("gpupools", "GPUPool")
GKM_CACHES: Final = _gkm("gkmcaches", "GKMCache", namespaced=True)
CLUSTER_GKM_CACHES: Final = _gkm("clustergkmcaches", "ClusterGKMCache", namespaced=False)
GKM_CACHE_NODES: Final = _gkm("gkmcachenodes", "GKMCacheNode", namespaced=True)
CLUSTER_GKM_CACHE_NODES: Final = _gkm(
    "clustergkmcachenodes", "ClusterGKMCacheNode", namespaced=False
)
CLUSTER_POLICIES: Final = Resource(
    NVIDIA_GROUP, "v1", "clusterpolicies", "ClusterPolicy", namespaced=False
)
NVIDIA_DRIVERS: Final = Resource(
    NVIDIA_GROUP, "v1alpha1", "nvidiadrivers", "NVIDIADriver", namespaced=False
)
GPU_CLUSTERS: Final = Resource(
    NVIDIA_GROUP, "v1alpha1", "gpuclusters", "GPUCluster", namespaced=False
)
RUNTIME_CLASSES: Final = Resource(
    "node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False
)
NODE_CLAIMS: Final = Resource("karpenter.sh", "v1", "nodeclaims", "NodeClaim", namespaced=False)
NODE_POOLS: Final = Resource("karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False)
CSI_DRIVERS: Final = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CAPACITY_BUFFERS: Final = Resource(
    "autoscaling.x-k8s.io", "v1beta1", "capacitybuffers", "CapacityBuffer", namespaced=True
)
