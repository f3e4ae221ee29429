"""Rules for the server's writes of Nodes: labels, annotations and taints of its own."""

from typing import Final

from api.foreign.karpenter import DO_NOT_DISRUPT_ANNOTATION
from api.names import (
    AGENT_NOT_READY_TAINT,
    KEEP_UNTIL_ANNOTATION,
    POOL_NODE_LABEL_PREFIX,
    POOL_TAINTS_ANNOTATION,
    PRESENT_LABEL,
)
from manifests.install.policy_expressions import KEPT_BY_API_SERVER, same_but

_TAINTS: Final = "dyn({0}).spec.?taints.orValue([])"
_PLACES: Final = (
    f"(dyn({{0}}).metadata.?annotations[?'{POOL_TAINTS_ANNOTATION}'].orValue('')).split(',')"
)
_SYSTEM_TAINTS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Such taints close and drain nodes; a pool's taints may have any other key."""


def node_rules() -> list[dict[str, str]]:
    ours = f"k.startsWith('{POOL_NODE_LABEL_PREFIX}')"
    metadata = same_but("metadata", ("labels", "annotations", *KEPT_BY_API_SERVER))
    labels = same_but("metadata.?labels", (PRESENT_LABEL,), beside=ours)
    kept = f"[object, oldObject].exists(one, '{KEEP_UNTIL_ANNOTATION}' in one.metadata.?annotations.orValue({{}}))"
    annotations = same_but(
        "metadata.?annotations",
        (POOL_TAINTS_ANNOTATION, KEEP_UNTIL_ANNOTATION),
        beside=f"k == '{DO_NOT_DISRUPT_ANNOTATION}' && {kept}",
    )
    spec = same_but("spec", ("taints",))
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
                f"of a Node the GPU control plane writes labels with {POOL_NODE_LABEL_PREFIX},"
                f" the label {PRESENT_LABEL}, the annotations {POOL_TAINTS_ANNOTATION} and {KEEP_UNTIL_ANNOTATION}"
                f" (beside it {DO_NOT_DISRUPT_ANNOTATION}) and taints, and nothing else"
            ),
            "reason": "Forbidden",
        },
        {
            "expression": (
                "request.resource.resource != 'nodes'"
                f" || [object, oldObject].all(one, one.metadata.?labels[?'{PRESENT_LABEL}']"
                ".orValue('true') == 'true')"
                f" || object.metadata.?labels[?'{PRESENT_LABEL}']"
                f" == oldObject.metadata.?labels[?'{PRESENT_LABEL}']"
            ),
            "message": (
                f"the GPU control plane sets {PRESENT_LABEL} to true, and changes no other value"
            ),
            "reason": "Forbidden",
        },
        {
            "expression": (
                "request.resource.resource != 'nodes'"
                f" || ({new}.filter(t, !(t in {old}))"
                f" + {old}.filter(t, !(t in {new}) && t.key != '{AGENT_NOT_READY_TAINT}'))"
                f".all(t, (t.key + ':' + t.effect) in ({named}) && !({system}))"
            ),
            "message": (
                "the GPU control plane writes no taint but those that the annotation"
                f" {POOL_TAINTS_ANNOTATION} of the Node names, and none of the system's; it removes"
                f" {AGENT_NOT_READY_TAINT}"
            ),
            "reason": "Forbidden",
        },
    ]
