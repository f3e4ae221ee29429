"""Why a node is in its state: a word for `status.upgrade.reason`."""

import functools
from enum import Enum

from api.text import truncate


class UpgradeReason(Enum):
    # At rest
    UP_TO_DATE = "DriverUpToDate"
    NOTHING_TO_UPGRADE = "NothingToUpgrade"
    """The driver pod is up to date again."""
    UPGRADED = "DriverUpgraded"
    RECOVERED = "UpgradeRecovered"
    """The upgrade had failed; now the driver is ready, and validated."""
    ORPHAN = "OrphanDriverPod"
    """The driver pod belongs to no DaemonSet, and its replacement is not requested."""
    AUTO_UPGRADE_OFF = "AutoUpgradeOff"
    UNMANAGED = "NoDriverWanted"
    """No driver DaemonSet selects the node."""
    REQUESTOR_MODE = "RequestorMode"
    """An external maintenance operator has the node."""
    PODS_UNREAD = "PodsNotRead"
    """What is on the node is not known in this pass: nothing is decided."""

    # Something keeps the node from starting
    OUTDATED = "DriverOutdated"
    SAFE_LOAD = "DriverWaitsForSafeLoad"
    REQUESTED = "UpgradeRequested"
    SKIPPED = "UpgradeSkipped"
    NO_DRIVER_POD = "NoDriverPod"
    """There is none, or none that is scheduled."""
    REVISION_UNKNOWN = "DriverRevisionUnknown"
    LEAVING = "NodeIsLeaving"
    NOT_READY = "NodeIsNotReady"
    MAX_PARALLEL = "MaxParallelUpgrades"
    MAX_UNAVAILABLE = "MaxUnavailable"
    POLICY_REFUSED = "UpgradePolicyRefused"

    # In progress
    STARTED = "UpgradeStarted"
    RESTART_ONLY = "RestartOnly"
    """The driver's configuration is the same: its pod restarts, and pods of users stay."""
    CORDONING = "Cordoning"
    WAITING_FOR_PODS = "WaitingForPodsToEnd"
    PODS_ENDED = "PodsEnded"
    WAIT_OVER = "WaitForCompletionOver"
    """The pods did not end in time."""
    EVICTING = "EvictingPods"
    EVICTION_REFUSED = "EvictionRefused"
    """By a disruption budget, for now."""
    PODS_TERMINATING = "PodsTerminating"
    POD_DELETION_OFF = "PodDeletionOff"
    DRAIN_OFF = "DrainOff"
    PODS_GONE = "PodsGone"
    OPERANDS_LEAVE = "OperandsLeave"
    AGENT_LEAVES = "NodeAgentLeaves"
    RESTARTING = "RestartingDriver"
    DRIVER_TERMINATING = "DriverPodTerminating"
    DRIVER_STARTING = "DriverStarting"
    DRIVER_READY = "DriverReady"
    NO_VALIDATOR = "NoValidatorPod"
    VALIDATING = "Validating"
    VALIDATED = "Validated"

    # Why an upgrade failed
    NOT_CORDONED = "CordonNotApplied"
    DRIVER_HELD = "DriverHeld"
    """By pods or processes that cannot be evicted."""
    EVICTION_TIMED_OUT = "EvictionTimedOut"
    DRAIN_BLOCKED = "DrainBlocked"
    DRAIN_TIMED_OUT = "DrainTimedOut"
    DRIVER_CRASHES = "DriverCrashes"
    RESTART_TIMED_OUT = "DriverRestartTimedOut"
    VALIDATION_TIMED_OUT = "ValidationTimedOut"
    LABEL_LOST = "UpgradeStateLost"
    """The state label was changed by hand while the node was out of service."""
    FAILED = "UpgradeFailed"
    """By another controller, or by hand: the cause is not recorded."""

    @classmethod
    @functools.lru_cache(maxsize=64)
    def _missing_(cls, value: object) -> "UpgradeReason | None":
        """Return a reason of another version, which a record may have: it is none of these, and is written as it was."""
        if not isinstance(value, str):
            return None
        reason = object.__new__(cls)
        reason._name_ = reason._value_ = truncate(value, 64)
        return reason
