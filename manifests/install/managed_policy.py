"""A ValidatingAdmissionPolicy for fields that the control plane alone writes.

Its controllers decide on what stands there: a changed allocation in a GPUPool's status starts or ends a maintenance
under running pods, and a finalizer that is gone lets the pool go before its traces. RBAC cannot tell the fields of one
object apart, and it does not restrict administrators. Refused are the status, our finalizers, and the marks of the
inventory of our kinds; the terms of leadership; and on Nodes our labels, annotations and taints, where a write changes
them. A Node's kubelet and the accounts that register Nodes write labels and taints of new Nodes, so these are exempt
for Nodes. A break-glass group is exempt everywhere: who may impersonate can take it for one command.
"""

from typing import TYPE_CHECKING, Any, Final

from api import names
from manifests import constants
from manifests.install import uninstall_hook
from manifests.install.policy_expressions import build_policy, cel_list, resource_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

_TERMS: Final = "gpucontrolplaneterms"
_IS_NODE: Final = "request.resource.resource == 'nodes'"
_IS_OWN_KUBELET: Final = (
    f"'{names.NODES_GROUP}' in request.userInfo.?groups.orValue([])"
    " && request.userInfo.username == 'system:node:' + object.metadata.name"
)
_NODE_LABELS: Final = (
    f"k.startsWith('{names.POOL_NODE_LABEL_PREFIX}')"
    f" || k in {cel_list((names.REBOOT_LABEL, names.SCALE_REQUEST_LABEL))}"
)
_NODE_ANNOTATIONS: Final = (
    names.POOL_TAINTS_ANNOTATION,
    names.DEPLOY_LABELS_ANNOTATION,
    names.KEEP_UNTIL_ANNOTATION,
)
_NEW, _OLD = "dyn(object)", "variables.before"


def _changed_keys(path: str, managed: str) -> str:
    """Return an expression: the keys `k` of a map that are managed and that the write changes."""
    new, old = (f"{item}.{path}.orValue({{}})" for item in (_NEW, _OLD))
    return (
        f"({new}.filter(k, {new}[?k] != {old}[?k]) + {old}.filter(k, !(k in {new})))"
        f".filter(k, {managed})"
    )


def _changed_taints() -> str:
    """Return an expression: `key:effect` of our taints that the write adds, changes or removes."""
    new, old = (f"{item}.?spec.?taints.orValue([])" for item in (_NEW, _OLD))
    places = f"{_OLD}.?metadata.?annotations[?'{names.POOL_TAINTS_ANNOTATION}'].orValue('')"
    return (
        f"({new}.filter(t, !(t in {old})) + {old}.filter(t, !(t in {new})))"
        f".filter(t, t.key == '{names.AGENT_NOT_READY_TAINT}' || (t.key + ':' + t.effect) in {places}.split(','))"
        ".map(t, 'taint ' + t.key + ':' + t.effect)"
    )


def build_managed_policy(
    usernames: "Sequence[str]",
    *,
    namespace: str,
    node_writers: "Sequence[str]" = constants.NODE_WRITERS,
    break_glass_group: str = constants.BREAK_GLASS_GROUP,
) -> list[dict[str, Any]]:
    """Return the policy and its binding.

    `usernames` are those of the server; the accounts of its agents and of an uninstall are known by the namespace.
    """
    agents = (constants.NODE_AGENT, uninstall_hook.NAME)
    ours = [*usernames, *(constants.service_account_username(namespace, name) for name in agents)]
    finalizers, old_finalizers = (
        f"{item}.?metadata.?finalizers.orValue([]).filter(f, f.startsWith('{names.GROUP}/'))"
        for item in (_NEW, _OLD)
    )
    device_key = f"k == '{names.DEVICE_NODE_LABEL}'"  # of the label and of the annotation
    in_emergency = (
        f"where nothing else helps, --as-group={break_glass_group} writes it"
        " (docs/operations.md#fields-that-the-control-plane-writes)"
    )
    return build_policy(
        constants.MANAGED_POLICY,
        matched={
            "resourceRules": [
                resource_rule("", "v1", "nodes", "nodes/status", operations=("CREATE", "UPDATE")),
                resource_rule(names.GROUP, "*", "*", "*/status", operations=("UPDATE",)),
            ]
        },
        conditions={
            "is-of-others": (
                f"!(request.userInfo.username in {cel_list(ours)}"
                f" || '{break_glass_group}' in request.userInfo.?groups.orValue([]))"
            ),
            "registers-no-node": (
                f"!({_IS_NODE} && ({_IS_OWN_KUBELET}"
                f" || request.userInfo.username in {cel_list(node_writers)}))"
            ),
        },
        variables={
            "before": "oldObject == null ? dyn({}) : dyn(oldObject)",
            "keys": (
                f"{_IS_NODE} ? {_changed_keys('?metadata.?labels', _NODE_LABELS)}"
                f" + {_changed_keys('?metadata.?annotations', f'k in {cel_list(_NODE_ANNOTATIONS)}')}"
                f" + {_changed_taints()}"
                " : request.resource.resource == 'gpudevices' ?"
                f" {_changed_keys('?metadata.?labels', device_key)}"
                f" + {_changed_keys('?metadata.?annotations', device_key)} : []"
            ),
        },
        validations=[
            {
                "expression": (
                    f"{_IS_NODE} || request.?subResource.orValue('') != 'status'"
                    f" || {_NEW}.?status == {_OLD}.?status"
                ),
                "messageExpression": (
                    "'only the GPU control plane writes the status of ' + request.resource.resource +"
                    " ': it follows from spec, annotations and what nodes report, so change those; "
                    f"{in_emergency}'"
                ),
                "reason": "Forbidden",
            },
            {
                "expression": f"{_IS_NODE} || {finalizers} == {old_finalizers}",
                "message": (
                    f"only the GPU control plane writes finalizers {names.GROUP}/*: it removes them once pods, nodes and"
                    f" devices have no trace of the object, and conditions say what is left; {in_emergency}"
                ),
                "reason": "Forbidden",
            },
            {
                "expression": (
                    f"request.resource.resource != '{_TERMS}' || {_NEW}.?spec == {_OLD}.?spec"
                ),
                "message": (
                    "only the GPU control plane writes its term of leadership, without which no pod is bound: delete"
                    f" the leader's pod to have another lead; {in_emergency}"
                ),
                "reason": "Forbidden",
            },
            {
                "expression": "variables.keys.size() == 0",
                "messageExpression": (
                    "'only the GPU control plane writes ' + variables.keys.join(', ') + ' of ' + object.metadata.name +"
                    f" ': change the GPUPool (nodeSelector, scheduling.taints) or the annotation {names.ASSIGNMENT_ANNOTATION}"
                    f" of a GPUDevice, or label the Node {names.MANAGED_LABEL}=false; an account that registers Nodes"
                    f" belongs to managedFields.nodeWriters; {in_emergency}'"
                ),
                "reason": "Forbidden",
            },
        ],
    )
