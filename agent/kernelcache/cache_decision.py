"""What a node is to do about one cache: pure.

A node pulls a digest only where the leader has proven it (`status.resolvedDigest`) and admission's annotation, which
is that of the object's present image, is the same.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from api.image_reference import Digest, parse_digest
from api.kinds.gkmcache import CacheConditionType
from api.kinds.gkmcachenode import NO_GPU, NodeGPUs
from kernelcache.cache_conditions import reported_state
from kernelcache.compatibility import (
    DeviceCompatibility,
    UnknownTarget,
    cuda_target,
    device_compatibility,
)
from kernelcache.store_snapshot import DesiredCache
from kernelcache.warm_policy import keeps_warm

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from agent.driver.port import DriverDevice, DriverSnapshot
    from api.cache_name import CacheName
    from api.kinds.gkmcache import GKMCache, KernelTarget
    from api.names import NodeName

BEING_CHECKED: Final = "its digest is being checked"
UNRESOLVED: Final = "its image is not resolved yet"
MOST_REMEMBERED: Final = 256
"""Combinations of targets whose devices are remembered."""
NO_DRIVER: Final = "the node's driver does not tell its devices"


@final
@dataclass(frozen=True, slots=True)
class CacheDevices:
    """The devices of the node, as far as caches depend on them."""

    gpus: tuple[NodeGPUs, ...]
    targets: "Mapping[int, KernelTarget | UnknownTarget] | None"
    """Targets by the driver's number; None where no driver ever answered."""
    _compatibility: "dict[tuple[KernelTarget, ...], DeviceCompatibility[int]]" = field(
        default_factory=dict, compare=False, repr=False
    )

    def compatibility(self, targets: "Iterable[KernelTarget]") -> "DeviceCompatibility[int] | None":
        """Return which devices a cache fits; None where they are not known. Most caches have the same targets."""
        if self.targets is None:
            return None
        key = tuple(targets)
        found = self._compatibility.get(key)
        if found is None:
            if len(self._compatibility) >= MOST_REMEMBERED:
                self._compatibility.clear()
            found = self._compatibility[key] = device_compatibility(key, self.targets)
        return found


def devices_of(snapshot: "DriverSnapshot | None") -> CacheDevices:
    """Return the devices that the driver reports, in the order in which it counts them.

    A device that is cut into instances runs the same kernels as before.
    """
    none = (NodeGPUs(gpu_type=NO_GPU),)
    if snapshot is None:
        return CacheDevices(none, None)
    numbers: dict[str, list[int]] = {}
    for number, device in enumerate(snapshot.devices):
        numbers.setdefault(device.product or "unknown", []).append(number)
    gpus = tuple(
        NodeGPUs(gpu_type=product, driver_version=snapshot.driver_version, ids=numbers[product])
        for product in sorted(numbers)
    )
    return CacheDevices(
        gpus or none, {number: _target(item) for number, item in enumerate(snapshot.devices)}
    )


def _target(device: "DriverDevice") -> "KernelTarget | UnknownTarget":
    if device.is_lost:
        return UnknownTarget("the driver has lost the device")
    return cuda_target(device.compute_capability or "")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDecision:
    """What is known of a cache, and whether the node is to have it."""

    digest: Digest | None
    """The proven digest; None where there is none."""
    waits_for: str = ""
    """Why it cannot be pulled or mounted now; empty where it can."""
    compatibility: DeviceCompatibility[int] | None = None
    """None where the devices or the cache's targets are not known."""
    is_due: bool = False
    """Kept warm here, or a pod waits for it: it is shown whatever its state."""
    desired: DesiredCache | None = None
    """What the store's plan is to consider."""

    @property
    def incompatibility(self) -> str:
        """Return why it fits no device of the node; empty where it fits one, or that is not known."""
        return "" if self.compatibility is None else self.compatibility.incompatibility


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCacheFacts:
    """What a decision depends on besides the cache."""

    node: "NodeName"
    devices: CacheDevices
    awaited: "frozenset[CacheName]"
    """Caches that pods of the node wait for."""
    sizes: "Mapping[Digest, int]"
    """Digest -> bytes that it takes of the disk, as this node extracted it now or before."""
    stored: "AbstractSet[Digest]"


def decide(cache: "GKMCache", node: NodeCacheFacts) -> CacheDecision:
    """Return what the node is to do about the cache."""
    digest = parse_digest(cache.status.resolved_digest)
    facts = cache.status.image
    if digest is None or facts is None:
        return CacheDecision(digest=None, waits_for=_unproven_text(cache, UNRESOLVED))
    waits_for = "" if cache.annotated_digest == digest else _unproven_text(cache, BEING_CHECKED)
    is_awaited = cache.cache_name in node.awaited
    is_due = is_awaited or keeps_warm(cache, node.node)
    found = node.devices.compatibility(facts.targets)
    if found is None:
        waits_for = waits_for or NO_DRIVER
    fits = found is None or found.fits_any
    desired = None
    if is_due and fits and not cache.is_deleting and (not waits_for or digest in node.stored):
        size = node.sizes.get(digest) or facts.size_bytes or facts.layer_bytes
        desired = DesiredCache(digest=digest, bytes=size, is_awaited=is_awaited)
    return CacheDecision(
        digest=digest,
        waits_for=waits_for,
        compatibility=found,
        is_due=is_due and not cache.is_deleting,
        desired=desired,
    )


def _unproven_text(cache: "GKMCache", progress: str) -> str:
    """Return what is waited for, with the leader's reason where it refuses the object."""
    state = reported_state(cache.status.conditions)
    if state.type is CacheConditionType.ERROR and state.detail:
        return f"{progress}: {state.detail}"
    return progress
