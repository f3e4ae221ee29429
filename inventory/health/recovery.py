"""Recovery actions: what a device needs after a fault, by its driver, by NVIDIA's catalog of Xids, or by a setting.

The driver knows best: NVML's field 230 (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION) has the action that a device needs now. The
catalog counts where the driver does not have the field, and after an Xid that this driver does not derive an action from
yet. A setting (`health.xid_actions`) replaces both for an Xid; it hides no action that the driver asks for.

Source of the table: docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, "Immediate Action" and "Xid 154 linkage",
as of 2025-10-29. RESTART_APP and IGNORE need nothing of the device; RESTART_BM and RESTART_VM are reboots of the node; a
workflow is the most that it may lead to. Xids that the catalog calls unused, or does not advise on, are not in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class RecoveryAction(Enum):
    """What a faulted device needs, the reason of its condition Healthy; NVML's eight actions, and four more.

    An action other than NONE is a fault: no new pod is placed on the device while it lasts, and running pods are left
    alone. The value is also the label `reason` of `gpu_device_faulted_total`.
    """

    NONE = "None"
    """Nothing: it is no fault, and no reason."""
    GPU_RESET = "GPUReset"
    """The device is to be reset once no process uses it."""
    NODE_REBOOT = "NodeReboot"
    """The node is to be rebooted; so where the device is lost."""
    DRAIN_P2P = "DrainP2P"
    """Processes that reach other devices over NVLink are to end."""
    DRAIN_AND_RESET = "DrainAndReset"
    """The device works with less than its capacity: its processes are to end, and then it is to be reset."""
    RECOVER_IMEX_DOMAIN = "RecoverIMEXDomain"
    """The IMEX domain of the device's NVLink fabric is to be recovered."""
    BUS_RESET = "BusReset"
    """The PCIe bus of the device is to be reset."""
    SYSTEM_REBOOT = "SystemReboot"
    """The whole system that the device is part of is to be rebooted."""
    CHECK_COOLING = "CheckCooling"
    """Heat slows the device, or it is at its shutdown threshold."""
    REPLACE = "Replace"
    """The device is to be replaced: a faulty row of its memory could not be remapped."""
    BEING_RESET = "BeingReset"
    """A device that it has NVLinks to is being reset, and it with that."""
    UNKNOWN = "ActionUnknown"
    """The driver does not say it when asked, says one of a newer version, or reported an Xid that no table knows."""

    @classmethod
    def of(cls, value: str) -> "RecoveryAction":
        """Return the action of a value; UNKNOWN for one of another version."""
        return next((action for action in cls if action.value == value), cls.UNKNOWN)


CURES: Final[Mapping[RecoveryAction, str]] = {
    RecoveryAction.NONE: "nothing",
    RecoveryAction.GPU_RESET: "end the processes on the device and reset it (nvidia-smi --gpu-reset)",
    RecoveryAction.NODE_REBOOT: "reboot the node",
    RecoveryAction.DRAIN_P2P: "end the processes that reach other devices over NVLink; the driver then asks for more or"
    " for nothing",
    RecoveryAction.DRAIN_AND_RESET: "the device works with less than its capacity: let its processes end, and reset it"
    " (nvidia-smi --gpu-reset)",
    RecoveryAction.RECOVER_IMEX_DOMAIN: "recover the IMEX domain of its NVLink fabric",
    RecoveryAction.BUS_RESET: "reset the PCIe bus of the device, or reboot the node",
    RecoveryAction.SYSTEM_REBOOT: "reboot the whole system that the device is part of",
    RecoveryAction.CHECK_COOLING: "check the cooling of the device",
    RecoveryAction.REPLACE: "replace the device",
    RecoveryAction.BEING_RESET: "wait until the reset is over",
    RecoveryAction.UNKNOWN: "see NVRM in the node's kernel log",
}
"""What an operator does for the device."""


class Repair(Enum):
    """What the control plane does for a device, in a pool with `spec.repair`."""

    NOTHING = "nothing"
    """An operator has to do it."""
    DRAIN = "drain"
    """Its pods leave; the driver then asks for more or for nothing."""
    RESET = "reset"
    """Its pods leave, and it is reset."""
    REBOOT = "reboot"
    """Its pods leave, and an operator is asked to reboot the node, which is cordoned."""


REPAIRS: Final[Mapping[RecoveryAction, Repair]] = {
    **dict.fromkeys(RecoveryAction, Repair.NOTHING),
    RecoveryAction.GPU_RESET: Repair.RESET,
    RecoveryAction.DRAIN_AND_RESET: Repair.RESET,
    RecoveryAction.DRAIN_P2P: Repair.DRAIN,
    RecoveryAction.NODE_REBOOT: Repair.REBOOT,
    RecoveryAction.BUS_RESET: Repair.REBOOT,
    RecoveryAction.SYSTEM_REBOOT: Repair.REBOOT,
}


_NOTHING_NEEDED: Final = (
    *(8, 11, 13, 14, 25, 31, 32, *range(37, 42), 43, 44, 45, 60, 63, *range(66, 73), 75, 76, 77),
    *(80, *range(82, 87), 88, 89, 92, 93, 94, *range(96, 109), 121, *range(126, 136), 137, 139),
    *(141, 152, 153, 154, 157, 160, 161),
)
_RESETS: Final = {
    **dict.fromkeys((46, 119, 140, 158, 159), 0),
    **dict.fromkeys((48, 62, 64, 74, 95, 110, 120, 136, *range(144, 151), 155, 156), 565),
    109: 570,
    143: 575,
}
"""Xid -> the first release of the driver that derives its action from it; 0 where the catalog names none."""
_REBOOTS: Final = {79: 565, 151: 0}
DOUBLE_BIT_XID: Final = 48
"""The Xid of an uncorrectable ECC error, which NVML also reports as an event and as a counter."""
_CATALOG: Final[Mapping[int, RecoveryAction]] = {
    **dict.fromkeys(_NOTHING_NEEDED, RecoveryAction.NONE),
    **dict.fromkeys(_RESETS, RecoveryAction.GPU_RESET),
    **dict.fromkeys(_REBOOTS, RecoveryAction.NODE_REBOOT),
}
_RELEASES: Final = _RESETS | _REBOOTS

XidActions = Mapping[int, RecoveryAction]
"""Xid -> the action that a setting gives it."""
NO_SETTING: Final[XidActions] = {}


class ActionSource(Enum):
    """Where an action comes from; the value is part of texts."""

    DRIVER = "by the driver"
    CATALOG = "by NVIDIA's catalog of Xids"
    SETTING = "by the setting health.xid_actions"
    UNLISTED = "neither the driver nor a table has the Xid: name its action in the setting health.xid_actions"


@dataclass(frozen=True, slots=True)
class XidAction:
    """The action after an Xid, and its source."""

    action: RecoveryAction
    source: ActionSource


def action_of_xid(
    code: int,
    *,
    reported: RecoveryAction | None = None,
    driver_version: str = "",
    actions: XidActions = NO_SETTING,
) -> XidAction:
    """Return what a device needs after an Xid.

    Args:
        code: the Xid.
        reported: the driver's present action of the device; None where the driver does not have the field.
        driver_version: such as `570.124.06`; empty where it is unknown.
        actions: of the setting.
    """
    if code in actions:
        return XidAction(actions[code], ActionSource.SETTING)
    is_derived = _release_of(driver_version) >= _RELEASES.get(code, 0)
    if reported is not None and (is_derived or reported is not RecoveryAction.NONE):
        return XidAction(reported, ActionSource.DRIVER)
    action = _CATALOG.get(code, RecoveryAction.UNKNOWN)
    is_cataloged = action is not RecoveryAction.UNKNOWN
    return XidAction(action, ActionSource.CATALOG if is_cataloged else ActionSource.UNLISTED)


def _release_of(driver_version: str) -> float:
    major = driver_version.partition(".")[0]
    return int(major) if major.isdecimal() else float("inf")
