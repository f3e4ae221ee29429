"""The chart's pre-delete hook: a Job that runs `gpu-control-plane uninstall`, and its rights.

Helm deletes the server and its service account together with everything else, and nothing would
then remove the finalizers of pools and the labels of nodes. The Job runs before, under an account
of its own: the server's is restricted by `manifests.install.server_policy`. Helm creates these
objects for the hook and deletes them once it has succeeded, so they are part of no `render`.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from manifests import constants
from manifests.install.rbac import PolicyRule, build_rbac
from manifests.install.server_policy import OwnObjects
from manifests.install.uninstall_policy import build_uninstall_policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json = dict[str, Any]

NAME: Final = f"{constants.NAME}-uninstall"
"""Name of the Job, its service account, roles and bindings."""
TIMEOUT_S: Final = 120
"""Time limit, in seconds, of the command; Helm's own time-out is 300 s by default."""
_POLICY_FIRST: Final = "-20"
_ROLES_FIRST: Final = "-10"
"""Helm creates hooks in the order of their weights."""
_FINAL_EXIT_CODES: Final = (1, 2)
"""A refusal or a wrong flag: another pod would end the same way."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HookPod:
    """The parts of the Job's pod that installations set."""

    image: str
    image_pull_policy: str = ""
    fields: "Mapping[str, object]" = field(default_factory=dict)
    """Fields of the spec: imagePullSecrets, tolerations, nodeSelector, priorityClassName."""


def build_uninstall_hook(
    rules: "Sequence[PolicyRule]",
    *,
    namespaced_rules: "Sequence[PolicyRule]",
    own: OwnObjects,
    pod: HookPod,
    is_forced: bool = False,
) -> list[Json]:
    """Return the account's policy, the account, its roles and bindings, and the Job.

    `is_forced` uninstalls although pods use units or mount kernel caches.
    """
    policy = build_uninstall_policy(NAME, (*rules, *namespaced_rules), namespace=own.namespace)
    roles = build_rbac(rules, name=NAME, namespaced_rules=namespaced_rules, namespace=own.namespace)
    for objects, weight in ((policy, _POLICY_FIRST), (roles, _ROLES_FIRST)):
        for document in objects:
            document["metadata"]["annotations"] = _hook_annotations(weight)
    arguments = ["--force"] if is_forced else []
    return [*policy, *roles, _job(own, pod, arguments)]


def _job(own: OwnObjects, pod: HookPod, arguments: "Sequence[str]") -> Json:
    container: Json = {
        "name": "uninstall",
        "image": pod.image,
        **({"imagePullPolicy": pod.image_pull_policy} if pod.image_pull_policy else {}),
        "command": ["gpu-control-plane"],
        "args": [
            "uninstall",
            "--keep-applied",
            *("--namespace", own.namespace),
            *("--timeout", str(TIMEOUT_S)),
            *arguments,
        ],
        "resources": {
            "requests": {"cpu": "50m", "memory": "128Mi"},
            "limits": {"memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": NAME,
            "namespace": own.namespace,
            "labels": dict(constants.LABELS),
            "annotations": _hook_annotations("0"),
        },
        "spec": {
            "backoffLimit": 3,
            "activeDeadlineSeconds": 2 * TIMEOUT_S,
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"operator": "In", "values": list(_FINAL_EXIT_CODES)},
                    }
                ]
            },
            "template": {
                "metadata": {"labels": {"app.kubernetes.io/name": NAME}},
                "spec": {
                    "serviceAccountName": NAME,
                    "restartPolicy": "Never",
                    "securityContext": {
                        "runAsNonRoot": True,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                    **pod.fields,
                },
            },
        },
    }


def _hook_annotations(weight: str) -> dict[str, str]:
    return {
        "helm.sh/hook": "pre-delete",
        "helm.sh/hook-weight": weight,
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
    }
