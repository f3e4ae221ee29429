"""What concerns all operands: the operator's own objects, the DaemonSets, the node's paths and interfaces."""

from enum import Enum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api.kinds.nvidia.operand_block import Count, ImageFields, Switch, Texts
from api.kinds.nvidia.pod_fields import PodSecurityContext, PodToleration
from api.meta import SparseModel

_DURATION_PATTERN: Final = (
    "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
)
_Duration = Annotated[str, Meta(pattern=_DURATION_PATTERN)]

RelabelAction = Literal[
    "replace", "Replace", "keep", "Keep", "drop", "Drop", "hashmod", "HashMod", "labelmap", "LabelMap",
    "labeldrop", "LabelDrop", "labelkeep", "LabelKeep", "lowercase", "Lowercase", "uppercase", "Uppercase",
    "keepequal", "KeepEqual", "dropequal", "DropEqual",
]  # fmt: skip


class RelabelConfig(SparseModel, frozen=True):
    """A rewriting of labels, in Prometheus' terms."""

    action: RelabelAction = "replace"
    """What is done."""
    modulus: Annotated[Count, Meta(extra_json_schema={"format": "int64"})] | None = None
    """Modulus of the hash of the source labels."""
    regex: str = ""
    """Expression that the value must match."""
    replacement: str | None = None
    """New value."""
    separator: str | None = None
    """Text between the values of the source labels."""
    source_labels: Texts | None = None
    """Labels whose values are joined."""
    target_label: str = ""
    """Label that gets the new value."""


class ServiceMonitorConfig(Switch, frozen=True):
    """A ServiceMonitor, for clusters with the Prometheus operator."""

    interval: _Duration = ""
    """Time between two scrapes; empty: Prometheus' own."""
    scrape_timeout: _Duration = ""
    """Time after which a scrape fails; empty: Prometheus' own."""
    honor_labels: bool | None = None
    """Whether labels of the metrics win over those of the target."""
    additional_labels: dict[str, str] | None = None
    """Further labels of the ServiceMonitor."""
    relabelings: list[RelabelConfig] | None = None
    """Rewriting of the target's labels."""


class OperatorMetrics(SparseModel, frozen=True):
    """Metrics of the operator itself."""

    service_monitor: ServiceMonitorConfig = ServiceMonitorConfig()
    """The ServiceMonitor of the operator."""


class OperatorSpec(SparseModel, frozen=True):
    """The operator itself."""

    default_runtime: str = ""
    """Without effect: the container runtime of each node is detected."""
    runtime_class: str = "nvidia"
    """Name of the RuntimeClass with the devices' runtime."""
    init_container: ImageFields = ImageFields()
    """Without effect."""
    labels: dict[str, str] | None = None
    """Further labels of the operator's objects."""
    annotations: dict[str, str] | None = None
    """Further annotations of the operator's objects."""
    metrics: OperatorMetrics = OperatorMetrics()
    """Metrics of the operator."""
    use_ocp_driver_toolkit: bool | None = msgspec.field(default=None, name="use_ocp_driver_toolkit")
    """Without effect: OpenShift is not supported."""


class UpdateStrategy(Enum):
    """How pods of a DaemonSet are replaced; the driver's are replaced by the upgrade policy only."""

    ROLLING_UPDATE = "RollingUpdate"
    """The DaemonSet controller replaces them by itself."""
    ON_DELETE = "OnDelete"
    """Each is replaced once it is deleted."""


ROLLING_LIMIT: Final = "0*[1-9][0-9]{0,8}|0*([1-9]|[1-9][0-9]|100)%"
"""How many nodes a rolling update takes at a time: a number above 0, or a percentage."""


class RollingUpdate(SparseModel, frozen=True):
    """A rolling update of pods."""

    max_unavailable: str = ""
    """Pods that may be unavailable at a time: a number, or a percentage of the nodes."""


class DaemonsetsSpec(SparseModel, frozen=True):
    """The DaemonSets of all operands."""

    labels: dict[str, str] | None = None
    """Further labels of their pods."""
    annotations: dict[str, str] | None = None
    """Further annotations of their pods."""
    tolerations: list[PodToleration] | None = None
    """Taints that their pods tolerate, in place of those of the operands."""
    priority_class_name: str = ""
    """Priority class of their pods."""
    update_strategy: UpdateStrategy = UpdateStrategy.ROLLING_UPDATE
    rolling_update: RollingUpdate = RollingUpdate()
    """The rolling update; the driver has none."""
    pod_security_context: PodSecurityContext | None = None
    """Security settings of their pods."""


class CDIConfig(Switch, frozen=True):
    """The Container Device Interface."""

    enabled: bool = True
    """Whether containers get their devices by CDI."""
    default: bool = False
    """Without effect: CDI is the way of all containers where it is on."""
    nri_plugin_enabled: bool = False
    """Whether the toolkit's plugin of the container runtime (NRI) hands out devices; no RuntimeClass is needed then."""


class HostPaths(SparseModel, frozen=True):
    """Directories of the nodes."""

    root_fs: str = msgspec.field(default="", name="rootFS")
    """Root of the node's file system; empty: /."""
    driver_install_dir: str = ""
    """Directory with the driver's files; empty: /run/nvidia/driver."""
    kubelet_root_dir: str = "/var/lib/kubelet"
    """Directory of kubelet."""

    @property
    def root(self) -> str:
        return self.root_fs or "/"

    @property
    def driver_root(self) -> str:
        return self.driver_install_dir or "/run/nvidia/driver"
