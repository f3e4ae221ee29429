"""The CSIDriver object: how Kubernetes treats volumes of the driver that mounts kernel caches.

kubelet refuses inline volumes of a driver without such an object, and the driver refuses a call that does not name
the pod (`podInfoOnMount`).
"""

from typing import Any

from api.csi.names import DRIVER_NAME
from manifests import constants

Json = dict[str, Any]


def build_csi_driver() -> Json:
    """Return the object; `attachRequired`, `podInfoOnMount` and the modes cannot be changed once it exists."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER_NAME, "labels": dict(constants.LABELS)},
        "spec": {
            "attachRequired": False,
            # All pods of a node share the files: kubelet must not change their group and mode for one.
            "fsGroupPolicy": "None",
            "podInfoOnMount": True,
            "volumeLifecycleModes": ["Ephemeral"],
        },
    }
