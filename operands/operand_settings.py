"""Settings of the operands in the terms of this package; the server translates its own into them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, final

Json = dict[str, Any]

NODE_FEATURES_DIRECTORY: Final = "/etc/kubernetes/node-feature-discovery/features.d"
EXPORTER_PORT: Final = 9400
COLLECTORS: Final = "/etc/dcgm-exporter/dcp-metrics-included.csv"


class MetricsSource(Enum):
    """Source of the metrics of devices."""

    NVML = "NVML"
    """The node agent, under DCGM's names."""
    DCGM = "DCGM"
    """NVIDIA's dcgm-exporter."""


class DcgmMigStrategy(Enum):
    """Presentation of MIG instances."""

    SINGLE = "single"
    MIXED = "mixed"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementTerms:
    """Where the pods of all operands run."""

    affinity: Json = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    priority_class: str = ""
    """Empty: the cluster's default."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OperandOptions:
    """Options that every operand has; they concern its main container."""

    is_enabled: bool = False
    image: str = ""
    image_pull_policy: str = ""
    """Empty: the API server's default."""
    image_pull_secrets: tuple[str, ...] = ()
    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    """Further arguments."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables, over those of the manifest."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatorSettings:
    options: OperandOptions = OperandOptions()
    hand_out_arguments: tuple[str, ...] = ()
    """How containers get their devices: what the runtime needs for it is validated."""
    validates_nvidia_fs: bool = False
    validates_gdrcopy: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GfdSettings:
    options: OperandOptions = OperandOptions()
    sleep_interval_s: float = 60.0
    uses_node_feature_api: bool = True
    features_dir: str = NODE_FEATURES_DIRECTORY
    fails_on_init_error: bool = True
    host_sys_path: str = "/sys"
    config_map: str = ""
    """ConfigMap of configurations among which a node label chooses; empty: no config-manager runs."""
    default_config: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmSettings:
    options: OperandOptions = OperandOptions()
    mig_strategy: DcgmMigStrategy = DcgmMigStrategy.SINGLE
    hostengine_arguments: tuple[str, ...] = ("-n", "-b", "ALL")
    proftester_flags: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings:
    """The ServiceMonitor of the metrics."""

    is_enabled: bool = True
    interval: str = "15s"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterSettings:
    options: OperandOptions = OperandOptions()
    source: MetricsSource = MetricsSource.NVML
    port: int = EXPORTER_PORT
    collectors: str = COLLECTORS
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the Service."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the Service."""
    monitor: MonitorSettings = MonitorSettings()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapOperands:
    """Settings of the operands that make a node ready for pools; every field of the output follows from them."""

    namespace: str
    own_image: str = ""
    """The control plane's image: of the validator, and of the containers that wait for it."""
    is_own: bool = True
    """False: another operator runs all of them."""
    kubelet_directory: str = "/var/lib/kubelet"
    placement: PlacementTerms = PlacementTerms()
    runtime_class: str = ""
    """RuntimeClass of NVIDIA's images; empty: the node's default runtime."""
    validator: ValidatorSettings = ValidatorSettings()
    gfd: GfdSettings = GfdSettings()
    dcgm: DcgmSettings = DcgmSettings()
    exporter: ExporterSettings = ExporterSettings()

    @property
    def runs_exporter(self) -> bool:
        """Return whether NVIDIA's dcgm-exporter runs."""
        return (
            self.is_own
            and self.exporter.options.is_enabled
            and self.exporter.source is MetricsSource.DCGM
        )

    @property
    def exports_nvml(self) -> bool:
        """Return whether the node agents serve the metrics of devices."""
        return (
            self.is_own
            and self.exporter.options.is_enabled
            and self.exporter.source is MetricsSource.NVML
        )

    @property
    def runs_dcgm(self) -> bool:
        return self.is_own and self.dcgm.options.is_enabled

    @property
    def runs_gfd(self) -> bool:
        return self.is_own and self.gfd.options.is_enabled

    @property
    def runs_validator(self) -> bool:
        return self.is_own and self.validator.options.is_enabled

    @property
    def images(self) -> tuple[str, ...]:
        """Return the images of all containers of the operands' DaemonSets."""
        running = (
            (self.runs_validator, self.validator.options),
            (self.runs_gfd, self.gfd.options),
            (self.runs_dcgm, self.dcgm.options),
            (self.runs_exporter, self.exporter.options),
        )
        found = {options.image for is_running, options in running if is_running}
        if self.runs_validator and found:
            found.add(self.own_image)
        return tuple(sorted(found))
