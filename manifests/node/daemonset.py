"""What the DaemonSets of our agents share: one program, one container, the directories of a node.

`manifests.node.agent` and `manifests.node.device_plugin` say what each of them may do beyond that.
"""

from typing import TYPE_CHECKING, Any, Final

from api.nodefiles.devices import RUN_DIRECTORY
from api.nodefiles.pluginproblems import PROBLEMS_DIRECTORY
from api.nodefiles.poolconfig import PLUGINS_DIRECTORY
from manifests import constants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json = dict[str, Any]

POD_RESOURCES_DIRECTORY: Final = "/var/lib/kubelet/pod-resources"
_PROBLEMS_PATH: Final = f"{RUN_DIRECTORY}/{PROBLEMS_DIRECTORY}"


def workload_labels(name: str, instance: str = "") -> dict[str, str]:
    """Return labels that select the pods of one workload and no others."""
    labels = {
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/part-of": constants.NAME,
        "app.kubernetes.io/component": constants.DEVICE_PLUGIN,
    }
    return labels | {"app.kubernetes.io/instance": instance} if instance else labels


def build_daemon_set(
    name: str,
    namespace: str,
    *,
    labels: dict[str, str],
    spec: Json,
    annotations: "Mapping[str, str] | None" = None,
    overlaps: bool = False,
) -> Json:
    """Return a DaemonSet; the annotations are its pods'.

    Where a new pod `overlaps` the one that it replaces, it is ready before that one goes.
    """
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
                "rollingUpdate": {
                    "maxSurge": "10%" if overlaps else 0,
                    "maxUnavailable": 0 if overlaps else "10%",
                },
            },
            "template": {"metadata": metadata, "spec": spec},
        },
    }


def build_pod_spec(container: Json, volumes: "Sequence[Json]") -> Json:
    """Return what is the same in all of the pods."""
    return {
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 10,
        "containers": [container],
        "volumes": list(volumes),
    }


def build_agent_container(
    name: str,
    image: str,
    arguments: "Sequence[str]",
    *,
    mounts: "Sequence[Json]",
    security: Json,
) -> Json:
    """Return our container: `gpu-control-plane agent` on its pod's node, as root."""
    probe = {"port": "probes", "scheme": "HTTP"}
    return {
        "name": name,
        "image": image,
        "command": ["gpu-control-plane"],
        "args": ["agent", "--node", "$(NODE_NAME)", *arguments],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "ports": [{"name": "probes", "containerPort": constants.AGENT_PORT, "protocol": "TCP"}],
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
        "resources": {
            "requests": {"cpu": "10m", "memory": "96Mi"},
            "limits": {"memory": "256Mi"},
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
    """Return the mount of kubelet's sockets of device plugins."""
    return {"name": "device-plugins", "mountPath": PLUGINS_DIRECTORY}


def plugins_volume() -> Json:
    """Return its volume."""
    return host_directory("device-plugins", PLUGINS_DIRECTORY)


def pod_resources_mount() -> Json:
    """Return the mount of kubelet's socket that tells who has what; a socket is no file to write."""
    return {"name": "pod-resources", "mountPath": POD_RESOURCES_DIRECTORY, "readOnly": True}


def pod_resources_volume() -> Json:
    """Return its volume: the directory, because a kubelet that starts makes another socket."""
    return host_directory("pod-resources", POD_RESOURCES_DIRECTORY)


def run_mount() -> Json:
    """Return the mount of what the node's agents tell each other (`api.nodefiles.devices`)."""
    return {"name": "run", "mountPath": RUN_DIRECTORY}


def run_volume() -> Json:
    """Return its volume."""
    return host_directory("run", RUN_DIRECTORY, "DirectoryOrCreate")


def problems_mount() -> Json:
    """Return the mount of where plugins tell their problems (`api.nodefiles.pluginproblems`).

    It lies below the run directory, which a plugin may read only: the volume makes the place of the mount.
    """
    return {"name": "problems", "mountPath": _PROBLEMS_PATH}


def problems_volume() -> Json:
    """Return its volume."""
    return host_directory("problems", _PROBLEMS_PATH, "DirectoryOrCreate")


def host_directory(name: str, path: str, kind: str = "Directory") -> Json:
    """Return the volume of a directory of the node."""
    return {"name": name, "hostPath": {"path": path, "type": kind}}
