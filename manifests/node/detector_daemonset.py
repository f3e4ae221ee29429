"""The node detector: one pod on each node, which reports whether the node has a device.

The node agent runs where a device is; the detector finds out where that is, in clusters without NFD. It has no
privilege, no directory of the node and no port: the PCI bus is in every container's /sys, read-only. It has no
probe, which would start a second process every time (`agent.detection.detector`).
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.names import PRESENT_LABEL
from manifests import constants
from manifests.node.daemonset import (
    build_daemon_set,
    build_pod_spec,
    rolling_update,
    workload_labels,
)
from manifests.node.device_plugin import signed

if TYPE_CHECKING:
    from manifests.node.device_plugin import WorkloadSettings

Json = dict[str, Any]

ROLE: Final = "detect"
_USER: Final = 65532
"""User of the image."""


def build_node_detector(settings: "WorkloadSettings") -> list[Json]:
    """Return the DaemonSet; nothing if it is off, or no node agent follows it.

    A node that is labelled `gpu.deckhouse.io/present=false` has no node agent, and so no detector.
    """
    if not settings.is_detecting:
        return []
    container: Json = {
        "name": constants.NODE_DETECTOR,
        "image": settings.agent_image,
        "command": ["gpu-control-plane"],
        "args": [
            "agent",
            "--node",
            "$(NODE_NAME)",
            "--namespace",
            settings.namespace,
            "--roles",
            ROLE,
        ],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsGroup": _USER,
            "runAsNonRoot": True,
            "runAsUser": _USER,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    expressions = [
        {"key": PRESENT_LABEL, "operator": "NotIn", "values": ["false"]},
        *(msgspec.to_builtins(item) for item in settings.detector.node_affinity),
    ]
    spec: Json = {
        "serviceAccountName": constants.NODE_DETECTOR,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": expressions}]
                }
            }
        },
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        **build_pod_spec(container, [], settings.detector.pods),
    }
    if settings.detector.node_selector:
        spec["nodeSelector"] = dict(sorted(settings.detector.node_selector.items()))
    labels = workload_labels(constants.NODE_DETECTOR)
    body = build_daemon_set(
        constants.NODE_DETECTOR,
        settings.namespace,
        labels=labels,
        spec=spec,
        rolling_update=rolling_update(settings.max_unavailable),
    )
    return [signed(body)]
