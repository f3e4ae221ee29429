"""Settings of the controllers, in the parameters of the packages that decide; the server translates its own into them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from api.kinds.autoscaling import ScalingBackend
    from inventory.discovery.node import InventoryParameters
    from inventory.health.device import HealthDebounceLimits
    from inventory.readiness.software import BootstrapParameters
    from manifests.node.device_plugin import WorkloadSettings
    from operands.nvidia.policy_operands import PolicyOperands, ServerMetrics


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointParameters:
    """This replica behind the Service."""

    namespace: str
    address: str
    """Empty: the Service selects its pods itself."""
    port: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSoftwareParameters:
    """Settings of ClusterPolicies and NVIDIADrivers."""

    is_enabled: bool = False
    """Whether both kinds are served."""
    namespace: str = ""
    """Namespace of the operands: ours."""
    environment: "Mapping[str, str]" = field(default_factory=dict)
    """Images by the variables of NVIDIA's GPU Operator, such as `DRIVER_IMAGE`."""
    metrics: "ServerMetrics | None" = None
    """Metrics of the servers, for those who look for the operator's."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Settings of all controllers of a leader."""

    workloads: "WorkloadSettings"
    operands: "PolicyOperands"
    inventory: "InventoryParameters"
    bootstrap: "BootstrapParameters"
    health: "HealthDebounceLimits"
    scheduler_authorities: "Path | None"
    """A file with the CAs that kube-scheduler trusts, in place of its Secret, where another component issues the certificates."""
    is_labelling_namespace: bool
    """Whether our namespace gets the pod security labels that our DaemonSets need."""
    is_labelling_nodes: bool
    """Whether nodes with a device get the label of their presence."""
    is_scraping: bool
    """Whether DCGM exporters are read."""
    scrape_period_s: float
    is_nominating: bool
    """Whether waiting pods get `status.nominatedNodeName`."""
    endpoint: EndpointParameters
    scaling_backends: "frozenset[ScalingBackend]"
    """Those that pools may name."""
    is_serving_caches: bool
    """Whether GKMCaches get a status, and are let go."""
    node_software: NodeSoftwareParameters = NodeSoftwareParameters()
