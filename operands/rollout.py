"""Roll-outs of operands' DaemonSets, from what the API server shows. Pure."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from api.names import ADOPTED_ANNOTATION

Json = Mapping[str, Any]
Propagation = Literal["Foreground", "Orphan"]
ON_DELETE: Final = {"type": "OnDelete"}


def selector_migration_step(body: "Json", found: "Json") -> "Json | Propagation":
    """Return what to write over a DaemonSet that is there, or how to delete it: nobody can change its selector.

    Where that differs, its pods get the labels of both selectors first, node by node. Then the DaemonSet goes without its
    pods, which the next one adopts. Pods that cannot have the labels of both go with it.
    """
    old, new = found["spec"]["selector"], body["spec"]["selector"]
    if old == new:
        return body
    template, had = body["spec"]["template"], found["spec"]["template"]["metadata"]["labels"]
    labels, kept = template["metadata"]["labels"], old.get("matchLabels", {})
    if old.get("matchExpressions") or any(labels.get(key, kept[key]) != kept[key] for key in kept):
        return "Foreground"
    if new["matchLabels"].items() <= had.items() and not unready_reason(found):
        return "Orphan"
    metadata = {**template["metadata"], "labels": {**labels, **kept}}
    spec = {**body["spec"], "selector": old, "template": {**template, "metadata": metadata}}
    return {**body, "spec": spec}


def is_held(live: "Json") -> bool:
    """Say whether pods that NVIDIA's GPU Operator made stay until the drivers of their nodes are upgraded."""
    return bool((live["metadata"].get("annotations") or {}).get(ADOPTED_ANNOTATION))


def is_rolled_out(live: "Json") -> bool:
    """Say whether all nodes that it selects run an available pod of its last template, whatever its strategy is."""
    return not unready_reason({**live, "spec": {}})


def unready_reason(live: Json) -> str:
    """Return why a DaemonSet is not ready yet; empty where all nodes that it selects run an available pod of its last template.

    Of a DaemonSet whose pods are replaced on deletion the template does not count.
    """
    status = live.get("status") or {}
    if status.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return "its last change is not observed yet"
    desired = status.get("desiredNumberScheduled", 0)
    is_on_delete = live["spec"].get("updateStrategy", {}).get("type") == "OnDelete"
    for field, text in (
        ("currentNumberScheduled", "have a pod"),
        ("updatedNumberScheduled", "have a pod of the last template"),
        ("numberAvailable", "have an available pod"),
    ):
        if field == "updatedNumberScheduled" and is_on_delete:
            continue
        if (count := status.get(field, 0)) < desired:
            return f"{count} of {desired} nodes {text}"
    return ""
