"""The PriorityClass of balloon pods, for the backend balloon (cluster-autoscaler)."""

from typing import Any, Final

from manifests import constants

BALLOON_PRIORITY: Final = -10
"""Any pod of the pool preempts a balloon. Below -10 cluster-autoscaler adds no node for a pod, and Karpenter counts
a node with it as empty from about -30 million on."""


def build_balloon_priority_class() -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {
            "name": constants.BALLOON_PRIORITY_CLASS,
            "labels": dict(constants.LABELS),
        },
        "value": BALLOON_PRIORITY,
        "globalDefault": False,
        "preemptionPolicy": "Never",
        "description": "Pods that make cluster-autoscaler add a node for a GPUPool, and give way to its pods.",
    }
