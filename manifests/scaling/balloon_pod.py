"""The pod that makes cluster-autoscaler add one node: of low priority, so that the pool's pods push it out.

Unlike a signal it is scheduled, since cluster-autoscaler ignores pods that no node of its simulation takes. It keeps
away from nodes with pods of the pool, whose devices the autoscaler takes for free, and from other balloons.
"""

from typing import TYPE_CHECKING, Any, Final

from api import names
from api.well_known_labels import HOSTNAME_LABEL
from manifests import constants
from manifests.scaling.signal_pod import (
    pool_tolerations,
    requested_resources,
    signal_affinity,
    signal_metadata,
    unprivileged_pod,
)

if TYPE_CHECKING:
    from autoscaling.scaling_model import NodeRequest, ScalingParameters

Json = dict[str, Any]

CONTAINER: Final = "balloon"


def build_balloon(
    request: "NodeRequest", parameters: "ScalingParameters", *, namespace: str, image: str
) -> Json:
    """Return the pod; it satisfies the level `restricted` of pod security."""
    anti_affinity = [
        _apart({names.POOL_LABEL: request.pool}, namespaceSelector={}),
        _apart({names.COMPONENT_LABEL: names.SCALE_SIGNAL, names.SCALING_POOL_LABEL: request.pool}),
    ]
    startup = {"key": names.AGENT_NOT_READY_TAINT, "operator": "Exists"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": signal_metadata(request, parameters, namespace=namespace),
        "spec": {
            "priorityClassName": constants.BALLOON_PRIORITY_CLASS,
            "nodeSelector": dict(request.node_selector),
            "affinity": {
                **signal_affinity(request),
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": anti_affinity
                },
            },
            "tolerations": [*pool_tolerations(parameters), startup],
            **unprivileged_pod(
                CONTAINER, image, resources=requested_resources(request, parameters.signal_resource)
            ),
        },
    }


def _apart(labels: dict[str, str], **more: Json) -> Json:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": HOSTNAME_LABEL, **more}
