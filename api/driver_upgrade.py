"""Names of driver upgrades on nodes and pods: states, labels, annotations.

Those of `nvidia.com` are the names of NVIDIA's GPU Operator (k8s-operator-libs, driver name `gpu`), so that its tools
and its users' commands keep their meaning. Those of our group are what a node cannot say in them.
"""

import datetime as dt
from enum import Enum
from typing import Final

import msgspec

from api.names import GROUP, RESOURCE_PREFIX
from api.vendor import GPU_RESOURCE, MIG_RESOURCE_PREFIX

UPGRADE_STATE_LABEL: Final = "nvidia.com/gpu-driver-upgrade-state"
"""On a Node: its `UpgradeState`."""
UPGRADE_SKIP_LABEL: Final = "nvidia.com/gpu-driver-upgrade.skip"
"""On a Node, set by hand: `true` keeps the node from being upgraded."""
DRAIN_SKIP_LABEL: Final = "nvidia.com/gpu-driver-upgrade-drain.skip"
"""On a pod, set by hand: `true` keeps the pod from being evicted by a drain."""

UPGRADE_REQUESTED_ANNOTATION: Final = "nvidia.com/gpu-driver-upgrade-requested"
"""On a Node: `true` asks for an upgrade of a node whose driver pod is no DaemonSet's, or is up to date."""
INITIALLY_UNSCHEDULABLE_ANNOTATION: Final = (
    "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable"
)
"""On a Node that another client cordoned before its upgrade: it stays cordoned afterwards."""
SAFE_LOAD_ANNOTATION: Final = "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load"
"""On a Node whose driver pod waits before it loads the driver, until this annotation is removed."""
WAIT_START_ANNOTATION: Final = "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time"
"""On a Node in state wait-for-jobs-required with a time limit: Unix seconds of its start."""
VALIDATION_START_ANNOTATION: Final = "nvidia.com/gpu-driver-upgrade-validation-start-time"
"""On a Node in state validation-required: Unix seconds of its start."""
REQUESTOR_MODE_ANNOTATION: Final = "nvidia.com/gpu-driver-upgrade-requestor-mode"
"""On a Node whose upgrade an external maintenance operator carries out."""

DEPLOY_LABEL_PREFIX: Final = "nvidia.com/gpu.deploy."
"""On a Node, with the name of an operand: `true` runs the operand's pod there."""
DRIVER_DEPLOY_LABEL: Final = f"{DEPLOY_LABEL_PREFIX}driver"
DEPLOYED: Final = "true"
PAUSED_PREFIX: Final = "paused-"
"""Begin of the value of a deploy label while its operand is away for a change of the driver or of MIG instances."""
PAUSED_FOR_UPGRADE: Final = f"{PAUSED_PREFIX}for-driver-upgrade"
"""Value of a deploy label while the operand is away for an upgrade of the driver."""
AGENT_DEPLOY_LABEL: Final = f"{GROUP}/deploy.node-agent"
"""On a Node: `PAUSED_FOR_UPGRADE` keeps the pods of this control plane that open the driver away; else absent."""

UPGRADE_RECORD_ANNOTATION: Final = f"{GROUP}/driver-upgrade"
"""On a Node: since when it is in its state, why, and in which attempt (`operands.upgrade.record`)."""
UNITS_WITHHELD_ANNOTATION: Final = f"{GROUP}/units-withheld-by"
"""On a Node whose devices take no new pod."""
DRIVER_UPGRADE: Final = "driver-upgrade"
"""Value of the annotation before."""
CORDON_MANAGER: Final = "gpu-control-plane/driver-upgrade"
"""Field manager of `spec.unschedulable` on nodes that this control plane cordoned: a cordon of another one stays."""


class UpgradeState(Enum):
    """Value of `UPGRADE_STATE_LABEL`."""

    UNKNOWN = ""
    """Without the label: not processed yet, or not managed."""
    UPGRADE_REQUIRED = "upgrade-required"
    CORDON_REQUIRED = "cordon-required"
    WAIT_FOR_JOBS_REQUIRED = "wait-for-jobs-required"
    POD_DELETION_REQUIRED = "pod-deletion-required"
    DRAIN_REQUIRED = "drain-required"
    NODE_MAINTENANCE_REQUIRED = "node-maintenance-required"
    """An external maintenance operator has the node."""
    POST_MAINTENANCE_REQUIRED = "post-maintenance-required"
    """The external maintenance operator is done with the node."""
    POD_RESTART_REQUIRED = "pod-restart-required"
    VALIDATION_REQUIRED = "validation-required"
    UNCORDON_REQUIRED = "uncordon-required"
    UPGRADE_DONE = "upgrade-done"
    UPGRADE_FAILED = "upgrade-failed"

    @property
    def is_idle(self) -> bool:
        """Whether no upgrade of the node has begun or is requested."""
        return self in _IDLE

    @property
    def is_in_progress(self) -> bool:
        """Whether a node in this state takes one of maxParallelUpgrades."""
        return self in _IN_PROGRESS

    @property
    def is_external(self) -> bool:
        """Whether an external maintenance operator moves the node on."""
        return self in _EXTERNAL


_IDLE: Final = frozenset({UpgradeState.UNKNOWN, UpgradeState.UPGRADE_DONE})
IDLE_VALUES: Final = frozenset(state.value for state in _IDLE)
"""Values of the label on nodes of which no upgrade has begun or is requested."""
_IN_PROGRESS: Final = frozenset(
    {
        UpgradeState.CORDON_REQUIRED,
        UpgradeState.WAIT_FOR_JOBS_REQUIRED,
        UpgradeState.POD_DELETION_REQUIRED,
        UpgradeState.DRAIN_REQUIRED,
        UpgradeState.POD_RESTART_REQUIRED,
        UpgradeState.VALIDATION_REQUIRED,
        UpgradeState.UNCORDON_REQUIRED,
    }
)
IN_PROGRESS_VALUES: Final = frozenset(state.value for state in _IN_PROGRESS)
"""Values of the label on nodes whose upgrade has begun and is not over."""
EMPTYING_VALUES: Final = frozenset(
    {
        UpgradeState.CORDON_REQUIRED.value,
        UpgradeState.WAIT_FOR_JOBS_REQUIRED.value,
        UpgradeState.POD_DELETION_REQUIRED.value,
        UpgradeState.DRAIN_REQUIRED.value,
    }
)
"""Values of the label on nodes whose users of the driver leave."""
_EXTERNAL: Final = frozenset(
    {UpgradeState.NODE_MAINTENANCE_REQUIRED, UpgradeState.POST_MAINTENANCE_REQUIRED}
)


class UpgradeTimeLimit(msgspec.Struct, frozen=True):
    """What of `UPGRADE_RECORD_ANNOTATION` says how long its state may last."""

    state: str
    until: dt.datetime | None = None


def is_of_devices(resource: str) -> bool:
    """Return whether a pod that requests the resource uses the driver, as its request says."""
    return is_of_nvidias_plugin(resource) or resource.startswith(RESOURCE_PREFIX)


def is_of_nvidias_plugin(resource: str) -> bool:
    """Return whether NVIDIA's own device plugin gives devices, or MIG instances, by this resource."""
    return resource.startswith((GPU_RESOURCE, MIG_RESOURCE_PREFIX))
