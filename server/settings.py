"""Settings of the process. Precedence: flags, environment, file, defaults.

gpu-control-plane serve --settings settings.yaml --listen.port 9443
GPU_CONTROL_PLANE_LISTEN__PORT=9443 gpu-control-plane serve
gpu-control-plane serve --show-settings
"""

import ipaddress
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from api.names import DEFAULT_SCHEDULER_NAME, MANAGED_LABEL
from api.nodefiles.poolconfig import HandOut
from certs.bundle import Requirements
from inventory.health.device import IGNORED_XIDS
from inventory.readiness.software import Requirement
from kube.errors import one_line
from manifests.constants import (
    CONTAINER_PORT,
    DEFAULT_NAMESPACE,
    LEASE_NAME,
    MUTATING_CONFIGURATION,
    SERVICE_NAME,
    SERVING_SECRET,
    VALIDATING_CONFIGURATION,
)
from manifests.node.device_plugin import PluginKind, PluginMode
from telemetry.logs import LogLevel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PREFIX: Final = "GPU_CONTROL_PLANE_"
_OF_KUBERNETES: Final = re.compile(r"SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_.+)?")
"""Variables that kubelet sets in every pod of the namespace for our Service share the prefix of our settings."""

Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0)]


def _checked_dns_name(text: str) -> str:
    return Requirements(dns_names=(text.lower(),)).dns_names[0]


def _checked_ip_address(text: str) -> str:
    return str(ipaddress.ip_address(text))


DnsName = Annotated[str, AfterValidator(_checked_dns_name)]
IpAddress = Annotated[str, AfterValidator(_checked_ip_address)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ListenSettings(_Section):
    """The TLS port."""

    host: str = "0.0.0.0"  # noqa: S104  # a pod's own network; every binding path is authenticated
    port: Port = CONTAINER_PORT
    max_body_bytes: int = Field(default=8 * 1024 * 1024, ge=64 * 1024)
    """An AdmissionReview carries an object twice (1.5 MiB each, etcd's limit) in an envelope;
    10,000 node names of 63 characters are 0.7 MiB."""
    max_connections: int = Field(default=2048, ge=16)
    """An API server has one for each of its requests in flight, at most some hundreds."""


class TlsSettings(_Section):
    """Source of the serving certificate."""

    source: Literal["SelfSigned", "Files"] = "SelfSigned"
    """SelfSigned: an own CA in a Secret, renewed and injected as caBundle. Files: `directory`."""
    directory: Path | None = None
    """tls.crt, tls.key and ca.crt, as cert-manager mounts them."""
    secret: str = SERVING_SECRET
    dns_names: tuple[DnsName, ...] = ()
    """Besides those of the Service."""
    ip_addresses: tuple[IpAddress, ...] = ()
    check_every_s: Seconds = 60.0
    """A Secret or caBundle that was deleted stops pod creations until the next check."""
    poll_files_every_s: Seconds = 10.0

    @model_validator(mode="after")
    def _files_need_a_directory(self) -> Self:
        if self.source == "Files" and self.directory is None:
            raise ValueError("tls.source Files needs tls.directory")
        return self


class WebhookCallerSettings(_Section):
    """Callers of the webhooks (docs/operations.md, "Who calls the webhooks")."""

    client_ca_file: Path | None = None
    """CAs that sign the client certificate of API servers, which is required then. If omitted, every client
    that reaches the port gets a response, with less detail."""
    client_names: Annotated[tuple[str, ...], Field(min_length=1)] = ("kube-apiserver",)
    """Common names of certificates by these CAs."""
    require_certificate: bool = True
    """Off while API servers are configured one after the other to present it; without client_ca_file of no effect."""

    @property
    def know_their_callers(self) -> bool:
        """Whether only API servers get a response."""
        return self.client_ca_file is not None and self.require_certificate


class ExtenderSettings(_Section):
    """Callers of the extender's paths: by client certificate, bearer token, or either."""

    client_names: tuple[str, ...] = (DEFAULT_SCHEDULER_NAME,)
    """Common names of client certificates."""
    client_ca_file: Path | None = None
    """CAs that sign them. If omitted: our own CA with tls.source SelfSigned, none with Files."""
    token_file: Path | None = None
    """A file with a bearer token; read again when it changes."""
    bind_timeout_s: Seconds = 4.0
    """Below kube-scheduler's httpTimeout of 5 s, so that it always gets a response."""


class LeadershipSettings(_Section):
    """Leader election by a Lease."""

    enabled: bool = True
    lease: str = LEASE_NAME
    duration_s: Seconds = 2.0
    """A dead leader is succeeded after this, less the time since its last renewal. Where the API server is
    slow, the leader asks for longer (kube.leader_election)."""
    renew_deadline_s: Seconds = 1.5
    retry_s: Seconds = 0.4
    look_s: Seconds = 0.25
    """How often standbys read the Lease."""
    settle_s: Annotated[float, Field(ge=0)] = 0.5
    """After a leader that did not release: the time that its Bindings may take from admission to storage, and the
    Lease to reach every API server; measured: 2-24 ms, and 332 ms once on a loaded machine."""

    @model_validator(mode="after")
    def _deadlines_in_order(self) -> Self:
        if not 2 * self.retry_s < self.renew_deadline_s < self.duration_s:
            raise ValueError("leadership needs 2 * retry_s < renew_deadline_s < duration_s")
        return self


class InventorySettings(_Section):
    """Sources of devices."""

    node_features: bool = True
    """Whether NodeFeatures are read; where NFD is not installed, labels are the only source."""
    managed_label: str = Field(default=MANAGED_LABEL, min_length=1, max_length=317)
    """On a Node: `false` keeps its devices out of every pool."""
    managed_by_default: bool = True
    """Whether a node without that label is managed."""
    freshness_s: Seconds = 120.0
    """Age of a node agent's heartbeat after which its facts are stale."""
    node_gone_s: Seconds = 60.0
    """Time after a Node's deletion until its devices are deleted; pods of such a node are deleted after 40 s."""


class BootstrapSettings(_Section):
    """Conditions of a node that is ready for pooling (docs/operations.md, "Node readiness")."""

    validator: Requirement = Requirement.IF_PRESENT
    gfd: Requirement = Requirement.IF_PRESENT
    dcgm: Requirement = Requirement.IF_PRESENT
    dcgm_exporter: Requirement = Requirement.IF_PRESENT
    namespaces: tuple[DnsName, ...] = ()
    """Trusted namespaces of operand pods, besides our own. None by default: where users may create namespaces,
    the first to take a missing name would be trusted."""
    good_samples: int = Field(default=3, ge=1)
    bad_samples: int = Field(default=3, ge=1)
    """Consecutive samples until a node becomes ready, or unready."""
    period_s: Seconds = 10.0
    """Checks that are closer together than this are one sample."""
    heartbeat_freshness_s: Seconds = 120.0
    """Monitoring without a heartbeat for longer is missing."""


class HealthSettings(_Section):
    """Conditions of a faulted device."""

    dcgm: bool = True
    """Whether DCGM exporters are read."""
    scrape_period_s: Seconds = 15.0
    scrapes_per_second: Seconds = 100.0
    scrape_timeout_s: Seconds = 3.0
    clean_samples: int = Field(default=3, ge=1)
    """Consecutive samples until a faulted device recovers."""
    period_s: Seconds = 10.0
    """Checks that are closer together than this are one sample."""
    ignored_xids: tuple[int, ...] = tuple(sorted(IGNORED_XIDS))
    """Xids that an application causes, which are no fault of the device."""


class DevicePluginSettings(_Section):
    """Device plugins of the pools (docs/design/0006-one-daemonset-or-many.md)."""

    mode: PluginMode = PluginMode.PER_POOL
    plugin: PluginKind = PluginKind.OWN
    hand_out: HandOut = HandOut.CDI
    image: str = ""
    """Of the DaemonSets: ours, or NVIDIA's where `plugin` says so. With its registry, better with its
    digest too: `serve` does not start where DaemonSets are to be made of a name without one."""
    cdi_kind: str = ""
    """Of CDI names; empty: the kind of the node agent's specification."""
    node_selector: dict[str, str] = {"nvidia.com/gpu.present": "true"}
    """Nodes that may have devices: the node agent runs there."""

    @model_validator(mode="after")
    def _nvidia_serves_one_pool(self) -> Self:
        if self.plugin is PluginKind.NVIDIA and self.mode is PluginMode.PER_NODE:
            raise ValueError("NVIDIA's plugin serves one pool: device_plugin.mode must be PerPool")
        return self


class NodeAgentRolloutSettings(_Section):
    """The node agent, which discovers, watches and partitions the devices of a node (docs/node-agent.md)."""

    enabled: bool = True
    image: str = ""
    """Empty: the device plugin's image, where that is ours."""


class Settings(BaseSettings):
    """All settings."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
    )
    _from_file: "ClassVar[dict[str, Any]]" = {}

    kubeconfig: Path | None = None
    """If omitted: $KUBECONFIG, the pod's service account, ~/.kube/config."""
    context: str | None = None
    namespace: DnsName = DEFAULT_NAMESPACE
    """Of our Secrets, Lease and DaemonSets."""
    service: DnsName = SERVICE_NAME
    scheduler_name: str | None = DEFAULT_SCHEDULER_NAME
    """Set in pool pods that name the default scheduler; empty: left unchanged."""
    mutating_configuration: str = MUTATING_CONFIGURATION
    validating_configuration: str = VALIDATING_CONFIGURATION
    placement: Literal["Scored", "Nominated"] = "Nominated"
    """How kube-scheduler finds the node that is reserved for a pod. Scored: among all nodes, by our scores.
    Nominated: while many pods wait, `status.nominatedNodeName` names it, at the cost of one write for each."""
    observe_within_s: Seconds = 5.0
    """Time after admission in which the watch must show a pod; its reservation ends otherwise."""
    drain_s: Annotated[float, Field(ge=0)] = 5.0
    """On shutdown: time until the port closes."""
    api_timeout_s: Seconds = 10.0
    log_level: LogLevel = "info"
    listen: ListenSettings = ListenSettings()
    tls: TlsSettings = TlsSettings()
    webhooks: WebhookCallerSettings = WebhookCallerSettings()
    extender: ExtenderSettings = ExtenderSettings()
    leadership: LeadershipSettings = LeadershipSettings()
    inventory: InventorySettings = InventorySettings()
    bootstrap: BootstrapSettings = BootstrapSettings()
    health: HealthSettings = HealthSettings()
    device_plugin: DevicePluginSettings = DevicePluginSettings()
    node_agent: NodeAgentRolloutSettings = NodeAgentRolloutSettings()

    @model_validator(mode="after")
    def _per_node_needs_the_agent(self) -> Self:
        if self.device_plugin.mode is PluginMode.PER_NODE and not self.node_agent.enabled:
            raise ValueError(
                "with device_plugin.mode PerNode the node agent serves the pools: enable node_agent"
            )
        return self

    @classmethod
    def settings_customise_sources(  # noqa: PLR0917  # the library's signature
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: flags (given as init), environment, file."""
        return (
            init_settings,
            env_settings,
            InitSettingsSource(settings_cls, init_kwargs=cls._from_file),
        )


class BadSettingsError(Exception):
    """Invalid settings; the message names each of them."""


def load_settings(arguments: "Sequence[str]", file: Path | None) -> Settings:
    """Read settings from flags (`--listen.port 9443`), the environment and a YAML file.

    Raises:
        BadSettingsError: names every invalid setting.
    """
    unknown = _unknown_variables(os.environ)
    if unknown:
        raise BadSettingsError(f"no such setting: {', '.join(unknown)} (in the environment)")

    class WithFile(Settings):
        _from_file = {} if file is None else _read(file)

    try:
        flags: CliSettingsSource[WithFile] = CliSettingsSource(
            WithFile, cli_parse_args=list(arguments), cli_prog_name="gpu-control-plane serve"
        )
        return WithFile(_cli_settings_source=flags)  # type: ignore[call-arg]  # the library's way
    except SettingsError as error:
        # The library names field and source; a section or list in the environment is JSON.
        raise BadSettingsError(f"{error}; it takes JSON") from error
    except ValidationError as error:
        faults = (
            f"{'.'.join(str(part) for part in fault['loc']) or 'settings'}: {fault['msg']}"
            for fault in error.errors()
        )
        raise BadSettingsError("; ".join(faults)) from error


def _unknown_variables(environ: "Iterable[str]") -> list[str]:
    """Return the variables with our prefix that match no setting."""
    return sorted(
        name
        for name in environ
        if name.upper().startswith(_PREFIX)
        and not _OF_KUBERNETES.fullmatch(name.upper().removeprefix(_PREFIX))
        and name.upper().removeprefix(_PREFIX).split("__")[0].lower() not in Settings.model_fields
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettingsError(f"settings file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadSettingsError(f"settings file {file} is not UTF-8: {error}") from error
    except yaml.YAMLError as error:
        raise BadSettingsError(
            f"settings file {file} is not YAML: {one_line(str(error))}"
        ) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise BadSettingsError(f"settings file {file} holds no mapping of settings")
    return content
