"""Section `bootstrap`: when a node is ready for pools, and the operands that make it ready."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from inventory.readiness.software import Requirement
from operands.nvidia.own_pods import EXPORTER_PORT
from server import setting_sections

ScrapeInterval = Annotated[
    str,
    # As ServiceMonitor has it: from large to small; by the length an empty one is none.
    Field(
        pattern="^" + "".join(f"([0-9]+{u})?" for u in ["y", "w", "d", "h", "m", "s", "ms"]) + "$",
        min_length=2,
    ),
]
ImageText = Annotated[str, Field(pattern=r"^[^\s]*$")]


class OperandSection(setting_sections.Section):
    """Settings that every operand has."""

    requirement: Requirement = Requirement.IF_PRESENT
    """Whether a node needs a ready pod of the operand to be ready for pooling."""


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
    image: ImageText = ""
    """The whole reference."""
    sleep_interval_s: float = Field(default=60.0, ge=1, le=86_400)
    """Time between two readings of the devices."""
    fail_on_init_error: bool = True
    """Whether it ends where it cannot use the driver; otherwise it waits for ever."""
    features_dir: setting_sections.HostPath | None = None
    """Directory of the node for files of features, which NFD's worker reads, as
    /etc/kubernetes/node-feature-discovery/features.d; if omitted, it writes a NodeFeature, which needs NFD's CRDs alone."""
    host_sys_path: setting_sections.HostPath = "/sys"
    """Directory of the node with the kernel's sysfs."""
    config_map: setting_sections.ObjectName = ""
    """ConfigMap of our namespace with configurations, among which the node label `nvidia.com/device-plugin.config`
    chooses; empty: config-manager does not run."""
    default_config: str = ""
    """Key of that ConfigMap for nodes without the label."""


class DcgmOperandSettings(OperandSection):
    """DCGM's host engine, in NVIDIA's image, one for all exporters of a node."""

    enabled: bool = False
    """Whether the host engine runs; it needs an image. Without it a dcgm-exporter has an engine of its own."""
    image: ImageText = ""
    """The whole reference."""
    memory_limit: setting_sections.QuantityText = "1Gi"
    """Memory that the container may use."""


class ServiceMonitorSettings(setting_sections.Section):
    """ServiceMonitor of the metrics of devices, which is made where the cluster serves the kind."""

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
    source: Literal["NVML", "DCGM"] = "NVML"
    """NVML: the node agents serve them, under DCGM's names. DCGM: NVIDIA's dcgm-exporter, which needs an image."""
    image: ImageText = ""
    """The whole reference, of dcgm-exporter."""
    memory_limit: setting_sections.QuantityText = "512Mi"
    """Memory that dcgm-exporter may use."""
    env: dict[str, str] = {}
    """Environment variables of dcgm-exporter, over its own."""
    port: setting_sections.Port = EXPORTER_PORT
    """Port of dcgm-exporter."""
    labels: dict[str, str] = {}
    """Further labels of the Service."""
    service_monitor: ServiceMonitorSettings = ServiceMonitorSettings()


class BootstrapSettings(setting_sections.Section):
    """Conditions of a node that is ready for pooling, and the operands that meet them (docs/operations.md, "Node readiness" and "Operands")."""

    operands: Literal["Own", "External"] = "Own"
    """Own: the control plane runs the operands that are enabled, where its node agent may run and with its
    priority. External: NVIDIA's GPU Operator or another component runs them, and they are only observed."""
    runtime_class: setting_sections.ObjectName = ""
    """RuntimeClass of NVIDIA's images, such as nvidia; empty: the node's default runtime."""
    namespaces: tuple[setting_sections.DnsName, ...] = ()
    """Trusted namespaces of operand pods, besides our own. None by default: where users may create namespaces,
    the first to take a missing name would be trusted."""
    period_s: setting_sections.Seconds = 10.0
    """Checks of a node that are closer together than this are one sample."""
    heartbeat_freshness_s: setting_sections.Seconds = 120.0
    """Age of a heartbeat after which monitoring is missing."""
    validator: ValidatorOperandSettings = ValidatorOperandSettings()
    gfd: GfdOperandSettings = GfdOperandSettings()
    dcgm: DcgmOperandSettings = DcgmOperandSettings()
    dcgm_exporter: ExporterOperandSettings = ExporterOperandSettings()

    @property
    def exports_nvml(self) -> bool:
        """Whether the node agents serve the metrics of devices."""
        exporter = self.dcgm_exporter
        return self.operands == "Own" and exporter.enabled and exporter.source == "NVML"

    @property
    def runs_dcgm_exporter(self) -> bool:
        exporter = self.dcgm_exporter
        return self.operands == "Own" and exporter.enabled and exporter.source == "DCGM"

    @model_validator(mode="after")
    def _operands_have_images(self) -> Self:
        is_own = self.operands == "Own"
        running = {
            "gfd": (self.gfd.image, is_own and self.gfd.enabled),
            "dcgm": (self.dcgm.image, is_own and self.dcgm.enabled),
            "dcgm_exporter": (self.dcgm_exporter.image, self.runs_dcgm_exporter),
        }
        for name, (image, is_running) in running.items():
            if is_running and not image:
                raise ValueError(
                    f"bootstrap.{name}.image is empty, and the operand is enabled: set it to the whole reference of"
                    " NVIDIA's image"
                )
        return self

    @model_validator(mode="after")
    def _nvml_needs_no_dcgm(self) -> Self:
        if self.dcgm.enabled and self.exports_nvml:
            raise ValueError(
                "bootstrap.dcgm.enabled runs a host engine that nothing asks: set"
                " bootstrap.dcgm_exporter.source to DCGM, or bootstrap.dcgm.enabled to false"
            )
        return self
