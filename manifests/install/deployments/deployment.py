"""The common part of our Deployments: replicas, labels, restricted pod security, disruption budget."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from manifests import constants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from manifests.install.installation import Installation
    from manifests.install.values import ConsoleValues, SchedulerValues, ServerValues

Json = dict[str, Any]

USER: Final = 65532
"""User of the image; the group too, so that the files of mounted Secrets can be read."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """What the pods of a Deployment have of their own."""

    container: Json
    spec: Json
    """Fields besides the container."""
    annotations: "Mapping[str, str]"


def build_deployment(
    installation: "Installation",
    name: str,
    component: str,
    *,
    values: "ServerValues | SchedulerValues | ConsoleValues",
    pods: Pods,
) -> Json:
    labels = constants.component_labels(component)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": installation.metadata(name, labels),
        "spec": {
            "replicas": values.replicas,
            "selector": {"matchLabels": labels},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": {
                "metadata": {
                    "labels": dict(constants.LABELS) | labels,
                    "annotations": {**pods.annotations, **values.pod_annotations},
                },
                "spec": given(
                    imagePullSecrets=installation.pull_secrets,
                    nodeSelector=values.node_selector,
                    tolerations=list(values.tolerations),
                    affinity=values.affinity,
                    priorityClassName=values.priority_class_name,
                )
                | {
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": USER,
                        "runAsGroup": USER,
                        "fsGroup": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        pods.container
                        | {
                            "resources": given(
                                requests=values.resources.requests, limits=values.resources.limits
                            ),
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]},
                                "readOnlyRootFilesystem": True,
                            },
                            "terminationMessagePolicy": "FallbackToLogsOnError",
                        }
                    ],
                    **pods.spec,
                },
            },
        },
    }


def build_disruption_budget(installation: "Installation", name: str, component: str) -> Json:
    """Return a budget that lets a drain take one replica at a time, and any that is not ready."""
    labels = constants.component_labels(component)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": installation.metadata(name, labels),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": labels},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def secret_volume(name: str, secret: str, files: "Mapping[str, str]") -> Json:
    """Return a volume with some entries of a Secret, by key; a directory, which kubelet updates."""
    return {
        "name": name,
        "secret": {
            "secretName": secret,
            "defaultMode": 0o440,
            "items": [{"key": key, "path": path} for key, path in files.items()],
        },
    }


def read_only(name: str, path: str) -> Json:
    return {"name": name, "mountPath": path, "readOnly": True}


def https_probe(path: str, port: str, **times: int) -> Json:
    return {"httpGet": {"path": path, "port": port, "scheme": "HTTPS"}, **times}


def given(**fields: "Mapping[str, Any] | Sequence[Any] | str") -> Json:
    """Return the fields that are not empty."""
    return {key: value for key, value in fields.items() if value}
