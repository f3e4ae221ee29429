"""The common part of the agents' DaemonSets: one program, one container, directories of the node.

`manifests.node.agent_daemonset` and `manifests.node.device_plugin` add their own privileges.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.driver_upgrade import AGENT_DEPLOY_LABEL, PAUSED_FOR_UPGRADE
from api.foreign.core import EVERY_TAINT
from api.nodefiles.node_devices_file import RUN_DIRECTORY
from api.nodefiles.pluginproblems import PROBLEMS_DIRECTORY
from api.nodefiles.poolconfig import PLUGINS_DIRECTORY
from api.well_known_labels import APP_COMPONENT_LABEL, OS_LABEL, PART_OF_LABEL
from manifests import constants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json = dict[str, Any]

KUBELET_DIRECTORY: Final = "/var/lib/kubelet"
POD_RESOURCES_DIRECTORY: Final = f"{KUBELET_DIRECTORY}/pod-resources"
_PROBLEMS_PATH: Final = f"{RUN_DIRECTORY}/{PROBLEMS_DIRECTORY}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletDirectories:
    """Directories of kubelet on the nodes; in containers they have kubelet's default paths."""

    root: str = KUBELET_DIRECTORY
    """kubelet's `--root-dir`."""

    @property
    def pod_resources(self) -> str:
        return f"{self.root}/pod-resources"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """Settings of the pods of a DaemonSet."""

    image_pull_policy: str = ""
    """Empty: the API server's default."""
    image_pull_secrets: tuple[str, ...] = ()
    requests: "Mapping[str, str]" = field(default_factory=lambda: {"cpu": "10m", "memory": "96Mi"})
    limits: "Mapping[str, str]" = field(default_factory=lambda: {"memory": "256Mi"})
    priority_class: str = "system-node-critical"


DEFAULT_DIRECTORIES: Final = KubeletDirectories()
AGENT_PODS: Final = PodSettings()
DETECTOR_PODS: Final = PodSettings(
    # It idles at 23 MiB; a report takes 50 MiB more for a second.
    requests={"cpu": "1m", "memory": "32Mi"},
    limits={"memory": "128Mi"},
)
LINUX: Final = {OS_LABEL: "linux"}
"""kubelet labels every node with its operating system."""


def workload_labels(name: str, instance: str = "") -> dict[str, str]:
    labels = {
        "app.kubernetes.io/name": name,
        PART_OF_LABEL: constants.NAME,
        APP_COMPONENT_LABEL: constants.DEVICE_PLUGIN,
    }
    return labels | {"app.kubernetes.io/instance": instance} if instance else labels


def without_upgrade() -> Json:
    """Return the requirement that keeps a pod, which holds the driver, off nodes whose driver is being replaced."""
    return {"key": AGENT_DEPLOY_LABEL, "operator": "NotIn", "values": [PAUSED_FOR_UPGRADE]}


def rolling_update(max_unavailable: int | str, *, overlaps: bool = False) -> Json:
    """Return how pods are replaced; with `overlaps`, a new pod is ready before the pod that it replaces ends."""
    return {
        "maxSurge": max_unavailable if overlaps else 0,
        "maxUnavailable": 0 if overlaps else max_unavailable,
    }


def build_daemon_set(
    name: str,
    namespace: str,
    *,
    labels: dict[str, str],
    spec: Json,
    rolling_update: Json,
    annotations: "Mapping[str, str] | None" = None,
) -> Json:
    """Return a DaemonSet; the annotations are those of its pods."""
    metadata: Json = {"labels": labels}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {
            "selector": {"matchLabels": dict(labels)},
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": rolling_update,
            },
            "template": {"metadata": metadata, "spec": spec},
        },
    }


def build_pod_spec(container: Json, volumes: "Sequence[Json]", settings: PodSettings) -> Json:
    """Return the pod spec that all of them share."""
    spec: Json = {
        "terminationGracePeriodSeconds": 10,
        "containers": [_with_settings(container, settings)],
        "tolerations": [msgspec.to_builtins(EVERY_TAINT)],
    }
    if volumes:
        spec["volumes"] = list(volumes)
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    return spec


def _with_settings(container: Json, settings: PodSettings) -> Json:
    resources = {"requests": dict(settings.requests), "limits": dict(settings.limits)}
    policy = {"imagePullPolicy": settings.image_pull_policy} if settings.image_pull_policy else {}
    return {**container, **policy, "resources": {k: v for k, v in resources.items() if v}}


def build_agent_container(
    name: str,
    image: str,
    arguments: "Sequence[str]",
    *,
    mounts: "Sequence[Json]",
    security: Json,
) -> Json:
    """Return the container: `gpu-control-plane agent` on its pod's node, as root."""
    probe = {"port": constants.PROBES_PORT_NAME, "scheme": "HTTP"}
    return {
        "name": name,
        "image": image,
        "command": ["gpu-control-plane"],
        "args": ["agent", "--node", "$(NODE_NAME)", *arguments],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "ports": [
            {
                "name": constants.PROBES_PORT_NAME,
                "containerPort": constants.AGENT_PORT,
                "protocol": "TCP",
            }
        ],
        "livenessProbe": {
            "httpGet": {"path": constants.LIVENESS_PATH, **probe},
            "periodSeconds": 20,
            "timeoutSeconds": 5,
        },
        "readinessProbe": {
            "httpGet": {"path": constants.READINESS_PATH, **probe},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
        },
        # kubelet's directories are root's.
        "securityContext": {
            **security,
            "readOnlyRootFilesystem": True,
            "runAsGroup": 0,
            "runAsUser": 0,
        },
        # Not below /dev, which may be the node's.
        "terminationMessagePath": "/run/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": list(mounts),
    }


def plugins_mount() -> Json:
    """Return the mount of kubelet's device plugin sockets."""
    return {"name": "device-plugins", "mountPath": PLUGINS_DIRECTORY}


def plugins_volume() -> Json:
    """Return its volume: kubelet has a constant for the directory, whatever its root is."""
    return host_directory("device-plugins", PLUGINS_DIRECTORY)


def pod_resources_mount() -> Json:
    """Return the mount of kubelet's PodResources socket, read-only."""
    return {"name": "pod-resources", "mountPath": POD_RESOURCES_DIRECTORY, "readOnly": True}


def pod_resources_volume(kubelet: KubeletDirectories) -> Json:
    """Return its volume: the directory, because kubelet creates a new socket when it starts."""
    return host_directory("pod-resources", kubelet.pod_resources)


def run_mount() -> Json:
    """Return the mount of the files that the node's agents share (`api.nodefiles.node_devices_file`)."""
    return {"name": "run", "mountPath": RUN_DIRECTORY}


def run_volume() -> Json:
    return host_directory("run", RUN_DIRECTORY, "DirectoryOrCreate")


def problems_mount() -> Json:
    """Return the mount of the plugins' problem files (`api.nodefiles.pluginproblems`).

    It lies below the run directory, which a plugin may only read: the volume creates the mount
    point.
    """
    return {"name": "problems", "mountPath": _PROBLEMS_PATH}


def problems_volume() -> Json:
    return host_directory("problems", _PROBLEMS_PATH, "DirectoryOrCreate")


def host_directory(name: str, path: str, kind: str = "Directory") -> Json:
    return {"name": name, "hostPath": {"path": path, "type": kind}}
