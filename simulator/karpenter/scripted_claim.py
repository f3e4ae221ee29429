"""The NodeClaim of a signal: of the cheapest offering that signal and NodePool allow; and the Node of a NodeClaim."""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.foreign import karpenter
from api.foreign.core import NodeTaint
from api.meta import SelectorOperator, SelectorRequirement
from api.names import SCALE_REQUEST_LABEL
from api.quantity import parse_milli
from api.well_known_labels import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL
from kube.resources import NODE_CLAIMS, NODE_POOLS, NODES
from pool.node_affinity import required_terms
from simulator.karpenter.instance_types import INSTANCE_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from api.foreign.core import Node, Pod
    from simulator.karpenter.instance_types import InstanceType

    Labels = Mapping[str, str]

Json = dict[str, Any]

TERMINATION_FINALIZER: Final = "karpenter.sh/termination"


def asks_for_node(pod: "Pod") -> bool:
    """Say whether a pod is a signal that waits."""
    selector = pod.spec.node_selector or {}
    return (
        {karpenter.NODE_POOL_LABEL, SCALE_REQUEST_LABEL} <= selector.keys()
        and pod.metadata.deletion_timestamp is None
        and any(
            (condition.type, condition.reason) == ("PodScheduled", "Unschedulable")
            for condition in pod.status.conditions or ()
        )
    )


def claim_of(name: str, signal: "Pod", pool: "karpenter.NodePool") -> Json | None:
    """Return the NodeClaim for a signal; None where no instance type serves."""
    template = pool.spec.template
    own = {**(template.metadata.labels or {}), **(signal.spec.node_selector or {})}
    requests = _requests(signal)
    for labels, type_ in _offerings():
        values, has = {**labels, **own}, type_.allocatable_milli
        matched = _matched(values, signal, pool)
        has_capacity = all(has.get(key, 0) >= amount for key, amount in requests.items())
        if matched is None or not has_capacity or values != {**own, **labels}:
            continue
        keys = {*own, karpenter.CAPACITY_TYPE_LABEL, INSTANCE_TYPE_LABEL, *matched} & values.keys()
        spec = {
            "requirements": [
                {"key": key, "operator": "In", "values": [values[key]]} for key in sorted(keys)
            ],
            "resources": {"requests": {key: f"{amount}m" for key, amount in requests.items()}},
        }
        metadata = {
            "name": name,
            "labels": own,
            "annotations": template.metadata.annotations or {},
            "ownerReferences": [_owner(NODE_POOLS.kind, pool)],
            "finalizers": [TERMINATION_FINALIZER],
        }
        return {
            "apiVersion": NODE_CLAIMS.api_version,
            "kind": NODE_CLAIMS.kind,
            "metadata": metadata,
            "spec": msgspec.to_builtins(template.spec) | spec,
        }
    return None


def instance_of(claim: "karpenter.NodeClaim") -> "tuple[Labels, InstanceType]":
    """Return labels and type of a NodeClaim's instance."""
    fixed = {item.key: (item.values or [""])[0] for item in claim.spec.requirements or ()}
    return next(
        ({**labels, **(claim.metadata.labels or {})}, type_)
        for labels, type_ in _offerings()
        if all(fixed.get(key, value) == value for key, value in labels.items())
    )


def node_of(claim: "karpenter.NodeClaim") -> Json:
    """Return the Node as an instance makes it."""
    name = claim.metadata.name
    return {
        "apiVersion": "v1",
        "kind": NODES.kind,
        "metadata": {
            "name": name,
            "labels": {**(claim.metadata.labels or {}), HOSTNAME_LABEL: name},
        },
        "spec": {
            "providerID": claim.status.provider_id,
            "taints": [{"key": karpenter.UNREGISTERED_TAINT, "effect": "NoExecute"}],
        },
    }


def registration_of(claim: "karpenter.NodeClaim", node: "Node") -> Json:
    """Return the patch by which a Node gets what its NodeClaim has; this ends its registration."""
    added = [*(claim.spec.taints or ()), *(claim.spec.startup_taints or ())]
    kept = [taint for taint in node.spec.taints or () if taint.key != karpenter.UNREGISTERED_TAINT]
    metadata = {
        "labels": {**(claim.metadata.labels or {}), karpenter.REGISTERED_LABEL: "true"},
        "annotations": claim.metadata.annotations or {},
        "finalizers": [TERMINATION_FINALIZER],
        "ownerReferences": [_owner(NODE_CLAIMS.kind, claim)],
    }
    return {"metadata": metadata, "spec": {"taints": msgspec.to_builtins(kept + added)}}


def with_taint(node: "Node", key: str) -> Json:
    """Return the patch by which a Node has a taint more, unless it is changed meanwhile."""
    others = [taint for taint in node.spec.taints or () if taint.key != key]
    taints = msgspec.to_builtins([*others, NodeTaint(key=key, effect="NoSchedule")])
    version = {"resourceVersion": node.metadata.resource_version}
    return {"metadata": version, "spec": {"taints": taints}}


def _offerings() -> "Iterator[tuple[Labels, InstanceType]]":
    """Yield the labels and the type of instances, the cheapest first."""
    found = [(offering, type_) for type_ in INSTANCE_TYPES for offering in type_.offerings]
    for offering, type_ in sorted(found, key=lambda item: item[0].price_milli):
        yield {**type_.all_labels, **offering.labels}, type_


def _matched(labels: "Labels", signal: "Pod", pool: "karpenter.NodePool") -> set[str] | None:
    """Return the keys of the expressions that a node with these labels satisfies; None where it does not."""
    own = [
        SelectorRequirement(
            key=item.key, operator=SelectorOperator(item.operator), values=item.values
        )
        for item in pool.spec.template.spec.requirements or ()
    ]
    terms = [term.match_expressions or [] for term in required_terms(signal.spec.affinity)]
    for term in terms or [[]]:
        if all(item.matches(labels) for item in own + term):
            return {item.key for item in own + term}
    return None


def _requests(signal: "Pod") -> dict[str, int]:
    """Return the requests of a pod's container, and its place, in thousandths."""
    found = {"pods": 1000}
    for container in signal.spec.containers or ():
        requests = (container.resources.requests if container.resources else None) or {}
        found |= {name: parse_milli(str(text)) for name, text in requests.items()}
    return found


def _owner(kind: str, owner: "karpenter.NodePool | karpenter.NodeClaim") -> Json:
    return {
        "apiVersion": NODE_CLAIMS.api_version,
        "kind": kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "blockOwnerDeletion": True,
    }
