"""System, kernel and container runtime of a node, which decide about its driver and its container toolkit.

They are read from the labels of Node Feature Discovery, or where it does not run from what the node agent reports, and from
what kubelet says about the machine, and written as labels of this control plane, by which DaemonSets select nodes. These
labels stay while Node Feature Discovery restarts and its own are gone, so that no driver pod leaves its node for that.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpunodeinventory import NodeSystem
from api.names import GROUP, OPERANDS_LABEL
from api.vendor import NFD_KERNEL_LABEL, NFD_SYSTEM_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

OS_LABEL: Final = f"{GROUP}/node-os"
"""On a Node: its system as in the tags of driver images, such as `ubuntu24.04` or `rhel9`."""
KERNEL_LABEL: Final = f"{GROUP}/node-kernel"
"""On a Node: the version of its kernel, where it is a label's value."""
RUNTIME_LABEL: Final = f"{GROUP}/node-container-runtime"
"""On a Node: its `RuntimeName`."""
SOFTWARE_LABELS: Final = (OS_LABEL, KERNEL_LABEL, RUNTIME_LABEL)

OS_ID_FEATURE: Final = f"{NFD_SYSTEM_PREFIX}ID"
OS_VERSION_FEATURE: Final = f"{NFD_SYSTEM_PREFIX}VERSION_ID"
OS_MAJOR_FEATURE: Final = f"{NFD_SYSTEM_PREFIX}VERSION_ID.major"

UNKNOWN_SYSTEM: Final = NodeSystem()
_OPENSHIFT_LABEL: Final = "node.openshift.io/os_id"
"""On every Node of OpenShift."""
_OPENSHIFT_SYSTEMS: Final = frozenset({"rhcos", "scos"})
_BY_MAJOR_VERSION: Final = frozenset({"rhel", "rocky", "ol"})
"""Systems whose images hold for all minor versions."""
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)


class RuntimeName(Enum):
    """The container runtime of a node, as kubelet names it."""

    CONTAINERD = "containerd"
    CRI_O = "cri-o"
    DOCKER = "docker"


@final
@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HostSoftware:
    """What a driver and a container toolkit must fit. Nodes with equal values get the same DaemonSets."""

    os_tag: str = ""
    """Empty: not known, so that no driver is brought."""
    kernel: str = ""
    """Empty: not known, so that no precompiled driver is brought."""
    runtime: str = RuntimeName.CONTAINERD.value
    """Value of a `RuntimeName`; empty: not known, so that no container toolkit is brought."""

    def labels(self) -> dict[str, str]:
        """Return the labels by which DaemonSets select such nodes; none for what is not known."""
        values = zip(SOFTWARE_LABELS, (self.os_tag, self.kernel, self.runtime), strict=True)
        return {key: value for key, value in values if value}


def software_of(
    labels: "Mapping[str, str]",
    *,
    runtime_version: str = "",
    kernel_version: str = "",
    system: NodeSystem = UNKNOWN_SYSTEM,
) -> HostSoftware:
    """Return the software of a node; what its labels do not say any more is what they said before.

    Args:
        labels: of the node: those of Node Feature Discovery, and ours of the last pass.
        runtime_version: `status.nodeInfo.containerRuntimeVersion`, such as `containerd://2.1.4`.
        kernel_version: `status.nodeInfo.kernelVersion`.
        system: as the node agent reports it, where Node Feature Discovery does not run.
    """
    # kubelet's does not go away while Node Feature Discovery restarts, and is the newer one after a reboot.
    kernel = _label_value(kernel_version) or _label_value(labels.get(NFD_KERNEL_LABEL, ""))
    return HostSoftware(
        os_tag=_os_tag_of_features(labels)
        or _os_tag(system.os, system.os_version)
        or labels.get(OS_LABEL, ""),
        kernel=kernel or labels.get(KERNEL_LABEL, ""),
        runtime=_runtime(runtime_version) or labels.get(RUNTIME_LABEL, ""),
    )


def why_unsupported(labels: "Mapping[str, str]") -> str:
    """Return why a node gets no software at all, with the cure; empty: its system is supported."""
    system = labels.get(OS_ID_FEATURE, "").lower() or labels.get(_OPENSHIFT_LABEL, "")
    if system not in _OPENSHIFT_SYSTEMS and _OPENSHIFT_LABEL not in labels:
        return ""
    return (
        f"OpenShift is not supported, and nothing runs on its nodes (system {system}): run NVIDIA's GPU Operator in"
        f" this cluster in place of node_software, or set the label {OPERANDS_LABEL}=false of the node"
    )


def gets_operands(labels: "Mapping[str, str]") -> bool:
    """Say whether a node with a GPU gets software: its system is supported, and its label does not switch all off."""
    return labels.get(OPERANDS_LABEL) != "false" and not why_unsupported(labels)


def recorded_software(labels: "Mapping[str, str]") -> HostSoftware:
    """Return the software that the labels of this control plane say, which is what DaemonSets select."""
    return HostSoftware(
        os_tag=labels.get(OS_LABEL, ""),
        kernel=labels.get(KERNEL_LABEL, ""),
        runtime=labels.get(RUNTIME_LABEL, ""),
    )


def _os_tag_of_features(labels: "Mapping[str, str]") -> str:
    version = labels.get(OS_VERSION_FEATURE, "")
    return _os_tag(labels.get(OS_ID_FEATURE, ""), version, labels.get(OS_MAJOR_FEATURE, ""))


def _os_tag(system: str, version: str, major_version: str = "") -> str:
    system = system.lower()
    if system in _BY_MAJOR_VERSION:
        version = major_version or version.partition(".")[0]
    return _label_value(f"{system}{version}") if system and version else ""


def _runtime(version: str) -> str:
    name = version.partition("://")[0]
    values = {item.value for item in RuntimeName}
    return name if name in values else ""


def _label_value(text: str) -> str:
    """Return the text, or nothing where it can be no label's value."""
    return text if _LABEL_VALUE.fullmatch(text) else ""
