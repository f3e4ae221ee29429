"""kubelet's PodResources API `v1`: which units each container of the node has, as kubelet's own books say.

Upstream's package, field names and numbers (k8s.io/kubelet/pkg/apis/podresources/v1/api.proto). CPUs, memory
and claims are upstream's too; nothing here is about them.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from api.kubelet.protobuf import INT64, TEXT, Field, Messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SOCKET: Final = "kubelet.sock"
PODRESOURCES_DIRECTORY: Final = "/var/lib/kubelet/pod-resources"
"""Below kubelet's root directory, so that it is elsewhere where that is. Mount the directory and not the
socket, which a kubelet that restarts replaces."""

SERVICE: Final = "v1.PodResourcesLister"
LIST: Final = "List"
GET: Final = "Get"
GET_ALLOCATABLE: Final = "GetAllocatableResources"


@dataclass(frozen=True, slots=True)
class ContainerUnits:
    """What a container has."""

    name: str
    units: "Mapping[str, tuple[str, ...]]" = field(default_factory=dict)
    """Resource -> ids, sorted; no entry where it has none."""


@dataclass(frozen=True, slots=True)
class PodUnits:
    """What the containers of a pod have.

    kubelet lists main containers and sidecars, and no plain init container. It tells no UID.
    """

    namespace: str
    name: str
    containers: tuple[ContainerUnits, ...] = ()


def encode_pods(pods: "Iterable[PodUnits]") -> bytes:
    """Return the bytes of ListPodResourcesResponse."""
    message = _MESSAGES.new("ListPodResourcesResponse")
    for pod in pods:
        _fill_pod(message.pod_resources.add(), pod)
    return bytes(message.SerializeToString())


def decode_pods(content: bytes) -> tuple[PodUnits, ...]:
    """Read ListPodResourcesResponse."""
    message = _MESSAGES.read("ListPodResourcesResponse", content)
    return tuple(_pod_of(entry) for entry in message.pod_resources)


def encode_pod_name(namespace: str, name: str) -> bytes:
    """Return the bytes of GetPodResourcesRequest."""
    message = _MESSAGES.new("GetPodResourcesRequest")
    message.pod_name, message.pod_namespace = name, namespace
    return bytes(message.SerializeToString())


def decode_pod_name(content: bytes) -> tuple[str, str]:
    """Read GetPodResourcesRequest: namespace and name."""
    message = _MESSAGES.read("GetPodResourcesRequest", content)
    return message.pod_namespace, message.pod_name


def encode_pod(pod: PodUnits) -> bytes:
    """Return the bytes of GetPodResourcesResponse."""
    message = _MESSAGES.new("GetPodResourcesResponse")
    _fill_pod(message.pod_resources, pod)
    return bytes(message.SerializeToString())


def decode_pod(content: bytes) -> PodUnits:
    """Read GetPodResourcesResponse."""
    return _pod_of(_MESSAGES.read("GetPodResourcesResponse", content).pod_resources)


def encode_allocatable(units: "Mapping[str, Iterable[str]]") -> bytes:
    """Return the bytes of AllocatableResourcesResponse: the healthy units of each resource."""
    message = _MESSAGES.new("AllocatableResourcesResponse")
    _fill_devices(message.devices, units)
    return bytes(message.SerializeToString())


def decode_allocatable(content: bytes) -> "dict[str, tuple[str, ...]]":
    """Read AllocatableResourcesResponse: resource -> ids, sorted."""
    return _units_of(_MESSAGES.read("AllocatableResourcesResponse", content).devices)


_MESSAGES: Final = Messages(
    "v1",
    {
        "NUMANode": (Field(1, "ID", INT64),),
        "TopologyInfo": (Field(1, "nodes", "NUMANode", is_list=True),),
        "ContainerDevices": (
            Field(1, "resource_name", TEXT),
            Field(2, "device_ids", TEXT, is_list=True),
            Field(3, "topology", "TopologyInfo"),
        ),
        "ContainerResources": (
            Field(1, "name", TEXT),
            Field(2, "devices", "ContainerDevices", is_list=True),
        ),
        "PodResources": (
            Field(1, "name", TEXT),
            Field(2, "namespace", TEXT),
            Field(3, "containers", "ContainerResources", is_list=True),
        ),
        "ListPodResourcesResponse": (Field(1, "pod_resources", "PodResources", is_list=True),),
        "GetPodResourcesRequest": (
            Field(1, "pod_name", TEXT),
            Field(2, "pod_namespace", TEXT),
        ),
        "GetPodResourcesResponse": (Field(1, "pod_resources", "PodResources"),),
        "AllocatableResourcesResponse": (Field(1, "devices", "ContainerDevices", is_list=True),),
    },
)


def _pod_of(entry: Any) -> PodUnits:  # noqa: ANN401  # a message
    return PodUnits(
        entry.namespace,
        entry.name,
        tuple(ContainerUnits(one.name, _units_of(one.devices)) for one in entry.containers),
    )


def _units_of(devices: Any) -> "dict[str, tuple[str, ...]]":  # noqa: ANN401  # as above
    # kubelet makes an entry for each id and not for each resource, with one id in it.
    units: dict[str, list[str]] = {}
    for one in devices:
        if one.device_ids:
            units.setdefault(one.resource_name, []).extend(one.device_ids)
    return {resource: tuple(sorted(ids)) for resource, ids in units.items()}


def _fill_pod(entry: Any, pod: PodUnits) -> None:  # noqa: ANN401  # as above
    entry.namespace, entry.name = pod.namespace, pod.name
    for container in pod.containers:
        one = entry.containers.add()
        one.name = container.name
        _fill_devices(one.devices, container.units)


def _fill_devices(devices: Any, units: "Mapping[str, Iterable[str]]") -> None:  # noqa: ANN401  # as above
    for resource, ids in units.items():
        for unit in ids:
            devices.add(resource_name=resource).device_ids.append(unit)
