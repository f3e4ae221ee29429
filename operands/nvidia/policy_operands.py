"""What the states of a policy are built from, and how a state says that it cannot be built."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import final

from api.kinds.nvidia.clusterpolicy import ClusterPolicySpec
from operands.errors import OperandError
from operands.nvidia.node_software import HostSoftware
from operands.nvidia.own_pods import OwnOperands


class StateFault(Enum):
    """Why a state cannot be built, as the reason of its status."""

    IMAGE_INVALID = "ImageInvalid"
    """An image is given in half, or not at all."""
    SPEC_INVALID = "SpecInvalid"
    """Fields contradict each other."""
    OS_UNKNOWN = "OperatingSystemUnknown"
    """Nodes do not say which system they run."""
    CONFIG_MAP_MISSING = "ConfigMapMissing"
    """A ConfigMap whose files a container is to have is not there."""


@final
class StateSettingsError(OperandError):
    """A state has no objects, since something about it is wrong; the others go on.

    What it had before stays on the nodes: a mistake in a spec takes no driver away.
    """

    def __init__(self, fault: StateFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMetrics:
    """Where Prometheus finds the metrics of this control plane's servers, in the namespace of the operands."""

    selector: Mapping[str, str]
    """Labels of their pods."""
    port: str
    """Name of the pods' port, which serves TLS."""
    path: str
    server_name: str
    """Server name in their certificate."""
    ca_secret: str
    """Secret with the certificate's authority, as `ca.crt`."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOperands:
    """All that the states of one ClusterPolicy, or of the built-in policy, depend on."""

    name: str = ""
    """Name of the ClusterPolicy; messages name it."""
    spec: ClusterPolicySpec = field(default_factory=ClusterPolicySpec)
    namespace: str
    """Namespace of the operands."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Image variables of the control plane, such as `DRIVER_IMAGE`."""
    software: tuple[HostSoftware, ...] = ()
    """Distinct software of the nodes with a GPU, sorted; empty without such a node."""
    config_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """ConfigMap of the namespace -> its keys, of those that `operands.nvidia.drivers.config_files` asks for."""
    metrics: ServerMetrics | None = None
    """None: the servers' metrics are not shown under the operator's name."""
    own: OwnOperands | None = None
    """Operands of the built-in policy."""

    @property
    def has_gpu_nodes(self) -> bool:
        """Whether DaemonSets are created: a ClusterPolicy's where there is a node with a GPU."""
        return self.own is not None or bool(self.software)

    def path(self, field_name: str) -> str:
        """Return how messages name a part of the spec."""
        return (
            f"ClusterPolicy {self.name}: spec.{field_name}"
            if self.name
            else f"bootstrap.{field_name}"
        )
