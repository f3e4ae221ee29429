"""A ValidatingAdmissionPolicy that holds our agents to the node that each of them runs on.

All node agents have one service account, whose rights RBAC cannot divide by node. The token of a pod names
the pod's node, since the API server puts it there when kubelet asks for the token (Kubernetes 1.30; before
that behind a gate). So an agent writes of the node in its token, and whoever took a token off one node
cannot speak for others: neither hide their cards nor make up cards or what pods hold.

A token that names no node writes nothing of this: one that was asked for by hand and is bound to no pod.
Events are not concerned, and reading is RBAC's: every agent reads all pods.
"""

from typing import Any, Final

from api.foreign.nodefeature import NODE_NAME_LABEL
from api.names import GROUP
from manifests import constants

NODE_EXTRA: Final = "authentication.kubernetes.io/node-name"
"""Of userInfo; github.com/kubernetes/enhancements, KEP 4193."""

_OWN: Final = f"request.userInfo.?extra[?'{NODE_EXTRA}'].orValue([])"
_IS_OWN_FEATURE: Final = (
    f"one.metadata.name == '{constants.AGENT_FEATURE_PREFIX}' + variables.own[0]"
    f" && one.metadata.?labels[?'{NODE_NAME_LABEL}'].orValue('') == variables.own[0]"
)
"""The name too: a foreign name that is taken would keep that node's agent from writing at all."""
_IS_OWN: Final = (
    "request.resource.resource == 'nodefeatures'"
    f" ? {_IS_OWN_FEATURE} : one.metadata.name == variables.own[0]"
)


def build_agent_policy(namespace: str = constants.DEFAULT_NAMESPACE) -> list[dict[str, Any]]:
    """Return the policy and its binding for the agents' service accounts of a namespace."""
    accounts = [
        constants.service_account_username(namespace, name)
        for name in (constants.DEVICE_PLUGIN, constants.NODE_AGENT)
    ]
    metadata = {"name": constants.AGENT_POLICY, "labels": dict(constants.LABELS)}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "resourceRules": [
                    _rule("nfd.k8s-sigs.io", "nodefeatures"),
                    _rule(GROUP, "gpunodeinventories", "gpunodeinventories/status"),
                ],
            },
            "matchConditions": [
                {
                    "name": "is-an-agent",
                    "expression": f"request.userInfo.username in {sorted(accounts)!r}",
                }
            ],
            "variables": [{"name": "own", "expression": _OWN}],
            "validations": [
                {
                    "expression": "variables.own.size() == 1",
                    "message": (
                        "the token names no node: agents write with the token of their pod,"
                        " as kubelet gives it to them"
                    ),
                    "reason": "Forbidden",
                },
                {
                    # An update may neither take over a foreign object nor give an own one away.
                    "expression": (
                        "variables.own.size() != 1"
                        f" || [object, oldObject].filter(one, one != null).all(one, {_IS_OWN})"
                    ),
                    "messageExpression": (
                        "'the agent of node ' + variables.own[0] + ' writes no other node: its"
                        f" GPUNodeInventory has that name, its NodeFeature {constants.AGENT_FEATURE_PREFIX}'"
                        f" + variables.own[0] + ' and the label {NODE_NAME_LABEL}'"
                    ),
                    "reason": "Forbidden",
                },
            ],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": constants.AGENT_POLICY, "validationActions": ["Deny"]},
    }
    return [policy, binding]


def _rule(group: str, *resources: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE", "UPDATE"],
        "scope": "*",
        "resources": list(resources),
    }
