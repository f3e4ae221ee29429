"""The response to Allocate for one container: CDI names, environment, or device files and mounts."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from agent.settings import CDI_KIND
from api.kinds.gpupool import SlicePlacement
from api.kubelet.proto.deviceplugin_pb2 import (
    CDIDevice,
    ContainerAllocateResponse,
    DeviceSpec,
    Mount,
)
from api.nodefiles.node_devices_file import DEVICES_FILE
from api.nodefiles.poolconfig import DeviceInjection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.plugin.advertised import Unit, Units
    from agent.plugin.devices_file import DevicesOfNode

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
VOID: Final = "void"
"""Keeps NVIDIA's runtime from adding devices where the image asks for `all`."""
POOL_VARIABLE: Final = "GPU_POOL"
UNITS_VARIABLE: Final = "GPU_UNITS"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseParameters:
    """How containers get the devices of a pool."""

    pool: str
    hand_out: DeviceInjection = DeviceInjection.CDI
    cdi_kind: str = CDI_KIND
    """The CDI specification names devices and MIG instances by UUID under this kind."""
    slice_placement: SlicePlacement = SlicePlacement.DISTINCT_DEVICES


@final
@dataclass(frozen=True, slots=True)
class UnknownUnits:
    """No response can be made for the units."""

    text: str


def response_for(
    units: "Sequence[Unit]", parameters: ResponseParameters, devices: "DevicesOfNode | None"
) -> ContainerAllocateResponse | UnknownUnits:
    """Return the response for one container; slices of one device are one device.

    NVIDIA_DRIVER_CAPABILITIES is not set: the plugin's value would override that of an image which needs
    graphics or video. Without a value NVIDIA's runtime takes compute and utility.
    """
    parts = sorted({unit.part for unit in units})
    environment = {
        POOL_VARIABLE: parameters.pool,
        UNITS_VARIABLE: ",".join(sorted(unit.id for unit in units)),
        VISIBLE_DEVICES: VOID,
    }
    match parameters.hand_out:
        case DeviceInjection.ENVIRONMENT:
            environment[VISIBLE_DEVICES] = ",".join(parts)
            return ContainerAllocateResponse(envs=environment)
        case DeviceInjection.CDI:
            names = [CDIDevice(name=f"{parameters.cdi_kind}={part}") for part in parts]
            return ContainerAllocateResponse(envs=environment, cdi_devices=names)
        case DeviceInjection.DEVICES:  # pragma: no branch  # mypy proves that none is missing
            missing = missing_files(units, parameters, devices)
            if missing or devices is None:
                return UnknownUnits(missing)
            return _by_files(parts, environment, devices)


def missing_files(
    units: "Sequence[Unit]", parameters: ResponseParameters, devices: "DevicesOfNode | None"
) -> str:
    """Return a text that names the device files which are needed and not known; empty where none is."""
    if parameters.hand_out is not DeviceInjection.DEVICES:
        return ""
    if devices is None:
        return f"there is no {DEVICES_FILE} on this node: run the agent with the role inventory, which writes it"
    unknown = sorted({unit.part for unit in units if devices.nodes_of(unit.part) is None})
    return f"{DEVICES_FILE} has no device files of {', '.join(unknown)}" if unknown else ""


def with_device_files(
    units: "Units", parameters: ResponseParameters, devices: "DevicesOfNode | None"
) -> "Units":
    """Return the units, unhealthy where their device files are needed and not known.

    A waiting pod is better than a failed one, or than a container without its device.
    """
    if parameters.hand_out is not DeviceInjection.DEVICES:
        return units
    return tuple(
        replace(unit, is_healthy=False)
        if unit.is_healthy and missing_files((unit,), parameters, devices)
        else unit
        for unit in units
    )


def _by_files(
    parts: "Sequence[str]", environment: dict[str, str], devices: "DevicesOfNode"
) -> ContainerAllocateResponse:
    paths = [path for part in parts for path in devices.nodes_of(part) or ()]
    # Instances of one device share its file.
    unique = dict.fromkeys([*paths, *devices.shared.nodes])
    return ContainerAllocateResponse(
        envs=environment,
        devices=[
            DeviceSpec(container_path=path, host_path=path, permissions="rw") for path in unique
        ],
        mounts=[
            Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=True)
            for mount in devices.shared.mounts
        ],
    )
