"""The node agent: one pod on each GPU node, which detects, monitors and partitions devices.

If one agent serves all pools of a node (`PluginMode.PER_NODE`), it is the device plugin too; where kernel
caches are served, it is their CSI driver (`manifests.node.cache_mounts`). It is
privileged: NVML opens the devices' files, some of which appear while it runs; partitioning needs
the driver's capabilities; and only the processes of the whole node tell whether a device is idle. A
pool's own device plugin needs none of that (`manifests.node.device_plugin`); it reads the agent's
files.
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.names import NVIDIA_PRESENT_LABEL, PRESENT_LABEL
from manifests import constants
from manifests.node import daemonset
from manifests.node.cache_mounts import CACHE_ROLES
from manifests.node.device_plugin import PluginMode, signed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.meta import SelectorRequirement
    from manifests.node.device_plugin import WorkloadSettings

Json = dict[str, Any]

ROLES: Final = ("inventory", "health", "mig")
TELEMETRY_ROLE: Final = "telemetry"
PLUGIN_ROLE: Final = "device-plugin"
CDI_DIRECTORY: Final = "/var/run/cdi"
"""Directory of CDI specifications that last until the node restarts."""
HOST_ROOT: Final = "/host"


def build_node_agent(settings: "WorkloadSettings") -> list[Json]:
    """Return the DaemonSet; nothing if the agent is off."""
    if not settings.agent.is_enabled:
        return []
    roles = [*ROLES]
    if settings.agent.exports_metrics:
        roles.append(TELEMETRY_ROLE)
    if settings.mode is PluginMode.PER_NODE:
        roles.append(PLUGIN_ROLE)
    caches = settings.agent.caches
    if caches is not None:
        roles += CACHE_ROLES
    container = daemonset.build_agent_container(
        constants.NODE_AGENT,
        settings.agent_image,
        [
            "--namespace",
            settings.namespace,
            "--roles",
            ",".join(roles),
            *settings.allocation_arguments(),
            *settings.agent.xid_arguments(),
            "--driver-root",
            HOST_ROOT,
            *settings.agent.library_arguments(),
            *(caches.arguments(settings.kubelet) if caches else ()),
        ],
        mounts=[
            daemonset.plugins_mount(),
            daemonset.pod_resources_mount(),
            daemonset.run_mount(),
            {"name": "cdi", "mountPath": CDI_DIRECTORY},
            {"name": "dev", "mountPath": "/dev"},
            {
                "name": "host",
                "mountPath": HOST_ROOT,
                "readOnly": True,
                # A driver container mounts its root below /run/nvidia/driver whenever it starts.
                "mountPropagation": "HostToContainer",
            },
            *(caches.mounts(settings.kubelet) if caches else ()),
        ],
        security={"privileged": True},
    )
    volumes = [
        daemonset.plugins_volume(),
        daemonset.pod_resources_volume(settings.kubelet),
        daemonset.run_volume(),
        daemonset.host_directory("cdi", CDI_DIRECTORY, "DirectoryOrCreate"),
        # A privileged container has the device files of its start; these are those of now.
        daemonset.host_directory("dev", "/dev"),
        daemonset.host_directory("host", "/"),
        *(caches.volumes(settings.kubelet) if caches else ()),
    ]
    spec: Json = {
        "serviceAccountName": constants.NODE_AGENT,
        "affinity": {"nodeAffinity": on_nodes_with_devices(settings.agent.node_affinity)},
        # NVML names processes by the pids of the node.
        "hostPID": True,
        **daemonset.build_pod_spec(container, volumes, settings.agent.pods),
    }
    if settings.agent.node_selector:
        spec["nodeSelector"] = dict(sorted(settings.agent.node_selector.items()))
    labels = daemonset.workload_labels(constants.NODE_AGENT)
    body = daemonset.build_daemon_set(
        constants.NODE_AGENT,
        settings.namespace,
        labels=labels,
        spec=spec,
        rolling_update=daemonset.rolling_update(settings.max_unavailable),
    )
    return [signed(body)]


def on_nodes_with_devices(further: "Sequence[SelectorRequirement]") -> Json:
    """Return the affinity to nodes with the label of either source; our label set to `false` wins.

    Pods with it hold the driver, so they leave a node while its driver is upgraded.
    """
    more = [daemonset.without_upgrade(), *(msgspec.to_builtins(item) for item in further)]
    ours = {"key": PRESENT_LABEL, "operator": "In", "values": ["true"]}
    nvidias = {"key": NVIDIA_PRESENT_LABEL, "operator": "In", "values": ["true"]}
    kept_away = {"key": PRESENT_LABEL, "operator": "NotIn", "values": ["false"]}
    terms = [[ours], [nvidias, kept_away]]
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [*term, *more]} for term in terms]
        }
    }
