"""All device plugins of one process: one for each resource that is or was advertised."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NoReturn, final

from agent.errors import BadPoolConfigError
from agent.plugin.advertised import with_health, with_numa_nodes
from agent.plugin.container_response import ResponseParameters, with_device_files
from agent.plugin.registration import ServedPlugin
from agent.plugin.service import DevicePluginService
from agent.problems.registry import ProblemRegistry
from agent.settings import CDI_KIND
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from agent.plugin.advertised import AdvertisedUnits
    from agent.plugin.devices_file import DevicesFile
    from agent.plugin.preferred_allocation import PreferredAllocator
    from api.clock import Clock
    from api.nodefiles.poolconfig import DeviceInjection

RECONCILE_EVERY_S: Final = 0.1
"""A kubelet that restarts leaves 0.9 s to register again, or waiting pods fail."""
PAUSE_S: Final = 0.01
"""Seconds after the end of a stream: kubelet drops all that it has of a resource's plugins one after the other."""
ALIVE_WITHIN_S: Final = 60.0
"""A kubelet that hangs keeps a registration for 12 s, one after the other where there are several."""

DEVICES_SOURCE: Final = "plugin.devices"


@final
class PluginServers:
    """Serves the advertised units, and keeps each plugin registered."""

    def __init__(  # noqa: PLR0913  # the parts that it wires
        self,
        directory: "Path",
        clock: "Clock",
        *,
        hand_out: "DeviceInjection",
        cdi_kind: str = CDI_KIND,
        devices: "DevicesFile | None" = None,
        allocator: "PreferredAllocator | None" = None,
        problems: "ProblemRegistry | None" = None,
        reports_numa_nodes: "Callable[[], bool]" = lambda: False,
    ) -> None:
        """Serve in kubelet's directory of plugins.

        Args:
            directory: of kubelet's registration socket and the plugins' sockets.
            clock: of the process.
            hand_out: how a container gets its devices.
            cdi_kind: the kind of the devices in the CDI specification.
            devices: the agent's file of the node's devices; None takes all to be healthy.
            allocator: selects preferred units; None lets kubelet choose.
            problems: collects problems for the condition AgentDegraded.
            reports_numa_nodes: whether kubelet is told the devices' NUMA nodes (`agent.plugin.numa_hints`).
        """
        self._directory = directory
        self._clock = clock
        self._hand_out = hand_out
        self._cdi_kind = cdi_kind
        self._devices = devices
        self._allocator = allocator
        self._problems = problems or ProblemRegistry()
        self._reports_numa_nodes = reports_numa_nodes
        self._has_reported_numa_nodes = False
        self._served: dict[str, ServedPlugin] = {}
        # resource -> its plugin
        self._advertised: dict[str, AdvertisedUnits] | None = None
        # by resource
        self._reconciled_at = clock.monotonic()
        self._reconciling: dict[str, float] = {}
        # resource -> start of the running reconcile
        self._stream_ended = asyncio.Event()

    def advertise(self, advertised: "Iterable[AdvertisedUnits]") -> None:
        """Advertise exactly these units from now on.

        A resource that is not advertised any more is still served, without units: kubelet would keep
        counting the units of a plugin that went away.
        """
        self._advertised = {item.resource: item for item in advertised}
        for resource in self._advertised.keys() - self._served.keys():
            plugin = DevicePluginService(resource, self._clock, allocator=self._allocator)
            plugin.on_stream_end = self._stream_ended.set
            self._served[resource] = ServedPlugin(
                plugin, self._directory, self._clock, problems=self._problems
            )
        self._update_plugins()

    @property
    def resources(self) -> "frozenset[str]":
        """The resources that are served."""
        return frozenset(self._served)

    @property
    def missing(self) -> list[str]:
        """Return the reasons why pods cannot get devices yet; empty once they can."""
        if self._advertised is None:
            return ["no pool configuration was read yet"]
        return [
            f"{resource} is not registered with kubelet"
            for resource, served in sorted(self._served.items())
            if not served.is_registered
        ]

    @property
    def is_alive(self) -> bool:
        """Return whether every plugin was reconciled within `ALIVE_WITHIN_S`."""
        oldest = min(self._reconciling.values(), default=self._reconciled_at)
        return self._clock.monotonic() - min(oldest, self._reconciled_at) < ALIVE_WITHIN_S

    async def run(self) -> NoReturn:
        """Reconcile the plugins until cancelled, and stop them then."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._start_reconciles(group)
                    await self._wait_for_stream_end()
        finally:
            async with asyncio.TaskGroup() as group:
                for resource, served in self._served.items():
                    group.create_task(served.close(), name=f"close {resource}")

    async def _wait_for_stream_end(self) -> None:
        """Return soon after a stream has ended, or after `RECONCILE_EVERY_S`.

        Where an older plugin of a resource ends, kubelet drops the newer one, too, and rejects pods until that one is
        registered again.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECONCILE_EVERY_S):
                await self._stream_ended.wait()
                await asyncio.sleep(PAUSE_S)
        self._stream_ended.clear()

    def _start_reconciles(self, group: asyncio.TaskGroup) -> None:
        self._reload_devices()
        if self._reports_numa_nodes() is not self._has_reported_numa_nodes:
            self._update_plugins()
        self._reconciled_at = self._clock.monotonic()
        # A plugin that waits for kubelet does not delay the others.
        for resource in self._served.keys() - self._reconciling.keys():
            self._reconciling[resource] = self._reconciled_at
            group.create_task(self._reconcile(resource), name=f"reconcile {resource}")

    async def _reconcile(self, resource: str) -> None:
        try:
            await self._served[resource].reconcile()
        finally:
            del self._reconciling[resource]

    def _reload_devices(self) -> None:
        if self._devices is None:
            return
        try:
            if self._devices.reload():
                self._problems.clear(DEVICES_SOURCE)
                self._update_plugins()
        except BadPoolConfigError as error:
            TASK_FAILURES.labels("plugin.devices").inc()
            self._problems.set(DEVICES_SOURCE, AgentDegraded.BAD_CONFIG, str(error))

    def _update_plugins(self) -> None:
        devices = self._devices.devices if self._devices is not None else None
        self._has_reported_numa_nodes = self._reports_numa_nodes()
        for resource, served in self._served.items():
            advertised = (self._advertised or {}).get(resource)
            if advertised is None:
                served.plugin.advertise(())
                continue
            parameters = ResponseParameters(
                pool=advertised.pool,
                hand_out=self._hand_out,
                cdi_kind=self._cdi_kind,
                slice_placement=advertised.slice_placement,
            )
            units = advertised.units
            if devices is not None:
                units = with_health(units, devices.fault_of)
            if self._has_reported_numa_nodes:
                units = with_numa_nodes(units)
            served.plugin.advertise(
                with_device_files(units, parameters, devices), parameters, devices
            )
