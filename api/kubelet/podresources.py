"""kubelet's PodResources API `v1`: names, and the units of each container as kubelet reports them.

The messages are in `api.kubelet.proto.podresources_pb2`. CPUs, memory and claims are not read.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.kubelet.proto.podresources_pb2 import ContainerResources, PodResources

SOCKET: Final = "kubelet.sock"
SERVICE: Final = "v1.PodResourcesLister"
LIST: Final = "List"
GET: Final = "Get"
GET_ALLOCATABLE: Final = "GetAllocatableResources"


@dataclass(frozen=True, slots=True)
class ContainerUnits:
    """The units of a container."""

    name: str
    units: "Mapping[str, tuple[str, ...]]" = field(default_factory=dict)
    """Resource -> ids, sorted; no entry where it has none."""


@dataclass(frozen=True, slots=True)
class PodUnits:
    """The units of a pod's containers.

    kubelet lists main containers and sidecars, and no plain init container. It does not report the UID.
    """

    namespace: str
    name: str
    containers: tuple[ContainerUnits, ...] = ()


def pod_units(pod: "PodResources") -> PodUnits:
    """Return the units by resource; kubelet makes an entry for each id and not for each resource."""
    return PodUnits(
        pod.namespace,
        pod.name,
        tuple(
            ContainerUnits(container.name, _by_resource(container)) for container in pod.containers
        ),
    )


def _by_resource(container: "ContainerResources") -> dict[str, tuple[str, ...]]:
    units: dict[str, list[str]] = {}
    for device in container.devices:
        if device.device_ids:
            units.setdefault(device.resource_name, []).extend(device.device_ids)
    return {resource: tuple(sorted(ids)) for resource, ids in units.items()}
