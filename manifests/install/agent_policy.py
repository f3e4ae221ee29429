"""A ValidatingAdmissionPolicy that restricts each agent to objects of its own node.

All node agents share one service account, and RBAC cannot divide its rights by node. The API server
adds the pod's node to the token that kubelet requests (Kubernetes 1.30; before that behind a
feature gate). An agent may therefore write only objects of the node in its token. A token stolen
from one node cannot speak for others: neither hide their devices nor invent devices, allocations or
kernel caches. Kernel caches themselves are written by users and the server only.
The detector, which runs on every node, reports the labels that number the node's devices, and
nothing else: nfd-master would set any other label on the Node too. gpu-feature-discovery, an operand
in NVIDIA's image, reports labels and devices of NVIDIA's names.

A token without a node, requested by hand and bound to no pod, may write none of these objects.
Events are not covered, and reading is RBAC's: every agent reads all pods.
"""

from typing import TYPE_CHECKING, Any, Final

from api.foreign.nodefeature import GPU_INSTANCES, NODE_NAME_LABEL
from api.names import GKM_GROUP, GROUP, VERSION
from api.vendor import NVIDIA_PREFIX
from inventory.discovery.labels import COUNT_LABEL, SLOT_PREFIX
from manifests import constants
from manifests.install.policy_expressions import (
    build_account_policy,
    cel_list,
    resource_rule,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

NODE_EXTRA: Final = "authentication.kubernetes.io/node-name"
"""Key in the extra fields of userInfo; github.com/kubernetes/enhancements, KEP 4193."""

_OWN: Final = f"request.userInfo.?extra[?'{NODE_EXTRA}'].orValue([])"
_IS_OWN_FEATURE: Final = (
    "one.metadata.name == variables.prefix + variables.own[0]"
    f" && one.metadata.?labels[?'{NODE_NAME_LABEL}'].orValue('') == variables.own[0]"
)
"""The name too: an object of a foreign name would keep that node's agent from writing at all."""
_IS_OWN: Final = (
    "request.resource.resource == 'nodefeatures'"
    f" ? {_IS_OWN_FEATURE} : one.metadata.name == variables.own[0]"
)


_CACHE_NODES: Final = ("gkmcachenodes", "clustergkmcachenodes")
_CACHES: Final = ("gkmcaches", "clustergkmcaches")


def _has_only(*, label: str, instances: "Sequence[str]" = ()) -> str:
    """Return an expression: of a NodeFeature all labels `k` satisfy `label`, and the features are these instances."""
    allowed = {"flags": (), "attributes": (), "instances": instances}
    features = (
        f"dyn(object).spec.?features.?{kind}.orValue({{}}).all(k, k in {cel_list(names)})"
        for kind, names in allowed.items()
    )
    labels = f"dyn(object).spec.?labels.orValue({{}}).all(k, {label})"
    return f"({' && '.join((labels, *features))})"


def build_agent_policy(namespace: str = constants.DEFAULT_NAMESPACE) -> list[dict[str, Any]]:
    agent, plugin, detector, discovery = (
        constants.service_account_username(namespace, name)
        for name in (
            constants.NODE_AGENT,
            constants.DEVICE_PLUGIN,
            constants.NODE_DETECTOR,
            constants.FEATURE_DISCOVERY_ACCOUNT,
        )
    )
    return build_account_policy(
        constants.AGENT_POLICY,
        (plugin, discovery, agent, detector),
        matched={
            "resourceRules": [
                resource_rule("nfd.k8s-sigs.io", VERSION, "nodefeatures"),
                resource_rule(
                    GROUP,
                    VERSION,
                    *("gpunodeinventories", "gpunodeinventories/status"),
                    operations=("CREATE", "UPDATE"),
                ),
                resource_rule(
                    GKM_GROUP,
                    VERSION,
                    *(
                        name
                        for kind in (*_CACHE_NODES, *_CACHES)
                        for name in (kind, f"{kind}/status")
                    ),
                ),
            ]
        },
        variables=[
            {"name": "own", "expression": _OWN},
            {
                "name": "isDetector",
                "expression": f"request.userInfo.username == '{detector}'",
            },
            {
                "name": "isDiscovery",
                "expression": f"request.userInfo.username == '{discovery}'",
            },
            {
                "name": "prefix",
                "expression": (
                    f"variables.isDetector ? '{constants.DETECTOR_FEATURE_PREFIX}'"
                    f" : variables.isDiscovery ? '{constants.DISCOVERY_FEATURE_PREFIX}'"
                    f" : '{constants.AGENT_FEATURE_PREFIX}'"
                ),
            },
        ],
        validations=[
            {
                "expression": "variables.own.size() == 1",
                "message": (
                    "the token names no node: agents write with the token of their pod,"
                    " as kubelet gives it to them"
                ),
                "reason": "Forbidden",
            },
            {
                "expression": f"!(request.resource.resource in {cel_list(_CACHES)})",
                "message": "an agent writes no kernel cache: which image is trusted is not up to a node",
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
                    " GPUNodeInventory and GKMCacheNodes have that name, its NodeFeature ' + variables.prefix"
                    f" + variables.own[0] + ' and the label {NODE_NAME_LABEL}'"
                ),
                "reason": "Forbidden",
            },
            {
                "expression": (
                    "!variables.isDetector || object == null || "
                    + _has_only(label=f"k == '{COUNT_LABEL}' || k.startsWith('{SLOT_PREFIX}')")
                ),
                "message": (
                    "the NodeFeature of a node detector has the labels"
                    f" {COUNT_LABEL} and {SLOT_PREFIX}*, and no features"
                ),
                "reason": "Forbidden",
            },
            {
                "expression": (
                    "!variables.isDiscovery || object == null || "
                    + _has_only(
                        label=f"k.startsWith('{NVIDIA_PREFIX}')",  # of gpu-feature-discovery: github.com/NVIDIA/k8s-device-plugin, internal/lm
                        instances=(GPU_INSTANCES,),
                    )
                ),
                "message": (
                    f"the NodeFeature of {constants.FEATURE_DISCOVERY} has labels {NVIDIA_PREFIX}*"
                    f" and instances {GPU_INSTANCES}, and no other features"
                ),
                "reason": "Forbidden",
            },
        ],
    )
