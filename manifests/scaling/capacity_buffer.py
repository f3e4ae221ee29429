"""A CapacityBuffer of empty nodes of one shape, with the PodTemplate whose replicas it keeps room for.

Each replica stands for a whole node: one keeps others away from its node. The room is that of nodes of this buffer
alone, by the label of the request, since the autoscaler does not know which devices of other nodes are free.
"""

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.foreign.karpenter import NODE_POOL_LABEL
from api.names import (
    CONFIG_HASH_ANNOTATION,
    SCALE_REQUEST_LABEL,
    SCALING_POOL_LABEL,
    SIGNAL_SCHEDULER,
)
from autoscaling.scaling_model import NodeRequest, Purpose, RequestId
from manifests import constants
from manifests.scaling.signal_pod import (
    pool_reference,
    pool_tolerations,
    requested_resources,
    shape_annotations,
    signal_affinity,
    unprivileged_pod,
)

if TYPE_CHECKING:
    from autoscaling.scaling_model import ScalingTerms, ShapeTerms

Json = dict[str, Any]

STRATEGY: Final = "buffer.x-k8s.io/active-capacity"
CONTAINER: Final = "buffer"


def buffer_label(terms: "ScalingTerms", shape: "ShapeTerms") -> str:
    """Return the value of the label of the request on the buffer's nodes; it has not the form of an id."""
    origin = f"{terms.pool.uid}\0{shape.name}"
    return f"buffer.{hashlib.sha256(origin.encode()).hexdigest()[:10]}"


def buffer_name(terms: "ScalingTerms", shape: "ShapeTerms") -> str:
    return f"scale-{buffer_label(terms, shape)}"


def build_capacity_buffer(
    terms: "ScalingTerms", shape: "ShapeTerms", *, replicas: int, namespace: str, image: str
) -> list[Json]:
    """Return the PodTemplate and the CapacityBuffer."""
    label, name = buffer_label(terms, shape), buffer_name(terms, shape)
    request = NodeRequest(
        id=RequestId(label), pool=terms.pool.name, shape=shape, purpose=Purpose.WARM
    )
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "labels": {
            "app.kubernetes.io/part-of": constants.NAME,
            SCALING_POOL_LABEL: terms.pool.name,
        },
        "ownerReferences": [pool_reference(terms)],
    }
    affinity = {
        **signal_affinity(request),
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {SCALE_REQUEST_LABEL: label}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        },
    }
    template: Json = {
        "metadata": {
            "labels": {SCALING_POOL_LABEL: terms.pool.name, SCALE_REQUEST_LABEL: label},
            "annotations": shape_annotations(request),
        },
        "spec": {
            "schedulerName": SIGNAL_SCHEDULER,
            "nodeSelector": {NODE_POOL_LABEL: shape.node_pool, SCALE_REQUEST_LABEL: label},
            "affinity": affinity,
            "tolerations": pool_tolerations(terms),
            **unprivileged_pod(
                CONTAINER, image, resources=requested_resources(request, terms.signal_resource)
            ),
        },
    }
    digest = hashlib.sha256(msgspec.json.encode(template, order="sorted")).hexdigest()[:16]
    return [
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": metadata,
            "template": template,
        },
        {
            "apiVersion": "autoscaling.x-k8s.io/v1beta1",
            "kind": "CapacityBuffer",
            "metadata": {**metadata, "annotations": {CONFIG_HASH_ANNOTATION: digest}},
            "spec": {
                "provisioningStrategy": STRATEGY,
                "podTemplateRef": {"name": name},
                "replicas": replicas,
            },
        },
    ]
