"""kubelet's device plugin API `v1beta1`: its names, its messages, and their bytes.

Upstream's package, field names and numbers (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto).
The descriptors are built here, at import: generated code is bound to the versions of protobuf and grpcio
that it was generated with. Callers see the dataclasses below, which are what both ends are about.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.message import Message

VERSION: Final = "v1beta1"
KUBELET_SOCKET: Final = "kubelet.sock"

REGISTRATION_SERVICE: Final = f"{VERSION}.Registration"
PLUGIN_SERVICE: Final = f"{VERSION}.DevicePlugin"
REGISTER: Final = "Register"
GET_OPTIONS: Final = "GetDevicePluginOptions"
LIST_AND_WATCH: Final = "ListAndWatch"
ALLOCATE: Final = "Allocate"

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """Which of its optional calls a plugin wants to get."""

    pre_start_required: bool = False
    get_preferred_allocation_available: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a plugin tells kubelet of itself."""

    endpoint: str
    """File name of its socket in the directory of plugins."""
    resource: str
    version: str = VERSION
    options: PluginOptions = PluginOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedDevice:
    """A unit that kubelet may give to a container."""

    id: str
    is_healthy: bool = True
    numa_node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerGrant:
    """What a container gets for its units."""

    environment: "Mapping[str, str]" = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()
    """Fully qualified, such as `nvidia.com/gpu=GPU-1`."""


def encode_empty(_: None) -> bytes:
    """Return the bytes of a message without fields."""
    return b""


def decode_empty(_: bytes) -> None:
    """Read a message whose fields, if it has any, say nothing to us."""


def encode_options(options: PluginOptions) -> bytes:
    """Return the bytes of DevicePluginOptions."""
    return _bytes_of(_options_message(options))


def decode_options(content: bytes) -> PluginOptions:
    """Read DevicePluginOptions."""
    message = _read("DevicePluginOptions", content)
    return PluginOptions(message.pre_start_required, message.get_preferred_allocation_available)


def encode_registration(registration: Registration) -> bytes:
    """Return the bytes of RegisterRequest."""
    message = _new("RegisterRequest")
    message.version = registration.version
    message.endpoint = registration.endpoint
    message.resource_name = registration.resource
    message.options.CopyFrom(_options_message(registration.options))
    return _bytes_of(message)


def decode_registration(content: bytes) -> Registration:
    """Read RegisterRequest."""
    message = _read("RegisterRequest", content)
    return Registration(
        version=message.version, endpoint=message.endpoint, resource=message.resource_name
    )


def encode_devices(devices: "tuple[OfferedDevice, ...]") -> bytes:
    """Return the bytes of ListAndWatchResponse: always all devices."""
    message = _new("ListAndWatchResponse")
    for device in devices:
        entry = message.devices.add()
        entry.ID = device.id
        entry.health = HEALTHY if device.is_healthy else UNHEALTHY
        if device.numa_node is not None:
            entry.topology.nodes.add().ID = device.numa_node
    return _bytes_of(message)


def decode_devices(content: bytes) -> "tuple[OfferedDevice, ...]":
    """Read ListAndWatchResponse."""
    return tuple(
        OfferedDevice(
            id=entry.ID,
            is_healthy=entry.health == HEALTHY,
            numa_node=next((node.ID for node in entry.topology.nodes), None),
        )
        for entry in _read("ListAndWatchResponse", content).devices
    )


def encode_allocation(containers: "tuple[tuple[str, ...], ...]") -> bytes:
    """Return the bytes of AllocateRequest: the ids for each container."""
    message = _new("AllocateRequest")
    for ids in containers:
        message.container_requests.add().devices_ids.extend(ids)
    return _bytes_of(message)


def decode_allocation(content: bytes) -> "tuple[tuple[str, ...], ...]":
    """Read AllocateRequest."""
    message = _read("AllocateRequest", content)
    return tuple(tuple(one.devices_ids) for one in message.container_requests)


def encode_grants(grants: "tuple[ContainerGrant, ...]") -> bytes:
    """Return the bytes of AllocateResponse: a grant for each container, in the request's order."""
    message = _new("AllocateResponse")
    for grant in grants:
        entry = message.container_responses.add()
        entry.envs.update(grant.environment)
        for name in grant.cdi_devices:
            entry.cdi_devices.add().name = name
    return _bytes_of(message)


def decode_grants(content: bytes) -> "tuple[ContainerGrant, ...]":
    """Read AllocateResponse."""
    return tuple(
        ContainerGrant(
            environment=dict(entry.envs), cdi_devices=tuple(one.name for one in entry.cdi_devices)
        )
        for entry in _read("AllocateResponse", content).container_responses
    )


_TEXT, _FLAG, _INT64, _MAP = "string", "bool", "int64", "map<string, string>"
_SCALARS: Final = {
    _TEXT: FieldDescriptorProto.TYPE_STRING,
    _FLAG: FieldDescriptorProto.TYPE_BOOL,
    _INT64: FieldDescriptorProto.TYPE_INT64,
}


@dataclass(frozen=True, slots=True)
class _Field:
    number: int
    name: str
    type: str
    """A scalar's, a map's, or the name of another message."""
    is_list: bool = False


_MESSAGES: Final = {
    "DevicePluginOptions": (
        _Field(1, "pre_start_required", _FLAG),
        _Field(2, "get_preferred_allocation_available", _FLAG),
    ),
    "RegisterRequest": (
        _Field(1, "version", _TEXT),
        _Field(2, "endpoint", _TEXT),
        _Field(3, "resource_name", _TEXT),
        _Field(4, "options", "DevicePluginOptions"),
    ),
    "NUMANode": (_Field(1, "ID", _INT64),),
    "TopologyInfo": (_Field(1, "nodes", "NUMANode", is_list=True),),
    "Device": (
        _Field(1, "ID", _TEXT),
        _Field(2, "health", _TEXT),
        _Field(3, "topology", "TopologyInfo"),
    ),
    "ListAndWatchResponse": (_Field(1, "devices", "Device", is_list=True),),
    "ContainerAllocateRequest": (_Field(1, "devices_ids", _TEXT, is_list=True),),
    "AllocateRequest": (_Field(1, "container_requests", "ContainerAllocateRequest", is_list=True),),
    "CDIDevice": (_Field(1, "name", _TEXT),),
    # 2 mounts, 3 devices and 4 annotations are upstream's; this project grants nothing by them.
    "ContainerAllocateResponse": (
        _Field(1, "envs", _MAP, is_list=True),
        _Field(5, "cdi_devices", "CDIDevice", is_list=True),
    ),
    "AllocateResponse": (
        _Field(1, "container_responses", "ContainerAllocateResponse", is_list=True),
    ),
}


def _build_classes() -> "dict[str, Callable[[], Any]]":
    file = FileDescriptorProto(name="deviceplugin/v1beta1.proto", package=VERSION, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for one in fields:
            _add_field(message, one)
    pool = DescriptorPool()
    pool.Add(file)
    return {
        name: GetMessageClass(pool.FindMessageTypeByName(f"{VERSION}.{name}")) for name in _MESSAGES
    }


def _add_field(message: DescriptorProto, one: _Field) -> None:
    repeated, single = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.LABEL_OPTIONAL
    entry = message.field.add(
        name=one.name, number=one.number, label=repeated if one.is_list else single
    )
    scalar = _SCALARS.get(one.type)
    if scalar is not None:
        entry.type = scalar
        return
    entry.type = FieldDescriptorProto.TYPE_MESSAGE
    entry.type_name = f".{VERSION}.{one.type}"
    if one.type == _MAP:
        # On the wire a map is a list of pairs; the option is what makes it a map.
        pair = message.nested_type.add(name=f"{one.name.capitalize()}Entry")
        pair.options.map_entry = True
        for number, name in enumerate(("key", "value"), start=1):
            pair.field.add(name=name, number=number, type=_SCALARS[_TEXT], label=single)
        entry.type_name = f".{VERSION}.{message.name}.{pair.name}"


_CLASSES: Final = _build_classes()


def _new(name: str) -> Any:  # noqa: ANN401  # its fields are known at run time only
    return _CLASSES[name]()


def _read(name: str, content: bytes) -> Any:  # noqa: ANN401  # as above
    message = _new(name)
    message.ParseFromString(content)
    return message


def _bytes_of(message: "Message") -> bytes:
    return message.SerializeToString()


def _options_message(options: PluginOptions) -> Any:  # noqa: ANN401  # as above
    message = _new("DevicePluginOptions")
    message.pre_start_required = options.pre_start_required
    message.get_preferred_allocation_available = options.get_preferred_allocation_available
    return message
