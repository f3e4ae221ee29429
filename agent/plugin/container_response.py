"""What a container gets for its units, in the words of the way in which devices are handed out."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from agent.settings import CDI_KIND
from api.kubelet.proto.deviceplugin_pb2 import (
    CDIDevice,
    ContainerAllocateResponse,
    DeviceSpec,
    Mount,
)
from api.nodefiles.devices import DEVICES_FILE
from api.nodefiles.poolconfig import HandOut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.plugin.advertised import Unit, Units
    from agent.plugin.devices_file import DevicesOfNode

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
VOID: Final = "void"
"""NVIDIA's runtime leaves such a container alone, where its image asks for `all`."""
POOL_VARIABLE: Final = "GPU_POOL"
UNITS_VARIABLE: Final = "GPU_UNITS"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTerms:
    """How the devices of a pool are handed out."""

    pool: str
    hand_out: HandOut = HandOut.CDI
    cdi_kind: str = CDI_KIND
    """Under which the CDI specification names cards and MIG instances by UUID."""


@final
@dataclass(frozen=True, slots=True)
class UnknownUnits:
    """The units cannot be handed out."""

    text: str


def response_for(
    units: "Sequence[Unit]", terms: ResponseTerms, devices: "DevicesOfNode | None"
) -> ContainerAllocateResponse | UnknownUnits:
    """Return what a container gets; slices of one card are one device.

    NVIDIA_DRIVER_CAPABILITIES is not set: what a plugin says wins over what the image says, and an image
    that needs graphics or video says so; where nobody does, NVIDIA's runtime takes compute and utility.
    """
    parts = sorted({unit.part for unit in units})
    environment = {
        POOL_VARIABLE: terms.pool,
        UNITS_VARIABLE: ",".join(sorted(unit.id for unit in units)),
        VISIBLE_DEVICES: VOID,
    }
    match terms.hand_out:
        case HandOut.ENVIRONMENT:
            environment[VISIBLE_DEVICES] = ",".join(parts)
            return ContainerAllocateResponse(envs=environment)
        case HandOut.CDI:
            names = [CDIDevice(name=f"{terms.cdi_kind}={part}") for part in parts]
            return ContainerAllocateResponse(envs=environment, cdi_devices=names)
        case HandOut.DEVICES:  # pragma: no branch  # mypy proves that none is missing
            missing = missing_files(units, terms, devices)
            if missing or devices is None:
                return UnknownUnits(missing)
            return _by_files(parts, environment, devices)


def missing_files(
    units: "Sequence[Unit]", terms: ResponseTerms, devices: "DevicesOfNode | None"
) -> str:
    """Say which device files that are to be handed out are not known; nothing where all are."""
    if terms.hand_out is not HandOut.DEVICES:
        return ""
    if devices is None:
        return (
            f"there is no {DEVICES_FILE} on this node: the agent with the role inventory writes it"
        )
    unknown = sorted({unit.part for unit in units if devices.nodes_of(unit.part) is None})
    return f"{DEVICES_FILE} has no device files of {', '.join(unknown)}" if unknown else ""


def with_files(units: "Units", terms: ResponseTerms, devices: "DevicesOfNode | None") -> "Units":
    """Return the units, unhealthy where their device files are to be handed out and are not known.

    A pod that waits is better than one that fails, or than a container without its card.
    """
    if terms.hand_out is not HandOut.DEVICES:
        return units
    return tuple(
        replace(unit, is_healthy=False)
        if unit.is_healthy and missing_files((unit,), terms, devices)
        else unit
        for unit in units
    )


def _by_files(
    parts: "Sequence[str]", environment: dict[str, str], devices: "DevicesOfNode"
) -> ContainerAllocateResponse:
    paths = [path for part in parts for path in devices.nodes_of(part) or ()]
    # Instances of one card share its file.
    unique = dict.fromkeys([*paths, *devices.shared.nodes])
    return ContainerAllocateResponse(
        envs=environment,
        devices=[
            DeviceSpec(container_path=path, host_path=path, permissions="rw") for path in unique
        ],
        mounts=[
            Mount(container_path=one.container_path, host_path=one.host_path, read_only=True)
            for one in devices.shared.mounts
        ],
    )
