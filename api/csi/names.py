"""Names of the CSI driver: its services and their methods, and the keys of a volume's attributes.

kubelet merges the pod's identity into the attributes that the pod's volume has, where the CSIDriver object says
`podInfoOnMount`; a key of the same name in the pod is overwritten.
"""

from typing import Final

DRIVER_NAME: Final = "csi.gkm.io"
REGISTRATION_SOCKET: Final = f"{DRIVER_NAME}-reg.sock"
"""Registration socket in kubelet's directory `plugins_registry`; the name that node-driver-registrar would choose."""
DRIVER_VERSION: Final = "1.0.0"
"""Version of CSI, towards kubelet: it takes every 1.x, and refuses a driver that has a lower one than the driver
before it."""

IDENTITY_SERVICE: Final = "csi.v1.Identity"
GET_PLUGIN_INFO: Final = "GetPluginInfo"
GET_PLUGIN_CAPABILITIES: Final = "GetPluginCapabilities"
PROBE: Final = "Probe"

NODE_SERVICE: Final = "csi.v1.Node"
NODE_PUBLISH: Final = "NodePublishVolume"
NODE_UNPUBLISH: Final = "NodeUnpublishVolume"
NODE_GET_STATS: Final = "NodeGetVolumeStats"
NODE_GET_CAPABILITIES: Final = "NodeGetCapabilities"
NODE_GET_INFO: Final = "NodeGetInfo"

CACHE_ATTRIBUTE: Final = f"{DRIVER_NAME}/GKMCache"
"""Name of the GKMCache, or of the ClusterGKMCache where there is no namespace."""
NAMESPACE_ATTRIBUTE: Final = f"{DRIVER_NAME}/namespace"

KUBELET_PREFIX: Final = "csi.storage.k8s.io/"
"""Prefix of all keys that kubelet adds."""
POD_NAME: Final = f"{KUBELET_PREFIX}pod.name"
POD_NAMESPACE: Final = f"{KUBELET_PREFIX}pod.namespace"
POD_UID: Final = f"{KUBELET_PREFIX}pod.uid"
EPHEMERAL: Final = f"{KUBELET_PREFIX}ephemeral"
"""`true` for a volume that is written in the pod, `false` for one of a PersistentVolume."""
