"""DaemonSets of NVIDIA's GPU Operator: which of them a state takes over in place, and which keep it from starting. Pure.

`operands adopt` labels what the operator made in our namespace with its state. Of each DaemonSet no pod restarts for that:

    labelled -> held: strategy OnDelete, and our template -> pods of ours, node by node -> deleted without its pods

The upgrade of a node's driver replaces the pods of the node. When all are replaced, the DaemonSet that a state wants adopts
them. The template of a driver is the operator's until the driver changes, but for a toleration of every taint: nodes that are
added with taints get the driver, and no upgrade replaces a pod for it. What the ClusterPolicy changes of a DaemonSet later is
rolled out as usual.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from api.driver_upgrade import PAUSED_PREFIX
from api.foreign.core import EVERY_TAINT, Affinity
from api.names import ADOPTED_ANNOTATION, CONFIG_HASH_ANNOTATION, GROUP
from api.text import listed
from api.vendor import NFD_PREFIX, NVIDIA_PREFIX
from api.well_known_labels import APP_COMPONENT_LABEL, OS_LABEL
from operands.nvidia.daemon_set_readiness import selected_nodes
from operands.nvidia.drivers.config_digest import config_digest
from operands.nvidia.node_software import gets_operands
from operands.rollout import ON_DELETE, is_held, is_rolled_out
from operands.transforms import pod_spec_of

Json = dict[str, Any]
Labels = Mapping[str, Mapping[str, str]]
"""Labels of nodes with a GPU, by name."""

APP: Final = "app"
NAMED_AFTER_DRIVERS: Final = frozenset({"nvidia-driver", "nvidia-vgpu-host-manager"})
"""Components whose DaemonSets are named after an NVIDIADriver, so that their `app` says nothing."""
_OWNERS: Final = frozenset({"ClusterPolicy", "NVIDIADriver"})
_SET_BY_SOFTWARE: Final = (NVIDIA_PREFIX, f"{GROUP}/", NFD_PREFIX, OS_LABEL)
"""Prefixes of labels that software sets on each node with a GPU: one that a node lacks, or that is paused, is to come."""
_EVERY_TAINT: Final = msgspec.to_builtins(EVERY_TAINT)
_NAMED_NODES: Final = 3


def component_of(daemon_set: Json) -> str:
    """Return the component that a DaemonSet runs: equal for ours and the operator's; empty where its labels name none."""
    labels = daemon_set["metadata"].get("labels") or {}
    component: str = labels.get(APP_COMPONENT_LABEL, "")
    return component if component in NAMED_AFTER_DRIVERS else labels.get(APP, "")


def running_duplicate(
    objects: "Iterable[Json]", others: "Iterable[Json]", labels_by_node: Labels
) -> tuple[Json, str] | None:
    """Return a DaemonSet of another client that runs the component of a desired one on the same nodes, and where; or None.

    A DaemonSet of ours that lost its label does not count.

    Args:
        objects: of a state.
        others: DaemonSets without the label of a state.
        labels_by_node: all nodes with a GPU, of those that have no label of a ClusterPolicy yet, too.
    """
    desired = [item for item in objects if item["kind"] == "DaemonSet" and component_of(item)]
    for item in others:
        same = [own for own in desired if component_of(own) == component_of(item)]
        if not same or CONFIG_HASH_ANNOTATION in _annotations(item):
            continue
        if where := _contended(item, same, labels_by_node):
            return item, where
    return None


def _contended(theirs: Json, ours: "Sequence[Json]", labels_by_node: Labels) -> str:
    """Return on which nodes both would run; empty: on none, nor on nodes that are added."""
    nodes = [
        name
        for name, labels in sorted(labels_by_node.items())
        if gets_operands(labels)
        and _may_select(theirs, name, labels)
        and any(_may_select(own, name, labels) for own in ours)
    ]
    if nodes:
        return f"node {listed(nodes, _NAMED_NODES)}"
    return "nodes that are added" if _may_select(theirs, "", {}) else ""


def _may_select(daemon_set: Json, node: str, labels: Mapping[str, str]) -> bool:
    """Say whether node selector and required affinity allow a node, once it has the labels that software sets."""
    spec = pod_spec_of(daemon_set)

    def is_to_come(key: str) -> bool:
        value = labels.get(key, PAUSED_PREFIX)
        return value.startswith(PAUSED_PREFIX) and key.startswith(_SET_BY_SOFTWARE)

    selector = spec.get("nodeSelector") or {}
    if not all(is_to_come(key) or labels.get(key) == value for key, value in selector.items()):
        return False
    affinity = msgspec.convert(spec.get("affinity") or {}, Affinity).node_affinity
    required = affinity.required if affinity is not None else None
    if required is None:
        return True
    return any(
        all(is_to_come(item.key) or item.matches(labels) for item in term.match_expressions or ())
        and all(item.matches({"metadata.name": node}) for item in term.match_fields or ())
        for term in required.node_selector_terms or ()
        if term.match_expressions or term.match_fields
    )


def is_operators(found: Json) -> bool:
    """Say whether the operator made a DaemonSet that has the label of a state."""
    annotations, references = _annotations(found), found["metadata"].get("ownerReferences") or ()
    owners = {item["kind"] for item in references if item.get("controller")}
    is_new = CONFIG_HASH_ANNOTATION not in annotations and bool(owners & _OWNERS)
    return is_new or ADOPTED_ANNOTATION in annotations


def has_operators_pods(found: Json) -> bool:
    """Say whether a DaemonSet is the operator's, on nodes, so that it stays although nothing takes it over yet."""
    desired = (found.get("status") or {}).get("desiredNumberScheduled", 0)
    return is_operators(found) and bool(desired)


def is_finished(found: Json, successor: Json) -> bool:
    """Say whether its successor would adopt all pods, and restart none: those of a driver whose `app` differs stay its own."""
    is_operators_driver = is_held(found) and component_of(found) in NAMED_AFTER_DRIVERS
    labels = found["spec"]["template"]["metadata"]["labels"]
    is_selected = successor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    return is_selected and is_rolled_out(found) and not is_operators_driver


def successors(
    found: "Iterable[Json]", desired: "Sequence[Json]", labels_by_node: Labels
) -> dict[str, Json]:
    """Return by name the desired DaemonSet that takes over each of the operator's: the one with most of its nodes."""
    taken: dict[str, Json] = {}
    for old in found:
        nodes = set(selected_nodes(old, labels_by_node))
        fitting = [
            (len(nodes.intersection(selected_nodes(new, labels_by_node))), new)
            for new in desired
            if component_of(new) == component_of(old) and new not in taken.values()
        ]
        name = old["metadata"]["name"]
        best = max(
            fitting, key=lambda item: (item[0], item[1]["metadata"]["name"] == name), default=None
        )
        if best is not None and (best[0] or not nodes):
            taken[name] = best[1]
    return taken


def nodes_to_lose(found: Json, desired: "Iterable[Json]", labels_by_node: Labels) -> list[str]:
    """Return the nodes whose pods would go at once, since no desired DaemonSet selects them."""
    selected = {
        node
        for new in desired
        if component_of(new) == component_of(found)
        for node in selected_nodes(new, labels_by_node)
    }
    return sorted(set(selected_nodes(found, labels_by_node)) - selected)


def taken_over(
    found: Json, successor: Json, *, desired: "Iterable[Json]", labels_by_node: Labels
) -> Json:
    """Return the operator's DaemonSet as it is to be, under its own name and selector.

    Args:
        found: as it is.
        successor: the desired one that takes it over.
        desired: all that the state wants.
        labels_by_node: nodes with a GPU.
    """
    meta, spec, template = successor["metadata"], found["spec"], successor["spec"]["template"]
    held = _held(found, successor, desired=desired, labels_by_node=labels_by_node)
    strategy = ON_DELETE if held else successor["spec"].get("updateStrategy", ON_DELETE)
    labels = {**template["metadata"]["labels"], **spec["selector"].get("matchLabels", {})}
    is_kept = held and component_of(found) in NAMED_AFTER_DRIVERS
    return {
        **found,
        "metadata": {
            **found["metadata"],
            "labels": {**(found["metadata"].get("labels") or {}), **meta["labels"]},
            "annotations": {**_annotations(found), ADOPTED_ANNOTATION: held},
        },
        "spec": {
            **spec,
            "updateStrategy": strategy,
            "template": _tolerating_every_taint(spec["template"])
            if is_kept
            else {**template, "metadata": {**template["metadata"], "labels": labels}},
        },
    }


def _tolerating_every_taint(template: Json) -> Json:
    tolerations = template["spec"].get("tolerations") or []
    if _EVERY_TAINT in tolerations:
        return template
    return {**template, "spec": {**template["spec"], "tolerations": [*tolerations, _EVERY_TAINT]}}


def _held(
    found: Json, successor: Json, *, desired: "Iterable[Json]", labels_by_node: Labels
) -> str:
    """Return the digest or hash until whose change its pods stay; empty: they are replaced as those of any DaemonSet."""
    before = _annotations(found).get(ADOPTED_ANNOTATION)
    if component_of(found) not in NAMED_AFTER_DRIVERS:
        content = msgspec.json.encode(successor["spec"]["template"], order="sorted")
        identity = hashlib.sha256(content).hexdigest()
        return identity if before in {None, identity} else ""
    identity = config_digest(successor)
    is_same = before == identity or (before is None and _images(found) == _images(successor))
    nodes = set(selected_nodes(found, labels_by_node))
    others = (
        item
        for item in desired
        if component_of(item) == component_of(found) and item is not successor
    )
    is_alone = not any(nodes.intersection(selected_nodes(item, labels_by_node)) for item in others)
    return identity if is_same and is_alone else ""


def _annotations(found: Json) -> Mapping[str, str]:
    return found["metadata"].get("annotations") or {}


def _images(daemon_set: Json) -> dict[str, str]:
    return {item["name"]: item["image"] for item in pod_spec_of(daemon_set)["containers"]}
