"""MIG through NVML: a device's instances, and its partitioning. Blocking, for the thread of a session.

A GPU instance gets one compute instance that has all of it. Other programs may have created several of them, or
smaller ones: such an instance is reported under the name of its compute instance (`1c.3g.40gb`), which is no profile
that the agent creates, and with the lowest of them.

nvml.h, "Multi Instance GPU Management".
"""

import ctypes
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, final

import pynvml

from agent.driver.port import DriverInstance, Profile
from agent.errors import PartitioningError
from agent.nvml.convert import profile_name
from agent.nvml.device_processes import processes_on
from agent.nvml.errors import Handle, NvmlQueries, SessionStaleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol

    from api.mig.layout import InstancePlacement

    class ProfilesOf(Protocol):
        """The profiles of a device, read once a session."""

        def __call__(
            self, uuid: str, handle: Handle, *, is_enabled: bool, queries: NvmlQueries
        ) -> "Profiles": ...


Result = TypeVar("Result")


@final
@dataclass(frozen=True, slots=True)
class _GpuProfile:
    name: str
    id: int
    slices: int
    capacity: int


Profiles = tuple[_GpuProfile, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MigState:
    """MIG state in a snapshot; `processes` are those of the whole device, partitioned or not."""

    is_capable: bool = False
    is_enabled: bool = False
    is_pending: bool | None = None
    profiles: tuple[Profile, ...] = ()
    instances: tuple[DriverInstance, ...] = ()
    processes: int = 0


@final
@dataclass(frozen=True, slots=True)
class _MigDevice:
    """A compute instance, in the terms of the rest of NVML."""

    handle: Handle
    compute_instance: int
    uuid: str
    is_whole: bool
    """It has all of its GPU instance."""
    slices: int


def read_profiles(handle: Handle, queries: NvmlQueries) -> Profiles:
    """Return the profiles of a device, in NVML's order."""
    found: list[_GpuProfile] = []
    memory = queries.ask(None, pynvml.nvmlDeviceGetMemoryInfo, handle)
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = queries.ask(None, pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number, 2)
        if info is not None:
            name = str(info.name).removeprefix("MIG ")
        else:
            info = queries.ask(None, pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number, 1)
            name = ""
        if info is None or info.instanceCount == 0:
            continue
        device_bytes = 0 if memory is None else int(memory.total)
        name = name or profile_name(
            number, slices=info.sliceCount, memory_mib=info.memorySizeMB, device_bytes=device_bytes
        )
        found.append(_GpuProfile(name, info.id, info.sliceCount, info.instanceCount))
    return tuple(found)


@final
class MigDevice:
    """A device, by a handle of the session."""

    def __init__(self, uuid: str, handle: Handle) -> None:
        self._uuid = uuid
        self._handle = handle

    def read(self, queries: NvmlQueries, profiles_of: "ProfilesOf") -> MigState:
        """Return the instances, and the number of processes that use the device.

        Raises:
            DeviceLostError: it is lost.
        """
        modes = queries.ask(None, pynvml.nvmlDeviceGetMigMode, self._handle)
        if modes is None:
            return MigState(processes=len(processes_on(self._handle, queries)))
        is_enabled, is_pending = bool(modes[0]), bool(modes[1])
        profiles = profiles_of(self._uuid, self._handle, is_enabled=is_enabled, queries=queries)
        devices = self._mig_devices(queries) if is_enabled else {}
        handles = [self._handle, *(item.handle for all_ in devices.values() for item in all_)]
        return MigState(
            is_capable=True,
            is_enabled=is_enabled,
            is_pending=is_pending if is_pending != is_enabled else None,
            profiles=tuple(
                Profile(name=profile.name, capacity=profile.capacity) for profile in profiles
            ),
            instances=self._instances(profiles, devices, queries) if is_enabled else (),
            processes=len(set().union(*(processes_on(handle, queries) for handle in handles))),
        )

    def instances(
        self, queries: NvmlQueries, profiles_of: "ProfilesOf"
    ) -> list[tuple[DriverInstance, Handle]] | None:
        """Return the instances with handles, None where MIG is off; without those that have no compute instance.

        Raises:
            DeviceLostError: it is lost.
        """
        modes = queries.ask(None, pynvml.nvmlDeviceGetMigMode, self._handle)
        if modes is None or not modes[0]:
            return None
        profiles = profiles_of(self._uuid, self._handle, is_enabled=True, queries=queries)
        devices = self._mig_devices(queries)
        handles = {item.uuid: item.handle for device in devices.values() for item in device}
        found = self._instances(profiles, devices, queries)
        return [(item, handles[item.uuid]) for item in found if item.uuid]

    def set_mode(self, *, is_enabled: bool) -> bool:
        """Set the MIG mode; return whether it is in effect."""
        mode = pynvml.NVML_DEVICE_MIG_ENABLE if is_enabled else pynvml.NVML_DEVICE_MIG_DISABLE
        what = "enabling MIG" if is_enabled else "disabling MIG"
        # The status has the reason of a pending mode; the modes are the result.
        self._do(what, pynvml.nvmlDeviceSetMigMode, self._handle, mode)
        current: int = self._do(what, pynvml.nvmlDeviceGetMigMode, self._handle)[0]
        return bool(current) == is_enabled

    def create(self, profile: str, place: "InstancePlacement | None") -> None:
        """Create a GPU instance and its compute instance; if the second is refused, none of them."""
        matching = [
            item for item in read_profiles(self._handle, NvmlQueries()) if item.name == profile
        ]
        if not matching:
            raise self._refused(f"creating {profile}", "the device has no such profile")
        made = self._create(matching[0].id, profile, place)
        try:
            self._complete(made)
        except PartitioningError:
            self._do(f"undoing {profile}", pynvml.nvmlGpuInstanceDestroy, made)
            raise
        except SessionStaleError as stale:  # Not retried automatically: half of it is done.
            raise self._refused(f"creating {profile}", str(stale)) from stale

    def _create(self, profile_id: int, profile: str, place: "InstancePlacement | None") -> Handle:
        what = f"creating {profile}"
        made: Handle
        if place is None:
            made = self._do(what, pynvml.nvmlDeviceCreateGpuInstance, self._handle, profile_id)
            return made
        made = self._do(
            f"{what} at memory slice {place.start}",
            pynvml.nvmlDeviceCreateGpuInstanceWithPlacement,
            self._handle,
            profile_id,
            ctypes.byref(pynvml.c_nvmlGpuInstancePlacement_t(place.start, place.size)),
        )
        return made

    def complete(self, gpu_instance: int) -> None:
        """Create the compute instance of a GPU instance; a complete one is left as it is."""
        instance = self._do(
            f"finding GPU instance {gpu_instance}",
            pynvml.nvmlDeviceGetGpuInstanceById,
            self._handle,
            gpu_instance,
        )
        if not list(_compute_instances(instance, NvmlQueries())):
            self._complete(instance)

    def destroy(self, gpu_instance: int) -> None:
        """Destroy a GPU instance and its compute instances; a missing one is destroyed."""
        what = f"destroying GPU instance {gpu_instance}"
        queries = NvmlQueries()
        for device in self._mig_devices(queries).get(gpu_instance, ()):
            processes = len(processes_on(device.handle, queries))
            if processes:  # Before anything of it is destroyed.
                raise self._refused(what, f"{device.uuid} is used by {processes} processes")
        instance = queries.ask(
            None, pynvml.nvmlDeviceGetGpuInstanceById, self._handle, gpu_instance
        )
        if instance is None:
            return
        for compute in _compute_instances(instance, queries):
            self._do(what, pynvml.nvmlComputeInstanceDestroy, compute)
        self._do(what, pynvml.nvmlGpuInstanceDestroy, instance)

    def _complete(self, instance: Handle) -> None:
        what = "creating a compute instance"
        largest = max(
            _compute_profiles(instance, NvmlQueries()),
            key=lambda info: info.sliceCount,
            default=None,
        )
        if largest is None:
            raise self._refused(what, "the driver has no profile for it")
        self._do(what, pynvml.nvmlGpuInstanceCreateComputeInstance, instance, largest.id)

    def _do(self, subject: str, function: "Callable[..., Result]", *arguments: object) -> Result:
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            raise self._refused(subject, f"NVML: {error}") from error

    def _refused(self, subject: str, cause: str) -> PartitioningError:
        return PartitioningError(f"{subject} on {self._uuid} was refused: {cause}")

    def _mig_devices(self, queries: NvmlQueries) -> dict[int, list[_MigDevice]]:
        """Return GPU instance -> its compute instances."""
        found: dict[int, list[_MigDevice]] = defaultdict(list)
        most = queries.ask(0, pynvml.nvmlDeviceGetMaxMigDeviceCount, self._handle)
        for index in range(most):
            handle = queries.ask(
                None, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, self._handle, index
            )
            if handle is None:
                continue
            gpu_instance = queries.ask(None, pynvml.nvmlDeviceGetGpuInstanceId, handle)
            compute = queries.ask(None, pynvml.nvmlDeviceGetComputeInstanceId, handle)
            uuid = queries.ask("", pynvml.nvmlDeviceGetUUID, handle)
            if gpu_instance is None or compute is None or not uuid:
                continue  # It was destroyed meanwhile.
            sizes = queries.ask(None, pynvml.nvmlDeviceGetAttributes, handle)
            slices = 0 if sizes is None else sizes.computeInstanceSliceCount
            is_whole = sizes is None or slices == sizes.gpuInstanceSliceCount
            found[gpu_instance].append(_MigDevice(handle, compute, uuid, is_whole, slices))
        return found

    def _instances(
        self, profiles: Profiles, devices: dict[int, list[_MigDevice]], queries: NvmlQueries
    ) -> tuple[DriverInstance, ...]:
        found = []
        for profile in profiles:
            for gpu_instance in self._gpu_instances(profile, queries):
                info = queries.ask(None, pynvml.nvmlGpuInstanceGetInfo, gpu_instance)
                if info is not None:
                    instance = _instance(int(info.id), profile, devices.get(int(info.id), []))
                    found.append(replace(instance, start=int(info.placement.start)))
        return tuple(sorted(found, key=lambda instance: instance.gpu_instance))

    def _gpu_instances(self, profile: _GpuProfile, queries: NvmlQueries) -> "Iterator[Any]":
        buffer = (pynvml.c_nvmlGpuInstance_t * profile.capacity)()
        count = ctypes.c_uint(0)
        if (
            queries.ask(
                None,
                pynvml.nvmlDeviceGetGpuInstances,
                self._handle,
                profile.id,
                buffer,
                ctypes.byref(count),
            )
            is None
        ):
            return
        yield from buffer[: count.value]


def _instance(gpu_instance: int, profile: _GpuProfile, devices: list[_MigDevice]) -> DriverInstance:
    if not devices:
        return DriverInstance(gpu_instance=gpu_instance, profile=profile.name)
    lowest = min(devices, key=lambda device: device.compute_instance)
    return DriverInstance(
        gpu_instance=gpu_instance,
        profile=profile.name if lowest.is_whole else f"{lowest.slices}c.{profile.name}",
        uuid=lowest.uuid,
        compute_instance=lowest.compute_instance,
    )


def _compute_profiles(instance: Handle, queries: NvmlQueries) -> "Iterator[Any]":
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = queries.ask(
            None,
            pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo,
            instance,
            number,
            pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
            1,
        )
        if info is not None:
            yield info


def _compute_instances(instance: Handle, queries: NvmlQueries) -> "Iterator[Any]":
    for info in _compute_profiles(instance, queries):
        buffer = (pynvml.c_nvmlComputeInstance_t * max(1, info.instanceCount))()
        count = ctypes.c_uint(0)
        if (
            queries.ask(
                None,
                pynvml.nvmlGpuInstanceGetComputeInstances,
                instance,
                info.id,
                buffer,
                ctypes.byref(count),
            )
            is not None
        ):
            yield from buffer[: count.value]
