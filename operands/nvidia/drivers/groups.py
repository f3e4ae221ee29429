"""Groups of nodes that one DaemonSet of a driver serves: of one system, and of one kernel if the driver is precompiled.

A group follows from the software of its own nodes, so that nodes of another system change nothing about it.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from api.vendor import NFD_KERNEL_LABEL
from operands.nvidia.node_software import (
    KERNEL_LABEL,
    OS_ID_FEATURE,
    OS_LABEL,
    OS_VERSION_FEATURE,
    RUNTIME_LABEL,
    RuntimeName,
)
from operands.nvidia.policy_operands import StateFault, StateSettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from operands.nvidia.node_software import HostSoftware

_SYSTEM: Final = re.compile(r"[^0-9]*")
_WITH_SUBSCRIPTION: Final = "rhel"
"""CRI-O hands the subscription of such a node to containers by itself; of other runtimes the driver's pod does."""


class DriverGrouping(Enum):
    """What the nodes of a group have in common."""

    SYSTEM = "system"
    SUBSCRIPTION = "subscription"
    """The system, and the container runtime where it decides how a container gets the subscription of packages."""
    KERNEL = "kernel"
    """System and kernel, of a precompiled driver."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DriverGroup:
    """Nodes that one DaemonSet serves."""

    os_tag: str
    kernel: str = ""
    """Empty: of every kernel."""
    runtime: str = ""
    """Empty: of every container runtime."""

    @property
    def system(self) -> str:
        """Return the name of the system, such as `ubuntu` or `sl-micro`."""
        found = _SYSTEM.match(self.os_tag)
        return found.group().rstrip("-._") if found else ""

    @property
    def has_host_subscription(self) -> bool:
        """Whether the driver's pod must bring the node's subscription of packages into the container."""
        return self.system == _WITH_SUBSCRIPTION and self.runtime != RuntimeName.CRI_O.value

    def node_labels(self) -> dict[str, str]:
        """Return the labels of its nodes."""
        values = {OS_LABEL: self.os_tag, KERNEL_LABEL: self.kernel, RUNTIME_LABEL: self.runtime}
        return {key: value for key, value in values.items() if value}

    def name_parts(self) -> tuple[str, ...]:
        """Return what tells its DaemonSet from those of the other groups."""
        runtime = "" if self.runtime == RuntimeName.CONTAINERD.value else self.runtime
        return tuple(item for item in (self.kernel, self.os_tag, runtime) if item)


def why_without_driver(software: "HostSoftware", grouping: DriverGrouping) -> str:
    """Return why nodes of this software get no driver, with the cure; nothing if they get one."""
    if not software.os_tag:
        return (
            "it is not known which system the nodes run: have the node agent run there, let Node Feature Discovery set"
            f" {OS_ID_FEATURE} and {OS_VERSION_FEATURE}, or set {OS_LABEL} to the end of the tag of the driver's image"
        )
    if grouping is DriverGrouping.KERNEL and not software.kernel:
        return (
            f"it is not known which kernel the nodes run, and the driver is precompiled: let Node Feature Discovery"
            f" set {NFD_KERNEL_LABEL}, or switch usePrecompiled off"
        )
    if (
        grouping is DriverGrouping.SUBSCRIPTION
        and _has_subscription(software)
        and not software.runtime
    ):
        return (
            f"it is not known which container runtime the nodes run, which decides how the driver gets their"
            f" subscription of packages: set {RUNTIME_LABEL} to containerd, cri-o or docker"
        )
    return ""


def software_without_driver(
    software: "Iterable[HostSoftware]", grouping: DriverGrouping
) -> "dict[HostSoftware, str]":
    """Return which of the nodes' software gets no driver, and why, with the cure."""
    reasons = {item: why_without_driver(item, grouping) for item in software}
    return {item: reason for item, reason in sorted(reasons.items()) if reason}


def driver_groups(
    software: "Sequence[HostSoftware]", grouping: DriverGrouping, *, spec_path: str
) -> tuple[DriverGroup, ...]:
    """Return the groups, sorted. Nodes of which too little is known are in none.

    Raises:
        StateSettingsError: there are nodes, and all of them are in no group; the message begins with `spec_path`.
    """
    without = software_without_driver(software, grouping)
    groups = {_group(item, grouping) for item in software if item not in without}
    if without and not groups:
        raise StateSettingsError(
            StateFault.OS_UNKNOWN, f"{spec_path}: no node gets it: {next(iter(without.values()))}"
        )
    return tuple(sorted(groups))


def _group(software: "HostSoftware", grouping: DriverGrouping) -> DriverGroup:
    if grouping is DriverGrouping.KERNEL:
        return DriverGroup(os_tag=software.os_tag, kernel=software.kernel)
    by_runtime = grouping is DriverGrouping.SUBSCRIPTION and _has_subscription(software)
    return DriverGroup(os_tag=software.os_tag, runtime=software.runtime if by_runtime else "")


def _has_subscription(software: "HostSoftware") -> bool:
    return DriverGroup(os_tag=software.os_tag).system == _WITH_SUBSCRIPTION
