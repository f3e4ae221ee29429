"""Which devices a kernel cache fits, and for each other device the reason.

Compiled kernels run on the architecture that they were compiled for: backend, architecture and warp size must be
equal to a target of the image. Devices are those of the inventory, which are NVIDIA's.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from api.kinds.gkmcache import KernelTarget
from api.text import listed, truncate
from api.vendor import NVIDIA

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from api.kinds.gpudevice import GPUDeviceStatus

CUDA: Final = "cuda"
CUDA_WARP_SIZE: Final = 32
"""Warp size of every device of NVIDIA's so far."""
_CAPABILITY: Final = re.compile(r"([0-9]{1,3})\.([0-9])")
_CUDA_ARCH: Final = re.compile(r"(?:sm_?)?([0-9]{2,4})[af]?")
"""`90`, `sm_90`, and `sm_90a` or `sm_100f`: code of a feature set runs on devices of its capability."""

DeviceKey = TypeVar("DeviceKey", int, str)
"""The driver's number of a device, or the name of its GPUDevice."""


@final
@dataclass(frozen=True, slots=True)
class UnknownTarget:
    """A device whose architecture is not known, so that no cache fits it."""

    reason: str


@final
@dataclass(frozen=True, slots=True)
class Fits:
    """The device runs the kernels of a target."""

    target: KernelTarget


@final
@dataclass(frozen=True, slots=True)
class Incompatible:
    """The device runs none of the cache's kernels."""

    reason: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCompatibility(Generic[DeviceKey]):
    """The devices of a node, by whether a cache fits them."""

    compatible: tuple[DeviceKey, ...]
    """Compatible devices in ascending order."""
    incompatible: "Mapping[DeviceKey, str]"
    """The reason by device, in ascending order."""

    @property
    def fits_any(self) -> bool:
        return bool(self.compatible)

    @property
    def incompatibility(self) -> str:
        """Return why the cache fits no device; empty where it fits one."""
        if self.compatible:
            return ""
        if not self.incompatible:
            return "the node has no device"
        counts = Counter(self.incompatible.values())
        reasons = listed(f"{reason} ({_devices(count)})" for reason, count in counts.items())
        return f"the cache fits no device of the node: {reasons}"


def cuda_target(compute_capability: str) -> KernelTarget | UnknownTarget:
    """Return the target of an NVIDIA device, as arch `90` of compute capability `9.0`."""
    found = _CAPABILITY.fullmatch(compute_capability)
    if found is None:
        quoted = truncate(compute_capability)
        return UnknownTarget(
            f'"{quoted}" is no compute capability'
            if quoted
            else "its compute capability is unknown"
        )
    return KernelTarget(backend=CUDA, arch=f"{found[1]}{found[2]}", warp_size=CUDA_WARP_SIZE)


def device_target(status: "GPUDeviceStatus") -> KernelTarget | UnknownTarget:
    """Return the target of a GPUDevice."""
    if status.pci.vendor.lower() not in {"", NVIDIA}:
        return UnknownTarget(f"the device is of vendor {truncate(status.pci.vendor)}, not NVIDIA's")
    return cuda_target(status.compute_capability)


def device_fit(
    targets: "Iterable[KernelTarget]", device: KernelTarget | UnknownTarget
) -> Fits | Incompatible:
    """Return the target that the device runs, or the nearest reason why it runs none.

    Of several targets, the reason is about those that come closest: a wrong architecture of the right backend,
    not a wrong backend.
    """
    if isinstance(device, UnknownTarget):
        return Incompatible(device.reason)
    left = sorted(targets)
    own = _canonical(device)
    for part, words in _PARTS:
        near = [item for item in left if getattr(_canonical(item), part) == getattr(own, part)]
        if not near:
            supported = " or ".join(
                truncate(str(value))
                for value in dict.fromkeys(getattr(item, part) for item in left)
            )
            reason = f"{words} {supported} of the cache, device has {getattr(own, part)}"
            is_vendors = part == "backend"
            return Incompatible(f"{reason}: only NVIDIA is supported" if is_vendors else reason)
        left = near
    return Fits(left[0])


def device_compatibility(
    targets: "Iterable[KernelTarget]", devices: "Mapping[DeviceKey, KernelTarget | UnknownTarget]"
) -> DeviceCompatibility[DeviceKey]:
    """Return which devices of a node a cache fits."""
    all_targets = tuple(targets)
    compatible: list[DeviceKey] = []
    incompatible: dict[DeviceKey, str] = {}
    for key in sorted(devices):
        match device_fit(all_targets, devices[key]):
            case Fits():
                compatible.append(key)
            case Incompatible(reason):
                incompatible[key] = reason
    return DeviceCompatibility(compatible=tuple(compatible), incompatible=incompatible)


_PARTS: Final = (("backend", "backend"), ("arch", "arch"), ("warp_size", "warp size"))


def _canonical(target: KernelTarget) -> KernelTarget:
    """Return the target in one spelling: GKM compares text, so that `sm_90` was not `90`."""
    backend, arch = target.backend.strip().lower(), target.arch.strip().lower()
    found = _CUDA_ARCH.fullmatch(arch) if backend == CUDA else None
    return KernelTarget(
        backend=backend, arch=found[1] if found else arch, warp_size=target.warp_size
    )


def _devices(count: int) -> str:
    return f"{count} device" if count == 1 else f"{count} devices"
