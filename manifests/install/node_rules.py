"""Rules for the server's writes of Nodes: labels, annotations and taints of its own."""

from typing import Final

from api import names
from api.foreign.karpenter import DO_NOT_DISRUPT_ANNOTATION
from manifests.install import node_software_policy as software
from manifests.install.policy_expressions import KEPT_BY_API_SERVER, unchanged_except

_TAINTS: Final = "dyn({0}).?spec.?taints.orValue([])"
_PLACES: Final = (
    f"(dyn({{0}}).metadata.?annotations[?'{names.POOL_TAINTS_ANNOTATION}'].orValue('')).split(',')"
)
_SYSTEM_TAINTS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Such taints close and drain nodes; a pool's taints may have any other key."""


def node_rules(*, with_software: bool = False) -> list[dict[str, str]]:
    """Return the rules; `with_software` those for ClusterPolicies, and for upgrades of their drivers, come on top."""
    ours = f"k.startsWith('{names.POOL_NODE_LABEL_PREFIX}')"
    if with_software:
        ours += f" || {software.DEPLOY_LABEL}"
    metadata = unchanged_except("metadata", ("labels", "annotations", *KEPT_BY_API_SERVER))
    further_labels = software.NODE_LABELS if with_software else ()
    further_annotations = software.NODE_ANNOTATIONS if with_software else ()
    further_fields = software.NODE_FIELDS if with_software else ()
    labels = unchanged_except(
        "metadata.?labels", (names.PRESENT_LABEL, names.REBOOT_LABEL, *further_labels), beside=ours
    )
    kept = f"[object, oldObject].exists(one, '{names.KEEP_UNTIL_ANNOTATION}' in one.metadata.?annotations.orValue({{}}))"
    annotations = unchanged_except(
        "metadata.?annotations",
        (names.POOL_TAINTS_ANNOTATION, names.KEEP_UNTIL_ANNOTATION, *further_annotations),
        beside=f"k == '{DO_NOT_DISRUPT_ANNOTATION}' && {kept}",
    )
    further_text = (
        "what a ClusterPolicy's operands and upgrades of its driver need, " if with_software else ""
    )
    reboots = f"[object, oldObject].exists(one, '{names.REBOOT_LABEL}' in one.metadata.?labels.orValue({{}}))"
    spec = unchanged_except(
        "spec", ("taints", *further_fields), beside=f"k == 'unschedulable' && {reboots}"
    )
    new, old = _TAINTS.format("object"), _TAINTS.format("oldObject")
    named = f"{_PLACES.format('object')} + {_PLACES.format('oldObject')}"
    system = " || ".join(f"t.key.startsWith('{prefix}')" for prefix in _SYSTEM_TAINTS)
    return [
        {
            "expression": (
                "request.resource.resource != 'nodes'"
                f" || {metadata} && {labels} && {annotations} && {spec}"
            ),
            "message": (
                f"of a Node the GPU control plane writes labels with {names.POOL_NODE_LABEL_PREFIX},"
                f" the labels {names.PRESENT_LABEL} and {names.REBOOT_LABEL} (with it spec.unschedulable), the annotations {names.POOL_TAINTS_ANNOTATION} and {names.KEEP_UNTIL_ANNOTATION}"
                f" (beside it {DO_NOT_DISRUPT_ANNOTATION}) and taints, {further_text}and nothing else"
            ),
            "reason": "Forbidden",
        },
        {
            "expression": (
                "request.resource.resource != 'nodes'"
                f" || [object, oldObject].all(one, one.metadata.?labels[?'{names.PRESENT_LABEL}']"
                ".orValue('true') == 'true')"
                f" || object.metadata.?labels[?'{names.PRESENT_LABEL}']"
                f" == oldObject.metadata.?labels[?'{names.PRESENT_LABEL}']"
            ),
            "message": (
                f"the GPU control plane sets {names.PRESENT_LABEL} to true, and changes no other value"
            ),
            "reason": "Forbidden",
        },
        {
            "expression": (
                "request.resource.resource != 'nodes'"
                f" || ({new}.filter(t, !(t in {old}))"
                f" + {old}.filter(t, !(t in {new}) && t.key != '{names.AGENT_NOT_READY_TAINT}'))"
                f".all(t, (t.key + ':' + t.effect) in ({named}) && !({system}))"
            ),
            "message": (
                "the GPU control plane writes no taint but those that the annotation"
                f" {names.POOL_TAINTS_ANNOTATION} of the Node names, and none of the system's; it removes"
                f" {names.AGENT_NOT_READY_TAINT}"
            ),
            "reason": "Forbidden",
        },
    ]
