"""Labels that Kubernetes itself gives nodes, and DaemonSets their pods, and those that it recommends for applications."""

from typing import Final

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
OS_LABEL: Final = "kubernetes.io/os"
ARCH_LABEL: Final = "kubernetes.io/arch"
INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
REGION_LABEL: Final = "topology.kubernetes.io/region"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REVISION_LABEL: Final = "controller-revision-hash"
"""On a ControllerRevision of a DaemonSet, and on the pods that are made of it."""
PART_OF_LABEL: Final = "app.kubernetes.io/part-of"
APP_COMPONENT_LABEL: Final = "app.kubernetes.io/component"
