"""Settings of the process. Precedence: flags, environment, file or objects (`server.configuration`), defaults.

gpu-control-plane serve --settings settings.yaml --listen.port 9443
GPU_CONTROL_PLANE_LISTEN__PORT=9443 gpu-control-plane serve
gpu-control-plane serve --show-settings
"""

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from api.foreign.core import PullPolicy
from api.kinds.autoscaling import ScalingBackend
from api.names import DEFAULT_SCHEDULER_NAME, MANAGED_LABEL
from api.nodefiles.poolconfig import DeviceInjection
from inventory.health.recovery import RecoveryAction
from manifests.constants import (
    CONTAINER_PORT,
    DEFAULT_NAMESPACE,
)
from manifests.node.daemonset import DETECTOR_PODS, KUBELET_DIRECTORY, LINUX
from manifests.node.device_plugin import PluginKind, PluginMode
from server.bootstrap_settings import BootstrapSettings
from server.kernel_cache_settings import KernelCacheSettings
from server.node_software_settings import NodeSoftwareSettings
from server.retired_settings import RETIRED
from server.setting_fields import SettingField, setting_fields
from server.setting_sections import (
    DnsName,
    HostPath,
    IpAddress,
    NodeRequirementSettings,
    Port,
    QuantityText,
    ResourcesSettings,
    RollingLimit,
    Seconds,
    Section,
)
from server.setting_sources import GivenSettings
from server.workload_settings import WorkloadAccessSettings
from telemetry.logs import LogFormat, LogLevel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ListenSettings(Section):
    """The TLS port."""

    host: str = "0.0.0.0"  # noqa: S104  # a pod's own network; every binding path is authenticated
    """Address to listen on."""
    port: Port = CONTAINER_PORT
    """Port of the webhooks, the extender, the probes and the metrics."""
    advertised_address: IpAddress | None = None
    """Address of this replica, which the leader writes into the EndpointSlice of a Service without a selector. If omitted,
    the Service selects its pods, of which the leader alone is ready."""


class TlsSettings(Section):
    """Source of the serving certificate."""

    source: Literal["SelfSigned", "Files"] = "SelfSigned"
    """SelfSigned: an own CA in a Secret, renewed and injected as caBundle. Files: those of `directory`."""
    directory: Path | None = None
    """Directory of tls.crt, tls.key and ca.crt, as cert-manager mounts them; for `source: Files`."""
    dns_names: tuple[DnsName, ...] = ()
    """DNS names of the serving certificate, besides those of the Service."""
    ip_addresses: tuple[IpAddress, ...] = ()
    """IP addresses of the serving certificate."""
    check_every_s: Seconds = 5.0
    """Time between two checks of Secret and caBundle. One that was deleted stops pod creations until the next check."""

    @model_validator(mode="after")
    def _files_need_a_directory(self) -> Self:
        if self.source == "Files" and self.directory is None:
            raise ValueError("tls.source Files needs tls.directory")
        return self


class WebhookCallerSettings(Section):
    """Callers of the webhooks (docs/operations.md, "Who calls the webhooks")."""

    client_ca_file: Path | None = None
    """File of the CAs that sign the client certificate of API servers, which is required then. If omitted, every client
    that reaches the port gets a response, with less detail."""
    client_names: Annotated[tuple[str, ...], Field(min_length=1)] = ("kube-apiserver",)
    """Common names of certificates by these CAs that may call."""
    require_certificate: bool = True
    """Whether the certificate is required. Off while API servers are configured one after the other to present it; without client_ca_file of no effect."""

    @property
    def requires_client_certificate(self) -> bool:
        """Whether only API servers get a response."""
        return self.client_ca_file is not None and self.require_certificate


class ExtenderSettings(Section):
    """Callers of the extender's paths: by client certificate, bearer token, or either."""

    client_names: tuple[str, ...] = (DEFAULT_SCHEDULER_NAME,)
    """Common names of the client certificates that may call."""
    client_ca_file: Path | None = None
    """File of the CAs that sign these. If omitted: our own CA with tls.source SelfSigned, none with Files."""
    token_file: Path | None = None
    """File with a bearer token; read again when it changes."""


class LeadershipSettings(Section):
    """Leader election by a Lease."""

    enabled: bool = True
    """Whether a leader is elected. Off for a single replica that never overlaps with another one."""
    duration_s: Seconds = 2.0
    """Validity of the Lease. A dead leader is succeeded after this, less the time since its last renewal. Where the API server is
    slow, the leader asks for longer (kube.leader_election). It renews every fifth of this, and stops leading after three quarters of
    it without a renewal."""
    settle_s: Annotated[float, Field(ge=0)] = 0.5
    """Time before a new leader acts after a leader that did not release: the time that its Bindings may take from admission to storage, and the
    Lease to reach every API server; measured: 2-24 ms, and 332 ms once on a loaded machine."""


class InventorySettings(Section):
    """Sources of devices."""

    managed_label: str = Field(default=MANAGED_LABEL, min_length=1, max_length=317)
    """Label of Nodes; its value `false` keeps its devices out of every pool, and the node agent and the operands off the node."""
    managed_by_default: bool = True
    """Whether a node without that label is managed."""
    label_nodes: bool = True
    """Whether the leader labels nodes with a device `gpu.deckhouse.io/present: "true"`, where the node agent
    runs; otherwise it runs where `nvidia.com/gpu.present=true` or a NodeFeatureRule says so."""
    node_gone_s: Seconds = 60.0
    """Time after a Node's deletion until its devices are deleted; pods of such a node are deleted after 40 s."""


class HealthSettings(Section):
    """Conditions of a faulted device."""

    dcgm: bool = True
    """Whether DCGM exporters are read."""
    scrape_period_s: Seconds = 15.0
    """Time between two scrapes of an exporter."""
    period_s: Seconds = 10.0
    """Checks of a device that are closer together than this are one sample; after three samples without a fault a faulted
    device recovers."""
    xid_actions: dict[int, RecoveryAction] = {}
    """What a device needs after an Xid, in place of the driver's recovery action and NVIDIA's catalog: `None` for an Xid
    that is no fault of the device."""


class RollingUpdateSettings(Section):
    """A rolling update of pods."""

    max_unavailable: RollingLimit = "10%"
    """Pods that may be unavailable at a time: a number, or a percentage of the nodes. To it are added the nodes that are
    not ready. Of device plugins, whose pods overlap, it is how many are replaced at a time."""


class DaemonsetsSettings(Section):
    """The DaemonSets of node agent, node detector, device plugins, and of the operands of section `bootstrap`."""

    rolling_update: RollingUpdateSettings = RollingUpdateSettings()


class DevicePluginSettings(Section):
    """Device plugins of the pools (docs/design/0006-one-daemonset-or-many.md)."""

    mode: PluginMode = PluginMode.PER_POOL
    """Where plugins run: in a DaemonSet for each pool, in the node agent for all pools of its node (PerNode), or
    outside the control plane (None)."""
    plugin: PluginKind = PluginKind.OWN
    """Own: the control plane's plugin. NVIDIA: NVIDIA's k8s-device-plugin, for whole devices and time slices."""
    hand_out: DeviceInjection = DeviceInjection.CDI
    """How devices are made available to containers: by CDI names, by NVIDIA_VISIBLE_DEVICES (Environment), or as
    device files (Devices)."""
    image: str = ""
    """Image of the DaemonSets: ours, or NVIDIA's where `plugin` says so. With its registry, better with its
    digest too: `serve` does not start where DaemonSets are to be made of a name without one."""
    cdi_kind: str = ""
    """Kind of CDI names; empty: the kind of the node agent's specification."""
    resources: ResourcesSettings = ResourcesSettings()
    """Resources of the container."""

    @model_validator(mode="after")
    def _nvidia_serves_one_pool(self) -> Self:
        if self.plugin is PluginKind.NVIDIA and self.mode is PluginMode.PER_NODE:
            raise ValueError("NVIDIA's plugin serves one pool: device_plugin.mode must be PerPool")
        return self


class NodeAgentRolloutSettings(Section):
    """The node agent, which discovers, watches and partitions the devices of a node (docs/node-agent.md)."""

    enabled: bool = True
    """Whether the node agent is deployed. Without it another source must report devices, and no device is
    partitioned."""
    image: str = ""
    """Image of the node agent and of the node detector; empty: the device plugin's, where that is ours."""
    image_pull_policy: PullPolicy | None = None
    """When nodes pull the images of the node agent, the node detector and the device plugins; if omitted, the API server's
    default for the tag."""
    image_pull_secrets: tuple[DnsName, ...] = ()
    """Secrets of our namespace with the credentials of the registries of all pods on nodes."""
    priority_class: str = "system-node-critical"
    """Priority class of all pods on nodes; empty: the cluster's default."""
    resources: ResourcesSettings = ResourcesSettings()
    """Resources of the container."""
    driver_libraries: HostPath | None = None
    """Directory on the nodes, or in the driver container, that has the driver's libraries. Only for nodes where the
    agent does not find them: it searches the usual directories after this one."""
    node_selector: dict[str, str] = {}
    """Labels that a node with devices needs besides, for the agent to run there."""
    node_affinity: tuple[NodeRequirementSettings, ...] = ()
    """Expressions that a node with devices has to satisfy besides, all of them."""


class NodeDetectorRolloutSettings(Section):
    """The node detector, which reports on which nodes a device is (docs/operations.md, "Which nodes have the node agent")."""

    enabled: bool = True
    """Whether the node detector is deployed, where the node agent is. Off where NFD or NVIDIA's GPU Operator labels
    the nodes that have a device, or an administrator does; beside them it does no harm. A detector takes
    25 MiB of memory on every node, and writes nothing while nothing changes."""
    resources: ResourcesSettings = ResourcesSettings(
        requests=dict(DETECTOR_PODS.requests), limits=dict(DETECTOR_PODS.limits)
    )
    """Resources of the container."""
    node_selector: dict[str, str] = dict(LINUX)
    """Labels that a node needs for the detector to run there."""
    node_affinity: tuple[NodeRequirementSettings, ...] = ()
    """Expressions that such a node has to satisfy besides, all of them."""


class KubeletSettings(Section):
    """kubelet on the nodes."""

    directory: HostPath = KUBELET_DIRECTORY
    """Root directory of kubelet (`--root-dir`), which has the PodResources socket."""


class PodSecuritySettings(Section):
    """Pod security of our namespace."""

    label_namespace: bool = True
    """Whether the leader labels our namespace `pod-security.kubernetes.io/enforce: privileged` (audit and warn
    too), which the node agents need. A level that another client set stays, and is reported."""


class UsualPodsSettings(Section):
    """Pods that are expected in a pool."""

    pool: str = ""
    """Name of the pool; empty: every pool for which no pods are named."""
    units: int = Field(ge=1, le=2048)
    """Units that each of them requests."""
    cpu: QuantityText = "0"
    """CPU that each of them requests."""
    memory: QuantityText = "0"
    """Memory that each of them requests."""
    pods: Annotated[float, Field(gt=0)] = 1.0
    """How many of them there are, against the others."""


class DemandSettings(Section):
    """Demand for which strategy LeastFragmentation keeps free devices useful, and by which gpupool_fragmentation is measured."""

    usual: tuple[UsualPodsSettings, ...] = ()
    """Pods of a pool before it has any: `pool`, `units`, `cpu`, `memory` and `pods` (docs/placement.md). Without them pods of
    1, 2, 4 and 8 units are expected, with slicePlacement SameDevice of an eighth, a quarter, half and a whole of a device."""


class AutoscalingSettings(Section):
    """Nodes that are added for waiting pods of pools with `spec.autoscaling` (docs/autoscaling.md)."""

    backends: Annotated[tuple[ScalingBackend, ...], Field(min_length=1)] = (
        ScalingBackend.KARPENTER_SIGNAL,
    )
    """Backends that pools may name; a pool that names another one gets karpenter-signal, and a condition that says so.
    karpenter-native, capacity-buffer and karpenter-static were removed and mean karpenter-signal; the latter two bring
    the rights to give back what was bought by them."""


class Settings(Section):
    """All settings."""

    kubeconfig: Path | None = None
    """File with the API server's address and credentials. If omitted: $KUBECONFIG, the pod's service account,
    ~/.kube/config."""
    context: str | None = None
    """Context of the kubeconfig; if omitted, its current one."""
    namespace: DnsName = DEFAULT_NAMESPACE
    """Namespace of our Secrets, Lease and DaemonSets."""
    scheduler_name: str | None = DEFAULT_SCHEDULER_NAME
    """Scheduler that is set in pool pods that name the default one; empty: left unchanged."""
    placement: Literal["Scored", "Nominated"] = "Nominated"
    """How kube-scheduler finds the node that is reserved for a pod. Scored: among all nodes, by our scores.
    Nominated: while many pods wait, `status.nominatedNodeName` names it, at the cost of one write for each."""
    drain_s: Annotated[float, Field(ge=0)] = 5.0
    """Time from the signal to stop until the port closes."""
    api_timeout_s: Seconds = 10.0
    """Time that a request to the API server may take."""
    log_level: LogLevel = "info"
    """Least level of the lines that are logged."""
    log_format: LogFormat = "Auto"
    """Form of these lines: objects of JSON, or text for people (Console). Auto: text on a terminal, JSON elsewhere."""
    listen: ListenSettings = ListenSettings()
    tls: TlsSettings = TlsSettings()
    webhooks: WebhookCallerSettings = WebhookCallerSettings()
    workloads: WorkloadAccessSettings = WorkloadAccessSettings()
    extender: ExtenderSettings = ExtenderSettings()
    leadership: LeadershipSettings = LeadershipSettings()
    inventory: InventorySettings = InventorySettings()
    bootstrap: BootstrapSettings = BootstrapSettings()
    health: HealthSettings = HealthSettings()
    daemonsets: DaemonsetsSettings = DaemonsetsSettings()
    device_plugin: DevicePluginSettings = DevicePluginSettings()
    node_agent: NodeAgentRolloutSettings = NodeAgentRolloutSettings()
    node_detector: NodeDetectorRolloutSettings = NodeDetectorRolloutSettings()
    kubelet: KubeletSettings = KubeletSettings()
    pod_security: PodSecuritySettings = PodSecuritySettings()
    demand: DemandSettings = DemandSettings()
    autoscaling: AutoscalingSettings = AutoscalingSettings()
    kernel_caches: KernelCacheSettings = KernelCacheSettings()
    node_software: NodeSoftwareSettings = NodeSoftwareSettings()

    @model_validator(mode="after")
    def _per_node_needs_the_agent(self) -> Self:
        if self.device_plugin.mode is PluginMode.PER_NODE and not self.node_agent.enabled:
            raise ValueError(
                "with device_plugin.mode PerNode the node agent serves the pools: enable node_agent"
            )
        return self


class BadSettingsError(Exception):
    """Invalid settings; the message names each of them."""


@cache
def settings_fields() -> tuple[SettingField, ...]:
    """Return every setting; computed once, since the schema takes 30 ms."""
    return tuple(setting_fields(Settings.model_json_schema()))


def load_settings(
    arguments: "Sequence[str]",
    file: Path | None = None,
    *,
    layers: "Sequence[tuple[str, Mapping[str, Any]]]" = (),
) -> Settings:
    """Read settings from flags (`--listen.port 9443`), the environment, and a YAML file or other content.

    Args:
        arguments: flags.
        file: YAML file.
        layers: content as that of a file, with what comes before its names in a complaint; a later one overrides.

    Raises:
        BadSettingsError: names every invalid setting.
    """
    given = GivenSettings(settings_fields(), RETIRED)
    if file is not None:
        given.read_file(file)
    for origin, content in layers:
        given.take(content, origin=origin)
    given.read_environment(os.environ)
    given.read_flags(arguments)
    if given.faults:
        raise BadSettingsError("; ".join(given.faults))
    try:
        return Settings.model_validate(given.values)
    except ValidationError as error:
        raise BadSettingsError("; ".join(given.explain(error.errors()))) from error
