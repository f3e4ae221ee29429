"""kubelet's device plugin API `v1beta1`: its names, its messages, and their bytes.

Upstream's package, field names and numbers (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto).
Callers see the dataclasses below, which are what both ends are about.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from api.kubelet.deviceplugin_messages import MESSAGES, PACKAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = PACKAGE
KUBELET_SOCKET: Final = "kubelet.sock"

REGISTRATION_SERVICE: Final = f"{VERSION}.Registration"
PLUGIN_SERVICE: Final = f"{VERSION}.DevicePlugin"
REGISTER: Final = "Register"
GET_OPTIONS: Final = "GetDevicePluginOptions"
LIST_AND_WATCH: Final = "ListAndWatch"
GET_PREFERRED: Final = "GetPreferredAllocation"
ALLOCATE: Final = "Allocate"
PRE_START: Final = "PreStartContainer"

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
class PreferenceRequest:
    """Of which units kubelet asks for the best, for one container."""

    available: tuple[str, ...]
    """Healthy, and in no container's hands, or in those of this pod's init containers; in no order."""
    must_include: tuple[str, ...] = ()
    """Those that the pod's init containers have; they are available, too."""
    size: int


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device file that the container sees."""

    container_path: str
    host_path: str
    permissions: str = "rw"
    """Any of `r`, `w`, `m` (mknod)."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory that the container sees."""

    container_path: str
    host_path: str
    read_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerGrant:
    """What a container gets for its units."""

    environment: "Mapping[str, str]" = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    """Fully qualified, such as `gpu.deckhouse.io/gpu=GPU-1`."""


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


def encode_preference_requests(requests: "tuple[PreferenceRequest, ...]") -> bytes:
    """Return the bytes of PreferredAllocationRequest."""
    message = _new("PreferredAllocationRequest")
    for one in requests:
        entry = message.container_requests.add()
        entry.available_deviceIDs.extend(one.available)
        entry.must_include_deviceIDs.extend(one.must_include)
        entry.allocation_size = one.size
    return _bytes_of(message)


def decode_preference_requests(content: bytes) -> "tuple[PreferenceRequest, ...]":
    """Read PreferredAllocationRequest."""
    return tuple(
        PreferenceRequest(
            available=tuple(one.available_deviceIDs),
            must_include=tuple(one.must_include_deviceIDs),
            size=one.allocation_size,
        )
        for one in _read("PreferredAllocationRequest", content).container_requests
    )


def encode_preferences(containers: "tuple[tuple[str, ...], ...]") -> bytes:
    """Return the bytes of PreferredAllocationResponse: the ids for each container, in the request's order."""
    message = _new("PreferredAllocationResponse")
    for ids in containers:
        message.container_responses.add().deviceIDs.extend(ids)
    return _bytes_of(message)


def decode_preferences(content: bytes) -> "tuple[tuple[str, ...], ...]":
    """Read PreferredAllocationResponse."""
    message = _read("PreferredAllocationResponse", content)
    return tuple(tuple(one.deviceIDs) for one in message.container_responses)


def encode_pre_start(ids: "tuple[str, ...]") -> bytes:
    """Return the bytes of PreStartContainerRequest."""
    message = _new("PreStartContainerRequest")
    message.devices_ids.extend(ids)
    return _bytes_of(message)


def encode_grants(grants: "tuple[ContainerGrant, ...]") -> bytes:
    """Return the bytes of AllocateResponse: a grant for each container, in the request's order."""
    message = _new("AllocateResponse")
    for grant in grants:
        entry = message.container_responses.add()
        entry.envs.update(grant.environment)
        for mount in grant.mounts:
            entry.mounts.add(
                container_path=mount.container_path,
                host_path=mount.host_path,
                read_only=mount.read_only,
            )
        for device in grant.devices:
            entry.devices.add(
                container_path=device.container_path,
                host_path=device.host_path,
                permissions=device.permissions,
            )
        for name in grant.cdi_devices:
            entry.cdi_devices.add().name = name
    return _bytes_of(message)


def decode_grants(content: bytes) -> "tuple[ContainerGrant, ...]":
    """Read AllocateResponse."""
    return tuple(
        ContainerGrant(
            environment=dict(entry.envs),
            mounts=tuple(
                Mount(one.container_path, one.host_path, one.read_only) for one in entry.mounts
            ),
            devices=tuple(
                DeviceSpec(one.container_path, one.host_path, one.permissions)
                for one in entry.devices
            ),
            cdi_devices=tuple(one.name for one in entry.cdi_devices),
        )
        for entry in _read("AllocateResponse", content).container_responses
    )


def _new(name: str) -> Any:  # noqa: ANN401  # its fields are known at run time only
    return MESSAGES.new(name)


def _read(name: str, content: bytes) -> Any:  # noqa: ANN401  # as above
    return MESSAGES.read(name, content)


def _bytes_of(message: Any) -> bytes:  # noqa: ANN401  # as above
    return bytes(message.SerializeToString())


def _options_message(options: PluginOptions) -> Any:  # noqa: ANN401  # as above
    message = _new("DevicePluginOptions")
    message.pre_start_required = options.pre_start_required
    message.get_preferred_allocation_available = options.get_preferred_allocation_available
    return message
