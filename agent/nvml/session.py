"""A session with NVML, and its snapshots: blocking code for a thread that may hang.

Profiles of GPU instances, which a device keeps while the driver is loaded, are read once a session. NVML finds devices
when it is initialised and not later: a session is stale when the bus has other devices than at its start.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, final

import pynvml

from agent.driver.device_fields import DeviceSample, DeviceSamples
from agent.driver.port import DriverDevice, DriverSnapshot
from agent.nvml.convert import MIB, address_of, cuda_version_of, watts_of
from agent.nvml.device_samples import device_samples
from agent.nvml.errors import (
    DeviceLostError,
    Handle,
    NvmlQueries,
    SessionStaleError,
    is_session_stale,
    unavailable,
)
from agent.nvml.links import DeviceLinks
from agent.nvml.mig import MigDevice, Profiles, read_profiles
from agent.nvml.recovery_actions import recovery_action
from telemetry.conditions import AgentDegraded

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.driver.port import DriverLink
    from api.clock import Clock
    from inventory.health.recovery import RecoveryAction

    Bus = Callable[[], frozenset[str]]
    Load = Callable[[], str]


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a device, kept so that it has a name after it is lost."""

    address: str
    uuid: str
    minor: int


@final
class NvmlSession:
    """NVML, initialised with the first call; for one thread, and one initialisation of NVML's count."""

    def __init__(
        self, clock: "Clock", *, load: "Load", bus: "Bus", identities: dict[int, Identity]
    ) -> None:
        """Nothing is opened yet.

        Args:
            clock: for the age of cached links.
            load: loads the library; raises DriverUnavailableError.
            bus: a value that changes when a device comes, goes, or is bound to a driver.
            identities: index -> last device there, kept over sessions as long as NVML counts as many devices.
        """
        self._clock = clock
        self._load = load
        self._bus = bus
        self._identities = identities
        self._is_open = False
        self._is_proven = False  # A device has answered in this session.
        self._on_bus: frozenset[str] = frozenset()
        self._profiles: dict[tuple[str, bool], Profiles] = {}  # uuid, MIG enabled -> its profiles
        self._links = DeviceLinks(clock)

    def open(self) -> None:
        """Initialise NVML, if it is not.

        Raises:
            DriverUnavailableError: no library, no driver, or it does not work.
        """
        if self._is_open:
            return
        self._load()
        on_bus = self._bus()
        try:
            pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
        except pynvml.NVMLError as error:
            raise unavailable(error) from error
        self._is_open = True
        self._is_proven = False
        self._on_bus = on_bus

    def close(self) -> None:
        """Shut NVML down, and forget what was cached."""
        self._profiles.clear()
        self._links = DeviceLinks(self._clock)
        if not self._is_open:
            return
        self._is_open = False
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return  # It is shut down already.

    def read(self) -> DriverSnapshot:
        """Read all devices.

        Raises:
            DriverUnavailableError: there is no driver.
            SessionStaleError: there is another driver, or the bus has other devices; `close` helps.
        """
        self._renew()
        queries = NvmlQueries()
        try:
            version: str = pynvml.nvmlSystemGetDriverVersion()
            count: int = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise unavailable(error) from error
        cuda = queries.ask(0, pynvml.nvmlSystemGetCudaDriverVersion_v2)
        if len(self._identities) > count:
            self._identities.clear()
        of_devices = NvmlQueries()
        devices = self._devices(count, of_devices)
        if of_devices.are_unknown and self._is_proven:
            raise _stale_session("NVML: no device answers; the driver was loaded again")
        self._is_proven = self._is_proven or not of_devices.are_unknown
        return DriverSnapshot(
            driver_version=version,
            cuda_version=cuda_version_of(cuda) if cuda else "",
            devices=tuple(sorted(devices, key=lambda device: device.address)),
        )

    def measure(self, *, reads_processes: bool) -> DeviceSamples:
        """Read the metrics of all devices that answer, with their processes where that is asked for.

        Raises:
            DriverUnavailableError: as `read`.
        """
        self._renew()
        try:
            count: int = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise unavailable(error) from error
        queries = NvmlQueries()
        found: list[DeviceSample] = []
        changed = 0
        for index in range(count):
            try:
                samples = self._samples(index, queries, reads_processes=reads_processes)
            except DeviceLostError:
                continue
            changed += samples is None
            found += samples or ()
        return DeviceSamples(tuple(found), changed)

    def recovery_actions(self) -> "dict[str, RecoveryAction | None]":
        """Read the recovery actions by UUID, of the devices that answer.

        Raises:
            DriverUnavailableError: as `read`.
        """
        self._renew()
        queries = NvmlQueries()
        found = {}
        for identity in self._identities.values():
            try:
                handle = queries.ask(None, pynvml.nvmlDeviceGetHandleByUUID, identity.uuid)
                if handle is not None:
                    found[identity.uuid] = recovery_action(handle, queries)
            except DeviceLostError:
                continue
        return found

    def device(self, uuid: str) -> MigDevice:
        """Return a device to be partitioned.

        Raises:
            DeviceLostError: it is lost, or missing.
            SessionStaleError: as in `read`. Nothing was done then.
        """
        self.open()
        try:
            return MigDevice(uuid, pynvml.nvmlDeviceGetHandleByUUID(uuid))
        except pynvml.NVMLError as error:
            if is_session_stale(error):
                raise unavailable(error) from error
            raise DeviceLostError from error

    def _renew(self) -> None:
        self.open()
        if self._bus() != self._on_bus:
            raise _stale_session("NVML: devices came or went since its initialisation")

    def _samples(
        self, index: int, queries: NvmlQueries, *, reads_processes: bool
    ) -> tuple[DeviceSample, ...] | None:
        identity, handle = _identify(index, queries)
        device = DeviceSample(
            index=index,
            address=identity.address,
            uuid=identity.uuid,
            minor=identity.minor,
            product=queries.ask("", pynvml.nvmlDeviceGetName, handle),
        )
        mig = MigDevice(identity.uuid, handle)
        return device_samples(
            device,
            handle,
            instances=partial(mig.instances, queries, self._profiles_of),
            queries=queries,
            reads_processes=reads_processes,
        )

    def _devices(self, count: int, queries: NvmlQueries) -> list[DriverDevice]:
        reached: dict[Identity, Handle] = {}  # identity -> handle
        lost = []
        for index in range(count):
            try:
                identity, handle = _identify(index, queries)
            except DeviceLostError:
                if index in self._identities:
                    lost.append(_lost_device(self._identities[index]))
                continue
            self._identities[index] = identity
            reached[identity] = handle
        handles = {identity.address: handle for identity, handle in reached.items()}
        links = self._links.between(handles, queries)
        devices = [
            self._device(identity, handle, links=links[identity.address], queries=queries)
            for identity, handle in reached.items()
        ]
        return devices + lost

    def _device(
        self,
        identity: Identity,
        handle: Handle,
        *,
        links: "tuple[DriverLink, ...]",
        queries: NvmlQueries,
    ) -> DriverDevice:
        ask = queries.ask
        try:
            memory = ask(None, pynvml.nvmlDeviceGetMemoryInfo, handle)
            capability = ask(None, pynvml.nvmlDeviceGetCudaComputeCapability, handle)
            power = ask(None, pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
            limits = ask((None, None), pynvml.nvmlDeviceGetPowerManagementLimitConstraints, handle)
            remapped = ask(None, pynvml.nvmlDeviceGetRemappedRows, handle)
            mig = MigDevice(identity.uuid, handle).read(queries, self._profiles_of)
            return DriverDevice(
                address=identity.address,
                uuid=identity.uuid,
                minor=identity.minor,
                product=ask("", pynvml.nvmlDeviceGetName, handle),
                memory_mib=None if memory is None else memory.total // MIB,
                compute_capability=None
                if capability is None
                else f"{capability[0]}.{capability[1]}",
                power_limit_watts=watts_of(power),
                max_power_limit_watts=watts_of(limits[1]),
                links=links,
                is_mig_capable=mig.is_capable,
                is_mig_enabled=mig.is_enabled,
                is_mig_pending=mig.is_pending,
                profiles=mig.profiles,
                instances=mig.instances,
                processes=mig.processes,
                temperature_celsius=ask(
                    None, pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU
                ),
                shutdown_temperature_celsius=ask(
                    None,
                    pynvml.nvmlDeviceGetTemperatureThreshold,
                    handle,
                    pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,
                ),
                uncorrectable_errors=ask(
                    None,
                    pynvml.nvmlDeviceGetTotalEccErrors,
                    handle,
                    pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                    pynvml.NVML_VOLATILE_ECC,
                ),
                is_row_remap_failed=None if remapped is None else bool(remapped[3]),
                recovery_action=recovery_action(handle, queries),
            )
        except DeviceLostError:
            return _lost_device(identity)

    def _profiles_of(
        self, uuid: str, handle: Handle, *, is_enabled: bool, queries: NvmlQueries
    ) -> Profiles:
        key = (uuid, is_enabled)
        if key not in self._profiles:
            self._profiles[key] = read_profiles(handle, queries)
        return self._profiles[key]


def _stale_session(text: str) -> SessionStaleError:
    return SessionStaleError(AgentDegraded.DRIVER_FAILS, text)


def _identify(index: int, queries: NvmlQueries) -> tuple[Identity, Handle]:
    """Return the identity of a device; DeviceLostError for one that cannot be reached, for any reason."""
    handle = queries.ask(None, pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        raise DeviceLostError
    pci = queries.ask(None, pynvml.nvmlDeviceGetPciInfo, handle)
    uuid = queries.ask("", pynvml.nvmlDeviceGetUUID, handle)
    address = None if pci is None else address_of(pci.busId)
    if address is None or not uuid:
        raise DeviceLostError
    return Identity(address, uuid, queries.ask(-1, pynvml.nvmlDeviceGetMinorNumber, handle)), handle


def _lost_device(identity: Identity) -> DriverDevice:
    return DriverDevice(
        address=identity.address, uuid=identity.uuid, minor=identity.minor, product="", is_lost=True
    )
