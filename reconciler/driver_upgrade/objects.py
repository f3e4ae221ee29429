"""The objects that an upgrade reads, each as far as it decides something."""

from typing import Any, Final

import msgspec

from api.csi.names import DRIVER_NAME
from api.foreign import core
from api.foreign.reported_containers import ReportedCondition, ReportedContainer
from api.meta import LabelSelector, Model, ObjectMeta
from api.well_known_labels import APP_COMPONENT_LABEL
from pool.compute_resources import ComputeResources, requested

DRIVER_COMPONENT: Final = "nvidia-driver"
DRIVER_SELECTOR: Final = f"{APP_COMPONENT_LABEL}={DRIVER_COMPONENT}"
"""Selector of driver pods, and of the revisions of their DaemonSets."""
VALIDATOR_SELECTOR: Final = "app=nvidia-operator-validator"


class EnvironmentVariable(Model, frozen=True):
    name: str = ""
    value: str = ""


class UpgradeContainer(core.Container, frozen=True):
    env: list[EnvironmentVariable] | None = None


class UpgradeVolume(Model, frozen=True):
    name: str = ""
    empty_dir: dict[str, Any] | None = None
    csi: core.CSIVolume | None = None


class PodResourceClaim(Model, frozen=True):
    name: str = ""
    resource_claim_name: str = ""


class UpgradePodSpec(Model, frozen=True):
    node_name: str = ""
    containers: list[UpgradeContainer] | None = None
    init_containers: list[UpgradeContainer] | None = None
    volumes: list[UpgradeVolume] | None = None
    node_selector: dict[str, str] | None = None
    affinity: core.Affinity | None = None
    tolerations: list[core.Toleration] | None = None
    priority: int | None = None
    active_deadline_seconds: int | None = None
    resource_claims: list[PodResourceClaim] | None = None
    resources: core.ResourceRequirements | None = None
    overhead: dict[str, str | int | float] | None = None

    @property
    def requests(self) -> ComputeResources:
        """CPU and memory that the pod requests."""
        spec = core.PodSpec(
            containers=[*(self.containers or ())],
            init_containers=[*(self.init_containers or ())],
            resources=self.resources,
            overhead=self.overhead,
        )
        return requested(core.Pod(spec=spec))


class UpgradePodStatus(Model, frozen=True):
    phase: str = ""
    start_time: str | None = None
    conditions: list[ReportedCondition] | None = None
    container_statuses: list[ReportedContainer] | None = None
    init_container_statuses: list[ReportedContainer] | None = None
    resource_claim_statuses: list[PodResourceClaim] | None = None


class UpgradePod(Model, frozen=True):
    """A driver pod, a validator pod, or another one on a node that is upgraded."""

    metadata: ObjectMeta = ObjectMeta()
    spec: UpgradePodSpec = UpgradePodSpec()
    status: UpgradePodStatus = UpgradePodStatus()

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def is_active(self) -> bool:
        return self.status.phase in {"", "Pending", "Running"}

    @property
    def containers(self) -> list[UpgradeContainer]:
        return [*(self.spec.init_containers or ()), *(self.spec.containers or ())]

    @property
    def mounts_caches(self) -> bool:
        """Whether the node agent has a volume of the pod to unmount."""
        csi = (volume.csi for volume in self.spec.volumes or ())
        return any(volume is not None and volume.driver == DRIVER_NAME for volume in csi)

    def condition(self, type_: str) -> ReportedCondition:
        found = (item for item in self.status.conditions or () if item.type == type_)
        return next(found, ReportedCondition())


class UpgradeTemplate(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: UpgradePodSpec = UpgradePodSpec()


class UpgradeDaemonSetSpec(Model, frozen=True):
    template: UpgradeTemplate = UpgradeTemplate()


class UpgradeDaemonSet(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: UpgradeDaemonSetSpec = UpgradeDaemonSetSpec()


class ControllerRevision(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0
    data: dict[str, Any] | None = None
    """The DaemonSet's template under its path."""

    @property
    def without_tolerations(self) -> dict[str, Any]:
        """The template, but for the tolerations of its pods."""
        template: dict[str, Any] = ((self.data or {}).get("spec") or {}).get("template") or {}
        return {**template, "spec": {**(template.get("spec") or {}), "tolerations": None}}


class BudgetSpec(Model, frozen=True):
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(Model, frozen=True):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class DisruptionBudget(Model, frozen=True):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class AllocatedDevice(Model, frozen=True):
    driver: str = ""
    admin_access: bool | None = None


class AllocatedDevices(Model, frozen=True):
    results: list[AllocatedDevice] | None = None


class ClaimAllocation(Model, frozen=True):
    devices: AllocatedDevices = AllocatedDevices()


class ClaimStatus(Model, frozen=True):
    allocation: ClaimAllocation | None = None


class ResourceClaim(Model, frozen=True):
    """A claim of Dynamic Resource Allocation."""

    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)
