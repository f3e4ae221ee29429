"""Values of an installation: of the chart, and of `gpu-control-plane render all --values FILE`.

The model is the only source: `values.yaml` with its comments, `values.schema.json` and the objects
come from it. Fields of Kubernetes (`tolerations`, `affinity`) are passed through as they are.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, final

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema

from api.foreign.core import PullPolicy
from api.well_known_labels import HOSTNAME_LABEL
from manifests import constants

Json = dict[str, Any]
Quantities = dict[str, str]

_DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"


@final
@dataclass(frozen=True, slots=True)
class _Form:
    """A pattern of JSON schema, and what it asks for in words."""

    pattern: str
    meaning: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> Json:
        return {**handler(schema), "pattern": self.pattern}

    def _checked(self, text: str) -> str:
        if not re.search(self.pattern, text):
            raise ValueError(f"{text!r} is not {self.meaning}")
        return text


ObjectName = Annotated[
    str, _Form(rf"^{_DNS_LABEL}(\.{_DNS_LABEL})*$", "the name of an object of Kubernetes")
]
OptionalName = Annotated[
    str,
    _Form(rf"^({_DNS_LABEL}(\.{_DNS_LABEL})*)?$", "the name of an object of Kubernetes, or empty"),
]
PageAddress = Annotated[
    str, _Form(r"^[\w./][\w./:~%@?=&+-]*$", "the address of a page, without an anchor")
]
Registry = Annotated[
    str,
    _Form(
        r"^(localhost|[\w-]+(\.[\w-]+)+(:\d+)?|[\w-]+:\d+)$",
        "a registry, as registry.example.com or registry:5000",
    ),
]
Repository = Annotated[
    str,
    _Form(
        r"^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$",
        "a repository without its registry, as team/gpu-control-plane",
    ),
]
Tag = Annotated[str, _Form(r"^([\w][\w.-]{0,127})?$", "a tag")]
Digest = Annotated[str, _Form(r"^(sha256:[0-9a-f]{64})?$", "a digest, sha256: and 64 digits")]
HostName = Annotated[
    str, _Form(rf"^{_DNS_LABEL}(\.{_DNS_LABEL})*$", "a host name, as gpu.example.com")
]
ImageVariable = Annotated[
    str, _Form(r"^[A-Z][A-Z0-9_]*_IMAGE$", "a variable of the GPU Operator, as DRIVER_IMAGE")
]
ImageText = Annotated[str, _Form(r"^\S+$", "the reference of an image")]
AccountName = Annotated[str, _Form(r"^[\w:.@/-]+$", "the name of a user or a group")]
Duration = Annotated[str, _Form(r"^([0-9]+(ms|s|m|h))+$", "a duration, as 30s")]


class _Values(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class ImageValues(_Values):
    """Image of the server, and of the node agents and device plugins that it runs."""

    registry: Registry = "localhost"
    """Registry that nodes pull from. `localhost` is never pulled: the image must be on each node."""
    repository: Repository = constants.NAME
    tag: Tag = ""
    """Empty: the version of the chart."""
    digest: Digest = ""
    """`sha256:…`; it pins the image, and the tag then only describes it."""
    pull_policy: PullPolicy = "IfNotPresent"
    pull_secrets: tuple[ObjectName, ...] = ()
    """Names of Secrets in the namespace of the release."""


class SchedulerImageValues(_Values):
    """Image of the unmodified kube-scheduler."""

    registry: Registry = "registry.k8s.io"
    repository: Repository = "kube-scheduler"
    tag: Tag = ""
    """Empty: the version of the cluster, without the suffix of a vendor."""
    digest: Digest = ""
    pull_policy: PullPolicy = "IfNotPresent"


class ResourceValues(_Values):
    """Resources of a container."""

    requests: Quantities = Field(default_factory=dict)
    limits: Quantities = Field(default_factory=dict)


def _apart(component: str) -> Json:
    """Return an affinity that prefers another node for each replica."""
    return {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "podAffinityTerm": {
                        "topologyKey": HOSTNAME_LABEL,
                        "labelSelector": {"matchLabels": constants.component_labels(component)},
                    },
                }
            ]
        }
    }


class ServerValues(_Values):
    """Deployment of the server."""

    replicas: int = Field(default=2, ge=1)
    """One leads, the others stand by."""
    resources: ResourceValues = ResourceValues(
        requests={"cpu": "100m", "memory": "256Mi"}, limits={"memory": "1Gi"}
    )
    """5,000 nodes with 40,000 devices and 20,000 pods need about 300 MiB."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()
    affinity: Json = Field(default_factory=lambda: _apart(constants.SERVER_COMPONENT))
    priority_class_name: str = "system-cluster-critical"
    pod_annotations: dict[str, str] = Field(default_factory=dict)


class SchedulerValues(_Values):
    """Deployment of a kube-scheduler with the extender, for pods of pools only."""

    enabled: bool = True
    """Off: another kube-scheduler has the extender (`render scheduler-config`)."""
    image: SchedulerImageValues = SchedulerImageValues()
    replicas: int = Field(default=2, ge=1)
    resources: ResourceValues = ResourceValues(requests={"cpu": "100m", "memory": "128Mi"})
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()
    affinity: Json = Field(default_factory=lambda: _apart(constants.SCHEDULER_COMPONENT))
    priority_class_name: str = "system-cluster-critical"
    pod_annotations: dict[str, str] = Field(default_factory=dict)


class DisruptionBudgetValues(_Values):
    """PodDisruptionBudgets: a drain takes one replica at a time."""

    enabled: bool = True


class CRDValues(_Values):
    """CustomResourceDefinitions."""

    enabled: bool = True
    """Off: they are applied by other means (`render crds`)."""
    keep: bool = True
    """Whether they, and so all pools, outlive the release."""


class CertManagerValues(_Values):
    """Settings for `tls.source: CertManager`."""

    issuer_ref: dict[str, str] = Field(default_factory=dict)
    """`name`, `kind` and `group` of the issuer of the serving certificate. Empty: a CA of this
    installation. kube-scheduler's client certificate is always by that CA."""


class TlsValues(_Values):
    """Certificates of the server and of kube-scheduler."""

    source: Literal["SelfSigned", "CertManager"] = "SelfSigned"
    """SelfSigned: the server issues and renews them. CertManager: cert-manager does, and injects
    caBundle."""
    cert_manager: CertManagerValues = CertManagerValues()

    @property
    def uses_cert_manager(self) -> bool:
        return self.source == "CertManager"


class NetworkPolicyValues(_Values):
    """NetworkPolicies for the server, kube-scheduler, and the agents, plugins and operands on nodes."""

    enabled: bool = False
    ingress_from: tuple[Json, ...] = ()
    """NetworkPolicyPeers of the API servers and of Prometheus. Empty: all addresses reach the
    ports, and no other port."""


class MonitorValues(_Values):
    """An object of the Prometheus operator."""

    enabled: bool = False
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that the selector of the Prometheus object wants."""


class ScrapeValues(MonitorValues):
    """A monitor of the Prometheus operator."""

    interval: Duration = "30s"


class ServerScrapeValues(ScrapeValues):
    """The monitor of the servers."""

    usage: bool = False
    """Read /metrics/usage too, which names namespaces and pods, with the token of Prometheus' own account:
    bind the ClusterRole gpu-metrics-reader to it."""


class RuleValues(MonitorValues):
    """The alerts."""

    runbook_page: PageAddress = "docs/operations.md"
    """Address of docs/operations.md as users reach it; the default, its path in the sources, is none. Each alert's
    `runbook_url` is an anchor of it, and panels of the dashboards link there."""


class DashboardValues(_Values):
    """Dashboards in ConfigMaps, as the sidecar of Grafana's chart loads them."""

    enabled: bool = False
    labels: dict[str, str] = Field(default_factory=lambda: {**constants.DASHBOARD_LABELS})
    """Labels that the sidecar looks for."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the ConfigMaps, for instance the sidecar's `grafana_folder`."""


class MonitoringValues(_Values):
    """Objects of the Prometheus operator, whose CRDs must exist, and dashboards."""

    service_monitor: ServerScrapeValues = ServerScrapeValues()
    """Metrics of the servers."""
    pod_monitor: ScrapeValues = ScrapeValues()
    """Metrics of node agents and device plugins."""
    prometheus_rule: RuleValues = RuleValues()
    """Alerts (docs/operations.md)."""
    dashboards: DashboardValues = DashboardValues()
    """Dashboards in ConfigMaps, as the sidecar of Grafana's chart loads them."""


class CacheRegistryValues(_Values):
    """Registries of kernel caches' images."""

    ca_config_map: OptionalName = ""
    """ConfigMap in the namespace of the release, with the key ca.crt: authorities that servers and node
    agents trust instead of the system's."""


class CacheVerificationValues(_Values):
    """Signatures of kernel caches' images."""

    trust_root_config_map: OptionalName = ""
    """ConfigMap in the namespace of the release, with the key trusted_root.json: Sigstore's trusted root,
    for signatures without keys."""


class KernelCacheValues(_Values):
    """GPU kernel caches (docs/kernel-caches.md); `settings.kernel_caches` has the rest of their settings."""

    enabled: bool = True
    """Off: no kinds, no CSI driver, no webhooks of caches, and node agents without the roles for them."""
    pull_secrets: tuple[ObjectName, ...] = ()
    """Secrets in the namespace of the release that ClusterGKMCaches may name; servers and node agents
    may read these, and no others."""
    registries: CacheRegistryValues = CacheRegistryValues()
    verification: CacheVerificationValues = CacheVerificationValues()


class NodeSoftwareValues(_Values):
    """NVIDIA's ClusterPolicies and NVIDIADrivers, and what they bring to nodes (docs/node-software.md)."""

    enabled: bool = False
    """On: both kinds, and the rights to act on them in the place of NVIDIA's GPU Operator, whose Deployment must be gone. A
    ClusterPolicy takes the place of the operands of `settings.bootstrap`."""
    images: dict[ImageVariable, ImageText] = Field(
        default_factory=dict, json_schema_extra={"additionalProperties": False}
    )
    """Images of operands for which a ClusterPolicy names none, by the variables of NVIDIA's GPU Operator, as
    `DRIVER_IMAGE`."""


class NodeFeatureRuleValues(_Values):
    """Labels of nodes with a device, by Node Feature Discovery 0.14 or later, whose CRDs must exist."""

    enabled: bool = False
    """On, NFD finds nodes with a device by itself, and `settings.node_detector.enabled` may be false."""


class ConsoleTlsValues(_Values):
    """Serving certificate of the console."""

    secret_name: OptionalName = ""
    """Secret of the type kubernetes.io/tls in the namespace of the release. Empty: cert-manager issues the
    certificate, with `tls.source: CertManager`."""


class ConsoleValues(_Values):
    """Deployment of the console, which shows pools, devices and pods that wait (docs/console.md)."""

    enabled: bool = False
    """On, it needs a certificate, or `plainHttp`."""
    replicas: int = Field(default=1, ge=1)
    """Each reads the cluster by itself, and serves up to 100 viewers."""
    hosts: tuple[HostName, ...] = ()
    """Names that requests may be for, as that in the rule of an ingress. Empty: any. A certificate by
    cert-manager has them, too."""
    tls: ConsoleTlsValues = ConsoleTlsValues()
    plain_http: bool = False
    """Whether it serves HTTP, because an ingress in front of it ends TLS: nothing else may reach it then."""
    ingress_from: tuple[Json, ...] = ()
    """NetworkPolicyPeers that reach it, as the pods of the ingress, where `networkPolicy.enabled`. Empty: all
    addresses."""
    decisions: bool = False
    """On, viewers approve and release devices by a click, each with the rights of the own token. The console's account gets none."""
    resources: ResourceValues = ResourceValues(
        requests={"cpu": "100m", "memory": "128Mi"}, limits={"memory": "1Gi"}
    )
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()
    affinity: Json = Field(default_factory=lambda: _apart(constants.CONSOLE_COMPONENT))
    priority_class_name: str = ""
    pod_annotations: dict[str, str] = Field(default_factory=dict)

    @property
    def needs_issued_certificate(self) -> bool:
        return not self.plain_http and not self.tls.secret_name


class ManagedFieldValues(_Values):
    """Who, beside the control plane, may write the fields that it alone writes (docs/operations.md)."""

    node_writers: tuple[AccountName, ...] = constants.NODE_WRITERS
    """Users that register Nodes with labels and taints of the control plane. A Node's kubelet may always."""
    break_glass_group: AccountName = constants.BREAK_GLASS_GROUP
    """Group whose members may write all of them: `kubectl --as=<you> --as-group=<it> --as-group=system:masters`."""


class UninstallValues(_Values):
    """The hook of `helm uninstall`, which takes away what Helm does not know."""

    enabled: bool = True
    """Off: run `gpu-control-plane uninstall` before."""
    force: bool = False
    """Whether pods that use units or mount kernel caches run on; otherwise `helm uninstall` refuses and names them."""


class ChartValues(_Values):
    """All values."""

    image: ImageValues = ImageValues()
    server: ServerValues = ServerValues()
    scheduler: SchedulerValues = SchedulerValues()
    pod_disruption_budget: DisruptionBudgetValues = DisruptionBudgetValues()
    crds: CRDValues = CRDValues()
    tls: TlsValues = TlsValues()
    network_policy: NetworkPolicyValues = NetworkPolicyValues()
    monitoring: MonitoringValues = MonitoringValues()
    kernel_caches: KernelCacheValues = KernelCacheValues()
    node_software: NodeSoftwareValues = NodeSoftwareValues()
    node_feature_rule: NodeFeatureRuleValues = NodeFeatureRuleValues()
    console: ConsoleValues = ConsoleValues()
    managed_fields: ManagedFieldValues = ManagedFieldValues()
    uninstall: UninstallValues = UninstallValues()
    pool_viewers: tuple[str, ...] = ("system:authenticated",)
    """Groups that may get, list and watch GPUPools. Pools name no pod and no namespace but those
    of their access rules."""
    settings: Json = Field(default_factory=dict)
    """Settings of the server by their own names (`gpu-control-plane serve --help`)."""
