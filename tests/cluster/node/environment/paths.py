"""Where the node of the tests keeps its things: fixed places, so that leftovers can be found.

A machine has one device-plugin directory, whatever kubelet's `--root-dir` says, so it has one node
of these tests at a time, and its directories need no unique names. They are short because the path
of a unix socket ends at 107 characters.
"""

import os
from pathlib import Path

NAME = "gpu-node-tests"
"""Names the cgroup, the CNI network and the lock too."""

STATE = Path("/var/lib") / NAME
RUNTIME = Path("/run") / NAME
OWNED = (STATE, RUNTIME)
"""All that lies below is the node's, and is deleted with it."""

CONTAINERD_ROOT = STATE / "containerd"
CONTAINERD_STATE = RUNTIME / "containerd"
CONTAINERD_SOCKET = RUNTIME / "containerd.sock"
CONTAINERD_CONFIGURATION = RUNTIME / "containerd.toml"
CNI_CONFIGURATION = RUNTIME / "cni"
CNI_LEASES = RUNTIME / "cni-leases"
CNI_RESULTS = Path("/var/lib/cni/results")
"""libcni's cache; its place cannot be chosen."""

KUBELET_ROOT = STATE / "kubelet"
POD_RESOURCES = KUBELET_ROOT / "pod-resources"
POD_LOGS = STATE / "pod-logs"
CONTAINER_LOGS = Path("/var/log/containers")
"""kubelet's links to the logs; their place cannot be chosen."""

KUBELET_DEFAULT_ROOT = Path("/var/lib/kubelet")
DEVICE_PLUGINS = KUBELET_DEFAULT_ROOT / "device-plugins"
"""kubelet's, whatever its `--root-dir`."""

LINKED = ("pod-resources", "pods", "plugins_registry")
"""Directories of kubelet that are linked at its default root, for DaemonSets that mount the usual places."""

CDI = RUNTIME / "cdi"
DEVICES = STATE / "dev"
"""Not below /run, which many machines mount `nodev`."""

RUN = RUNTIME / "gpu-control-plane"
USUAL_CDI = Path("/var/run/cdi")
"""Where a DaemonSet as it is shipped writes CDI specs; containerd reads this one too."""

USUAL = (
    USUAL_CDI,
    Path("/run/gpu-control-plane"),
    *(Path("/run/nvidia") / part for part in ("driver", "validations", "toolkit", "mps")),
    Path("/usr/local/nvidia"),
    Path("/usr/share/containers/oci/hooks.d"),
    Path("/var/lib/gkm"),
    # Of a driver's pod, which containerd or kubelet make:
    Path("/run/nvidia-fabricmanager"),
    Path("/run/nvidia-topologyd"),
    Path("/run/mellanox"),
    Path("/dev/log"),
)
"""What shipped DaemonSets make on a node; deleted at the end where it was not there before."""

NOTES = RUNTIME / "before.json"
"""How the machine was before: its sysctls, and which of `USUAL` were absent."""

DEVICE = os.makedev(1, 3)
"""The number of a file that stands for a device: /dev/null's, no driver's."""
