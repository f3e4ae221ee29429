"""A ValidatingAdmissionPolicy for pods: protected fields, and the writes of the server.

The annotations and the label of the control plane are protected. So is the end of a pool pod, which
only its node may report: afterwards its devices are allocated to others, even if containers still
run. The profile of our kube-scheduler is for pods of pools. The API server evaluates the policy, so
it holds while the control plane is down. It covers every path by which metadata of a pod can be
written: the pod, its subresources, and both ways to create a Binding, whose annotations are merged
into the pod without another admission.

A policy sees a pod after mutation, under the name of the user who creates it. Values that the
mutating webhook writes can therefore not be forbidden on CREATE; the webhook overwrites or strips
those of the user (`manifests.install.webhooks.POOL_POD_EXPRESSION` matches every such pod). In the
excluded namespaces, where no webhook is called, the annotation is forbidden, and with it every pool
pod. The same holds for mirror pods, in every namespace.

A policy is evaluated for every write of a pod's status in the cluster, which is expensive: for its
conditions, its validations, their messages and its audit annotations, kube-apiserver (1.36)
converts the request and both objects again. All rules are therefore repeated in the match
condition, and a request that breaks none costs one conversion out of four.
"""

import re
from typing import TYPE_CHECKING, Any, Final

from api.names import (
    DEFAULT_SCHEDULER_NAME,
    ENGINE_ANNOTATIONS,
    NODES_GROUP,
    POOL_LABEL,
    RESERVATION_ANNOTATION,
    RESOURCE_PREFIX,
)
from manifests import constants
from manifests.install.policy_expressions import cel_list
from manifests.install.server_policy import own_pod_rules
from manifests.install.webhooks import MIRRORED_EXPRESSION, NAMES_POOL_EXPRESSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_GUARDED_BESIDE_WEBHOOK: Final = [k for k in ENGINE_ANNOTATIONS if k != RESERVATION_ANNOTATION]

_POD_END_REPORTERS: Final = (
    # Each controller with an account of its own, or all of them with one.
    constants.service_account_username("kube-system", "pod-garbage-collector"),
    "system:kube-controller-manager",
)
"""Besides nodes. In Kubernetes 1.36 no other controller writes a terminal phase: PodGC does, before it
deletes pods whose node is gone or out of service."""

_VARIABLES: Final = {
    "isNewPod": "request.operation == 'CREATE' && request.kind.kind == 'Pod'",
    "annotations": "object.metadata.?annotations.orValue({})",
    "oldAnnotations": "oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})",
    "label": f"object.metadata.?labels[?'{POOL_LABEL}'].orValue('')",
    "oldLabel": (
        f"oldObject == null ? '' : oldObject.metadata.?labels[?'{POOL_LABEL}'].orValue('')"
    ),
    "forged": (
        f"(variables.isNewPod && !variables.isExcluded && !{MIRRORED_EXPRESSION}"
        f" ? {cel_list(_GUARDED_BESIDE_WEBHOOK)} : {cel_list(ENGINE_ANNOTATIONS)})"
        ".filter(k, variables.annotations[?k] != variables.oldAnnotations[?k])"
    ),
    "namesPool": NAMES_POOL_EXPRESSION,
    "phase": "dyn(object).?status.?phase.orValue('')",
    "ends": (
        "variables.phase in ['Succeeded', 'Failed']"
        " && variables.phase != dyn(oldObject).?status.?phase.orValue('')"
    ),
    "maySayHowPodsEnd": (
        f"'{NODES_GROUP}' in request.userInfo.?groups.orValue([])"
        f" || request.userInfo.username in {cel_list(_POD_END_REPORTERS)}"
    ),
    "isAdmitted": (f"'{RESERVATION_ANNOTATION}' in variables.annotations || {MIRRORED_EXPRESSION}"),
}
"""Evaluated when used; `namesPool` and `isAdmitted` are for new pods only, `ends` for stored ones."""

_VARIABLE: Final = re.compile(r"variables\.(\w+)")

_FOR_OTHERS: Final = (
    {
        "expression": "variables.forged.size() == 0",
        "messageExpression": (
            "'only the GPU control plane may set or change '"
            " + variables.forged.join(', ') + ' on a pod: leave it out'"
        ),
        "reason": "Forbidden",
    },
    {
        "expression": (
            "variables.isNewPod ? (variables.label == '' || variables.namesPool)"
            " : variables.label == variables.oldLabel"
        ),
        "message": (
            f"only the GPU control plane may set or change the label {POOL_LABEL} on a pod:"
            f" leave it out; a pod gets it by asking for {RESOURCE_PREFIX}<pool>"
        ),
        "reason": "Forbidden",
    },
    {
        "expression": "!variables.isNewPod || !variables.namesPool || variables.isAdmitted",
        "messageExpression": (
            "variables.isExcluded"
            " ? 'no pod of namespace ' + request.namespace + ' can ask for a GPU pool:"
            " create it in another namespace'"
            " : 'the pod asks for a GPU pool and did not pass the GPU control plane;"
            f" is the webhook configuration {constants.MUTATING_CONFIGURATION} in place, and the last to add the resource?'"
        ),
        "reason": "Forbidden",
    },
    {
        "expression": ("variables.oldLabel == '' || !variables.ends || variables.maySayHowPodsEnd"),
        "message": (
            "only its node and the pod garbage collector may say that a pod of a GPU pool has ended:"
            " its devices would be given to others while its containers run; delete the pod instead"
        ),
        "reason": "Forbidden",
    },
    {
        "expression": (
            "!variables.isNewPod"
            f" || dyn(object).spec.?schedulerName.orValue('') != '{DEFAULT_SCHEDULER_NAME}'"
            " || variables.namesPool"
        ),
        "message": (
            f"the scheduler {DEFAULT_SCHEDULER_NAME} is for pods of GPU pools: leave out schedulerName,"
            f" or ask for {RESOURCE_PREFIX}<pool>"
        ),
        "reason": "Forbidden",
    },
)
"""Rules for every user except the control plane."""


def build_annotation_policy(
    engine_usernames: "Sequence[str]",
    *,
    server: str | None = None,
    excluded_namespaces: "Sequence[str]" = constants.DEFAULT_EXCLUDED_NAMESPACES,
) -> list[dict[str, Any]]:
    """Return the policy and its binding; only the given users may write the protected fields.

    `server` is the user name of the server's service account, whose writes to pods are restricted.
    `excluded_namespaces` are those of the webhook configurations.

    Raises:
        ValueError: there is no user, or one whose name could not stand in an expression.
    """
    if not engine_usernames:
        raise ValueError("the policy needs the user name of the control plane, or it locks it out")
    for username in engine_usernames:
        if not username or not username.isprintable() or set(username) & set("'\\"):
            raise ValueError(f"{username!r} cannot be used as a user name in the policy")
    excluded = list(dict.fromkeys(excluded_namespaces))
    variables = {
        "isExcluded": f"request.namespace in {cel_list(excluded)}",
        "isOurs": f"request.userInfo.username in {cel_list(sorted(set(engine_usernames)))}",
        **_VARIABLES,
    }
    validations = [_exempting("variables.isOurs", rule) for rule in _FOR_OTHERS]
    if server is not None:
        others = f"request.userInfo.username != '{server}'"
        validations += [_exempting(others, rule) for rule in own_pod_rules(excluded)]
    return [_policy(variables, validations), _binding()]


def _exempting(exempt: str, rule: "Mapping[str, str]") -> dict[str, str]:
    return {**rule, "expression": f"{exempt} || ({rule['expression']})"}


def _policy(
    variables: "Mapping[str, str]", validations: "Sequence[Mapping[str, str]]"
) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": constants.ANNOTATION_POLICY, "labels": dict(constants.LABELS)},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "scope": "Namespaced",
                        # `bindings` is a resource of its own, which `pods/*` does not cover.
                        "resources": [
                            "pods",
                            "pods/status",
                            "pods/ephemeralcontainers",
                            "pods/resize",
                            "pods/binding",
                            "bindings",
                        ],
                    }
                ],
            },
            "matchConditions": [
                {
                    "name": "breaks-a-rule",
                    "expression": f"!({_all_rules(variables, validations)})",
                }
            ],
            "variables": [
                {"name": name, "expression": expression} for name, expression in variables.items()
            ],
            "validations": [dict(validation) for validation in validations],
        },
    }


def _all_rules(variables: "Mapping[str, str]", validations: "Sequence[Mapping[str, str]]") -> str:
    """Return the conjunction of all validations; a match condition cannot use variables."""

    def spelled_out(expression: str) -> str:
        return _VARIABLE.sub(lambda found: f"({spelled_out(variables[found[1]])})", expression)

    return " && ".join(f"({spelled_out(rule['expression'])})" for rule in validations)


def _binding() -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": constants.ANNOTATION_POLICY, "labels": dict(constants.LABELS)},
        "spec": {"policyName": constants.ANNOTATION_POLICY, "validationActions": ["Deny"]},
    }
