"""A ValidatingAdmissionPolicy that restricts the account of the chart's pre-delete hook.

Names of some objects are known only once a survey has read them, after the rights were rendered. So RBAC grants the
deletion of every object of a kind, and this policy leaves those of the control plane. What the account may patch
without a name, it may only clean: finalizers of objects, and what the control plane wrote to Nodes.
"""

from typing import TYPE_CHECKING, Any, Final

from api.names import COMPONENT_LABEL, OPERAND_LABEL, SCALE_SIGNAL
from api.well_known_labels import PART_OF_LABEL
from manifests import constants
from manifests.install.policy_expressions import (
    KEPT_BY_API_SERVER,
    build_account_policy,
    resource_rule,
    unchanged_except,
)
from manifests.install.rbac import merge_rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from manifests.install.rbac import PolicyRule

_LABEL: Final = "oldObject.metadata.?labels[?'{0}']"
_FEATURE_NAMES: Final = " || ".join(
    f"oldObject.metadata.name.startsWith('{prefix}')"
    for prefix in (constants.AGENT_FEATURE_PREFIX, constants.DETECTOR_FEATURE_PREFIX)
)
_DELETES_OURS: Final = {
    "expression": (
        "request.operation != 'DELETE'"
        f" || (request.resource.resource == 'pods' ? {_LABEL.format(COMPONENT_LABEL)}.orValue('') == '{SCALE_SIGNAL}'"
        f" : request.resource.resource == 'nodefeatures' ? ({_FEATURE_NAMES})"
        f" : {_LABEL.format(PART_OF_LABEL)}.orValue('') == '{constants.LABELS[PART_OF_LABEL]}'"
        f" || {_LABEL.format(OPERAND_LABEL)}.hasValue())"
    ),
    "message": (
        f"an uninstall deletes objects with the label {PART_OF_LABEL}: {constants.LABELS[PART_OF_LABEL]} or"
        f" {OPERAND_LABEL}, signals, NodeFeatures of agents, and objects of fixed names"
    ),
    "reason": "Forbidden",
}
_FINALIZES: Final = {
    "expression": (
        "request.operation != 'UPDATE' || request.resource.resource == 'nodes'"
        f" || {unchanged_except('metadata', ('finalizers', *KEPT_BY_API_SERVER))} && {unchanged_except('?spec', ())}"
    ),
    "message": "an uninstall removes finalizers, and changes nothing else of objects",
    "reason": "Forbidden",
}


def _adds_and_changes_none(path: str) -> str:
    """Return an expression: an update adds no entry to a map and changes none."""
    return f"dyn(object).{path}.orValue({{}}).all(k, dyn(oldObject).{path}[?k] == dyn(object).{path}[?k])"


_TAINTS: Final = "dyn({0}).?spec.?taints.orValue([])"
_CORDON: Final = "dyn({0}).spec.?unschedulable.orValue(false)"
_CLEANS_NODES: Final = {
    "expression": (
        f"request.resource.resource != 'nodes' || {unchanged_except('metadata', ('labels', 'annotations', *KEPT_BY_API_SERVER))}"
        f" && {_adds_and_changes_none('metadata.?labels')} && {_adds_and_changes_none('metadata.?annotations')}"
        f" && {unchanged_except('spec', ('taints', 'unschedulable'))}"
        f" && {_TAINTS.format('object')}.all(t, t in {_TAINTS.format('oldObject')})"
        f" && (!{_CORDON.format('object')} || {_CORDON.format('oldObject')})"
    ),
    "message": "an uninstall removes labels, annotations, taints and cordons of Nodes, and adds none",
    "reason": "Forbidden",
}


def build_uninstall_policy(
    name: str, rules: "Sequence[PolicyRule]", *, namespace: str
) -> list[dict[str, Any]]:
    """Return the policy for the account of this name, about each right of the rules that no names limit."""
    return build_account_policy(
        name,
        [constants.service_account_username(namespace, name)],
        matched={"resourceRules": list(_rules_without_names(rules))},
        validations=[_DELETES_OURS, _FINALIZES, _CLEANS_NODES],
    )


def _rules_without_names(rules: "Sequence[PolicyRule]") -> "Iterator[dict[str, Any]]":
    for rule in merge_rules(rule for rule in rules if not rule.names):
        verbs = {"delete": "DELETE", "patch": "UPDATE"}
        operations = [operation for verb, operation in verbs.items() if verb in rule["verbs"]]
        # Replicas are all that a scale has.
        resources = [item for item in rule["resources"] if not item.endswith("/scale")]
        if operations and resources:
            yield resource_rule(*rule["apiGroups"], "*", *resources, operations=operations)
