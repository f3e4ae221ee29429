"""The pod that makes Karpenter add one node, and never runs.

No scheduler has its `schedulerName`, so that it takes no unit, binds nowhere and preempts nothing. Karpenter reads
only its condition, which the control plane writes (`unschedulable_patch`); by its node selector no node that exists
matches it, and the node that Karpenter adds carries the id of the request.
"""

import datetime as dt
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api import names
from api.crd.cel import MAX_LABEL_VALUE_LENGTH
from api.foreign.core import NodeSelectorTerm
from api.foreign.karpenter import NODE_POOL_LABEL
from api.kinds.gpupool import GPUPool
from api.meta import SelectorOperator, SelectorRequirement
from api.well_known_labels import PART_OF_LABEL
from manifests import constants

if TYPE_CHECKING:
    from api.kinds.autoscaling import ShapeRequirement
    from autoscaling.scaling_model import NodeRequest, RequestId, ScalingParameters

Json = dict[str, Any]

CONTAINER: Final = "signal"
DEADLINE_S: Final = 600
MIN_CPU_MILLI: Final = 10
MIN_MEMORY_MIB: Final = 16
NOBODY: Final = 65534
"""User and group of the container, which never runs."""
POD_SCHEDULED: Final = "PodScheduled"
_NOT_OF_LABELS: Final = re.compile("[^A-Za-z0-9_.-]+")
UNSCHEDULABLE: Final = "Unschedulable"
"""The reason by which Karpenter and cluster-autoscaler know a pod that needs a node."""


def signal_name(request: "RequestId") -> str:
    """Return the name of the only signal of a request: a repeated create meets the first one."""
    return f"scale-{request}"


def signal_labels(request: "NodeRequest", product: str = "") -> dict[str, str]:
    model = _NOT_OF_LABELS.sub("-", product)[:MAX_LABEL_VALUE_LENGTH].strip("-._")
    return {
        PART_OF_LABEL: constants.NAME,
        names.COMPONENT_LABEL: names.SCALE_SIGNAL,
        names.SCALING_POOL_LABEL: request.pool,
        names.SCALE_REQUEST_LABEL: request.id,
        names.TRIGGER_TYPE_LABEL: "waiting-pods" if request.pods else "warm-units",
        **({names.MODEL_LABEL: model} if model else {}),
    }


def build_signal(
    request: "NodeRequest", parameters: "ScalingParameters", *, namespace: str, image: str
) -> Json:
    """Return the pod; it satisfies the level `restricted` of pod security.

    Kubelet counts activeDeadlineSeconds from the start of a pod that is bound: the deadline ends a signal that was bound
    after all. Signals that no kubelet sees have deadlines by phase (`autoscaling.request_state`).
    """
    affinity = signal_affinity(request)
    spec: Json = {
        "schedulerName": names.SIGNAL_SCHEDULER,
        "activeDeadlineSeconds": DEADLINE_S,
        "nodeSelector": {
            **request.node_selector,
            NODE_POOL_LABEL: request.shape.node_pool,
            names.SCALE_REQUEST_LABEL: request.id,
        },
        **({"affinity": affinity} if affinity else {}),
        "tolerations": pool_tolerations(parameters),
        **unprivileged_pod(
            CONTAINER, image, resources=requested_resources(request, parameters.signal_resource)
        ),
    }
    metadata = signal_metadata(request, parameters, namespace=namespace)
    metadata["annotations"] |= {
        names.PURPOSE_ANNOTATION: "trigger-karpenter-scaling",
        names.CLEANUP_AFTER_ANNOTATION: "node-ready",
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def signal_metadata(
    request: "NodeRequest", parameters: "ScalingParameters", *, namespace: str
) -> Json:
    """Return what a pod that asks for a node is known by; it goes with its pool."""
    return {
        "name": signal_name(request.id),
        "namespace": namespace,
        "labels": signal_labels(request, parameters.product),
        "annotations": shape_annotations(request),
        "ownerReferences": [pool_reference(parameters)],
    }


def unprivileged_pod(name: str, image: str, *, resources: Json) -> Json:
    """Return the fields of a pod spec by which a pod that must do nothing can do nothing."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": name,
                "image": image,
                "resources": resources,
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
    }


def requested_resources(request: "NodeRequest", signal_resource: str) -> Json:
    """Return the resources of the pods that the node is for, and the devices where the autoscaler knows them.

    Device memory is no memory of the node: it is not requested.
    """
    requests = {
        "cpu": f"{max(MIN_CPU_MILLI, request.requests.cpu_milli)}m",
        "memory": f"{max(MIN_MEMORY_MIB, request.requests.memory_mib)}Mi",
    }
    others = {name: str(amount) for name, amount in request.resources.items()}
    if signal_resource:
        others[signal_resource] = str(request.shape.devices)
    limits = {name: amount for name, amount in others.items() if _is_limited(name)}
    return {"requests": {**requests, **others}, **({"limits": limits} if limits else {})}


def _is_limited(resource: str) -> bool:
    """Say whether the API server wants a limit that equals the request: of hugepages and extended resources."""
    return resource.startswith("hugepages-") or "/" in resource


def shape_annotations(request: "NodeRequest") -> dict[str, str]:
    return {
        names.CREATED_BY_ANNOTATION: f"{constants.NAME}/pool.scaling",
        names.SHAPE_ANNOTATION: request.shape.name,
        names.SCALE_DEVICES_ANNOTATION: str(request.shape.devices),
    }


def pool_reference(parameters: "ScalingParameters") -> Json:
    """Return the owner reference to the pool: the API server's garbage collector deletes what the server cannot."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": GPUPool.__name__,
        "name": parameters.pool.name,
        "uid": parameters.pool.uid,
    }


def signal_affinity(request: "NodeRequest") -> Json:
    """Return the affinity: the shape's requirements and one of the pods' required terms; empty if there is neither."""
    shape = [_pod_requirement(requirement) for requirement in request.shape.requirements]
    terms = [
        NodeSelectorTerm(
            match_expressions=[*shape, *(term.match_expressions or ())] or None,
            match_fields=term.match_fields,
        )
        for term in request.affinity or ((NodeSelectorTerm(),) if shape else ())
    ]
    if not terms:
        return {}
    selector = {"nodeSelectorTerms": msgspec.to_builtins(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def _pod_requirement(requirement: "ShapeRequirement") -> SelectorRequirement:
    """Return a requirement as a pod's node affinity can have it, which knows neither Gte and Lte nor minValues."""
    key, operator, values = requirement.key, requirement.operator, requirement.values
    match operator:
        case SelectorOperator.GTE if values == ["0"]:
            return SelectorRequirement(key, SelectorOperator.EXISTS)
        case SelectorOperator.GTE if values:
            return SelectorRequirement(key, SelectorOperator.GT, [str(int(values[0]) - 1)])
        case SelectorOperator.LTE if values:
            return SelectorRequirement(key, SelectorOperator.LT, [str(int(values[0]) + 1)])
        case _:
            return SelectorRequirement(key, operator, values)


def pool_tolerations(parameters: "ScalingParameters") -> list[dict[str, str]]:
    """Return tolerations of the taints of the pool's nodes."""
    return [
        {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
        for taint in parameters.taints
    ]


def unschedulable_patch(request: "RequestId", *, uid: str, now: dt.datetime) -> list[Json]:
    """Return the JSON patch of a signal's status that makes the autoscaler add a node for it.

    An autoscaler reacts to the condition that kube-scheduler writes on a pod that fits nowhere; the pod of this uid
    is no pod of kube-scheduler.
    """
    condition = {
        "type": POD_SCHEDULED,
        "status": "False",
        "reason": UNSCHEDULABLE,
        "message": f"the GPU control plane asks for node {request}; nothing runs in this pod",
        "lastTransitionTime": now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": "/status/conditions", "value": [condition]},
    ]
