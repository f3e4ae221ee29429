"""Section `bootstrap`: when a node is ready for pools, and the operands that make it ready."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from api.image_source import ImageSource, ImageSourceError, resolve_image
from inventory.readiness.software import Requirement
from operands.operand_settings import (
    COLLECTORS,
    EXPORTER_PORT,
    NODE_FEATURES_DIRECTORY,
    DcgmMigStrategy,
    MetricsSource,
)
from server.setting_sections import (
    DnsName,
    HostPath,
    Port,
    PullPolicy,
    ResourcesSettings,
    Seconds,
    Section,
)

ScrapeInterval = Annotated[
    str,
    # As ServiceMonitor has it: from large to small; by the length an empty one is none.
    Field(
        pattern="^" + "".join(f"([0-9]+{u})?" for u in ["y", "w", "d", "h", "m", "s", "ms"]) + "$",
        min_length=2,
    ),
]
ObjectName = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]
Word = Annotated[str, Field(pattern=r"^[^\s]+$")]
WordOrNothing = Annotated[str, Field(pattern=r"^[^\s]*$")]


class OperandImageSettings(Section):
    """Image of an operand: repository, image and version together, or image alone with the whole reference."""

    repository: WordOrNothing = ""
    """Registry and path, such as registry.example.com/nvidia."""
    image: WordOrNothing = ""
    """Name of the image; without repository and version the whole reference."""
    version: WordOrNothing = ""
    """Tag, or a digest that begins with `sha256:`."""

    def resolved(self, setting: str, default: str = "") -> str:
        """Return the reference.

        Raises:
            ImageSourceError: it is given in half, or not at all.
        """
        source = ImageSource(repository=self.repository, image=self.image, version=self.version)
        return resolve_image(source, field=f"{setting}.image", default=default)


class OperandSection(Section):
    """Settings that every operand has."""

    requirement: Requirement = Requirement.IF_PRESENT
    """Whether a node needs a ready pod of the operand to be ready for pooling."""
    image: OperandImageSettings = OperandImageSettings()
    image_pull_policy: PullPolicy | None = None
    """When nodes pull the image; if omitted, the node agent's for the validator, and the API server's default for others."""
    image_pull_secrets: tuple[DnsName, ...] = ()
    """Secrets of our namespace with the registry's credentials, besides those of the node agent."""
    resources: ResourcesSettings = ResourcesSettings()
    """Resources of the container."""
    args: tuple[str, ...] = ()
    """Further arguments of the container."""
    env: dict[str, str] = {}
    """Environment variables of the container, over the operand's own."""


class ValidatorOperandSettings(OperandSection):
    """The node validator: checks driver, toolkit and CUDA; in the control plane's image."""

    enabled: bool | None = None
    """Whether the validator runs; if omitted, where the node agent is deployed."""
    enable_nvidia_fs_validation: bool = False
    """Whether GPUDirect Storage (nvidia-fs) is validated."""
    enable_gdrcopy_validation: bool = False
    """Whether GDRCopy is validated."""


class GfdOperandSettings(OperandSection):
    """NVIDIA's gpu-feature-discovery, in the image of NVIDIA's k8s-device-plugin."""

    enabled: bool = False
    """Whether gpu-feature-discovery runs; it needs an image. The node agent reports the same facts without it."""
    resources: ResourcesSettings = ResourcesSettings(
        requests={"cpu": "10m", "memory": "64Mi"}, limits={"memory": "256Mi"}
    )
    """Resources of the container."""
    sleep_interval_s: float = Field(default=60.0, ge=1, le=86_400)
    """Time between two looks at the devices."""
    fail_on_init_error: bool = True
    """Whether it ends where it cannot use the driver; otherwise it waits for ever."""
    node_feature_api: bool = True
    """Whether it writes a NodeFeature, which needs NFD's CRDs alone; otherwise a file of `features_dir`, which NFD's
    worker reads."""
    features_dir: HostPath = NODE_FEATURES_DIRECTORY
    """Directory of the node with files of features."""
    host_sys_path: HostPath = "/sys"
    """Directory of the node with the kernel's sysfs."""
    config_map: ObjectName = ""
    """ConfigMap of our namespace with configurations, among which the node label `nvidia.com/device-plugin.config`
    chooses; empty: config-manager does not run."""
    default_config: str = ""
    """Key of that ConfigMap for nodes without the label."""


class DcgmOperandSettings(OperandSection):
    """DCGM's host engine, in NVIDIA's image, one for all exporters of a node."""

    enabled: bool = False
    """Whether the host engine runs; it needs an image. Without it a dcgm-exporter has an engine of its own."""
    resources: ResourcesSettings = ResourcesSettings(
        requests={"cpu": "50m", "memory": "128Mi"}, limits={"memory": "1Gi"}
    )
    """Resources of the container."""
    mig_strategy: DcgmMigStrategy = DcgmMigStrategy.SINGLE
    """Presentation of MIG instances, in the environment of the engine (DCGM_MIG_STRATEGY)."""
    hostengine_arguments: tuple[Word, ...] = ("-n", "-b", "ALL")
    """Arguments of nv-hostengine."""
    proftester_flags: tuple[str, ...] = ()
    """Flags for dcgmproftester, in the environment of the engine (DCGMPROFTESTER_FLAGS)."""


class ServiceMonitorSettings(Section):
    """ServiceMonitor of the metrics of devices, where the cluster serves the kind."""

    enabled: bool = True
    """Whether it is made."""
    interval: ScrapeInterval = "15s"
    """Time between two scrapes."""
    labels: dict[str, str] = {}
    """Further labels, by which a Prometheus selects it."""
    annotations: dict[str, str] = {}
    """Annotations."""


class ExporterOperandSettings(OperandSection):
    """Metrics of devices."""

    enabled: bool = True
    """Whether metrics of devices are exported."""
    source: MetricsSource = MetricsSource.NVML
    """NVML: the node agents serve them, under DCGM's names. DCGM: NVIDIA's dcgm-exporter, which needs an image."""
    resources: ResourcesSettings = ResourcesSettings(
        requests={"cpu": "50m", "memory": "128Mi"}, limits={"memory": "512Mi"}
    )
    """Resources of dcgm-exporter."""
    port: Port = EXPORTER_PORT
    """Port of dcgm-exporter."""
    collectors: HostPath = COLLECTORS
    """File of dcgm-exporter's image that lists its metrics."""
    labels: dict[str, str] = {}
    """Further labels of the Service."""
    annotations: dict[str, str] = {}
    """Annotations of the Service."""
    service_monitor: ServiceMonitorSettings = ServiceMonitorSettings()


_OWN: Final = "the control plane's image"


class BootstrapSettings(Section):
    """Conditions of a node that is ready for pooling, and the operands that meet them (docs/operations.md, "Node readiness" and "Operands")."""

    operands: Literal["Own", "External"] = "Own"
    """Own: the control plane runs the operands that are enabled, where its node agent may run and with its tolerations and
    priority. External: NVIDIA's GPU Operator or another component runs them, and they are only observed."""
    runtime_class: ObjectName = ""
    """RuntimeClass of NVIDIA's images, such as nvidia; empty: the node's default runtime."""
    namespaces: tuple[DnsName, ...] = ()
    """Trusted namespaces of operand pods, besides our own. None by default: where users may create namespaces,
    the first to take a missing name would be trusted."""
    good_samples: int = Field(default=3, ge=1)
    """Consecutive good samples until a node becomes ready."""
    bad_samples: int = Field(default=3, ge=1)
    """Consecutive bad samples until a node becomes unready."""
    period_s: Seconds = 10.0
    """Checks of a node that are closer together than this are one sample."""
    heartbeat_freshness_s: Seconds = 120.0
    """Age of a heartbeat after which monitoring is missing."""
    validator: ValidatorOperandSettings = ValidatorOperandSettings()
    gfd: GfdOperandSettings = GfdOperandSettings()
    dcgm: DcgmOperandSettings = DcgmOperandSettings()
    dcgm_exporter: ExporterOperandSettings = ExporterOperandSettings()

    @property
    def runs_dcgm_exporter(self) -> bool:
        return self.dcgm_exporter.enabled and self.dcgm_exporter.source is MetricsSource.DCGM

    @property
    def exports_nvml(self) -> bool:
        """Whether the node agents serve the metrics of devices."""
        exporter = self.dcgm_exporter
        return self.operands == "Own" and exporter.enabled and exporter.source is MetricsSource.NVML

    @model_validator(mode="after")
    def _operands_have_images(self) -> Self:
        if self.operands == "External":
            return self
        running: list[tuple[str, OperandSection, bool]] = [
            ("validator", self.validator, self.validator.enabled is not False),
            ("gfd", self.gfd, self.gfd.enabled),
            ("dcgm", self.dcgm, self.dcgm.enabled),
            ("dcgm_exporter", self.dcgm_exporter, self.runs_dcgm_exporter),
        ]
        for name, operand, is_running in running:
            default = _OWN if name == "validator" else ""
            try:
                if is_running:
                    operand.image.resolved(f"bootstrap.{name}", default)
            except ImageSourceError as error:
                raise ValueError(str(error)) from error
        return self

    @model_validator(mode="after")
    def _nvml_needs_no_dcgm(self) -> Self:
        exporter = self.dcgm_exporter
        if self.operands == "External":
            return self
        if self.dcgm.enabled and exporter.enabled and exporter.source is MetricsSource.NVML:
            raise ValueError(
                "bootstrap.dcgm.enabled runs a host engine that nothing asks: set"
                " bootstrap.dcgm_exporter.source to DCGM, or bootstrap.dcgm.enabled to false"
            )
        return self
