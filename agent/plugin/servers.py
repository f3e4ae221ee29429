"""All plugins of one process: one for each resource that is offered, or was."""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, final

from agent.errors import BadPoolConfigError
from agent.plugin.advertised import as_seen
from agent.plugin.container_response import ResponseTerms, with_files
from agent.plugin.registration import ServedPlugin
from agent.plugin.service import DevicePluginService
from agent.problems.registry import ProblemRegistry
from agent.settings import CDI_KIND
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agent.plugin.advertised import AdvertisedUnits
    from agent.plugin.devices_file import NodeFile
    from agent.plugin.preferred_allocation import PreferredAllocator
    from api.clock import Clock
    from api.nodefiles.poolconfig import HandOut

TEND_EVERY_S: Final = 0.1
"""A kubelet that restarts leaves 0.9 s to register again, or waiting pods fail."""
ALIVE_WITHIN_S: Final = 60.0
"""A kubelet that hangs keeps a registration for 12 s, one after the other where there are several."""

DEVICES_SOURCE: Final = "plugin.cards"


@final
class PluginServers:
    """Serves what is offered."""

    def __init__(  # noqa: PLR0913  # the parts that it wires
        self,
        directory: "Path",
        clock: "Clock",
        *,
        hand_out: "HandOut",
        cdi_kind: str = CDI_KIND,
        devices: "NodeFile | None" = None,
        preferences: "PreferredAllocator | None" = None,
        problems: "ProblemRegistry | None" = None,
    ) -> None:
        """Serve in kubelet's directory of plugins.

        Args:
            directory: where kubelet's socket of registrations is.
            clock: the process's.
            hand_out: how containers come to devices.
            cdi_kind: under which the CDI specification names them.
            devices: what the node's agent says of its cards; None takes all to be well.
            preferences: by whom pods are recognised; None lets kubelet choose the units.
            problems: where trouble is told; None where nobody reads of it.
        """
        self._directory = directory
        self._clock = clock
        self._hand_out = hand_out
        self._cdi_kind = cdi_kind
        self._devices = devices
        self._preferences = preferences
        self._problems = problems or ProblemRegistry()
        self._served: dict[str, ServedPlugin] = {}
        # resource -> its plugin
        self._offers: dict[str, AdvertisedUnits] | None = None
        # by resource
        self._tended_at = clock.monotonic()
        self._tending: dict[str, float] = {}
        # resource -> since when

    def offer(self, offers: "Iterable[AdvertisedUnits]") -> None:
        """Offer exactly this from now on.

        A resource that is not offered any more goes on being served, without units: kubelet would
        keep counting those of a plugin that went away.
        """
        self._offers = {one.resource: one for one in offers}
        for resource in self._offers.keys() - self._served.keys():
            plugin = DevicePluginService(resource, self._clock, preferences=self._preferences)
            self._served[resource] = ServedPlugin(
                plugin, self._directory, self._clock, problems=self._problems
            )
        self._show()

    @property
    def missing(self) -> list[str]:
        """Return what is missing before pods can be given devices; nothing where all is well."""
        if self._offers is None:
            return ["no list of cards was read yet"]
        return [
            f"{resource} is not registered with kubelet"
            for resource, served in sorted(self._served.items())
            if not served.is_registered
        ]

    @property
    def is_alive(self) -> bool:
        """Say whether the plugins were tended lately, every one of them."""
        oldest = min(self._tending.values(), default=self._tended_at)
        return self._clock.monotonic() - min(oldest, self._tended_at) < ALIVE_WITHIN_S

    async def run(self) -> NoReturn:
        """Tend the plugins until cancelled, and stop them then."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._look(group)
                    await asyncio.sleep(TEND_EVERY_S)
        finally:
            async with asyncio.TaskGroup() as group:
                for resource, served in self._served.items():
                    group.create_task(served.close(), name=f"close {resource}")

    def _look(self, group: asyncio.TaskGroup) -> None:
        self._look_at_devices()
        self._tended_at = self._clock.monotonic()
        # One that waits for kubelet keeps no other waiting.
        for resource in self._served.keys() - self._tending.keys():
            self._tending[resource] = self._tended_at
            group.create_task(self._tend(resource), name=f"tend {resource}")

    async def _tend(self, resource: str) -> None:
        try:
            await self._served[resource].tend()
        finally:
            del self._tending[resource]

    def _look_at_devices(self) -> None:
        if self._devices is None:
            return
        try:
            if self._devices.look():
                self._problems.clear(DEVICES_SOURCE)
                self._show()
        except BadPoolConfigError as error:
            TASK_FAILURES.labels("plugin.cards").inc()
            self._problems.set(DEVICES_SOURCE, AgentDegraded.BAD_CONFIG, str(error))

    def _show(self) -> None:
        """Offer what is listed, as healthy as the node's cards are."""
        devices = self._devices.devices if self._devices is not None else None
        for resource, served in self._served.items():
            offer = (self._offers or {}).get(resource)
            if offer is None:
                served.plugin.offer(())
                continue
            terms = ResponseTerms(pool=offer.pool, hand_out=self._hand_out, cdi_kind=self._cdi_kind)
            units = as_seen(offer.units, devices.fault_of) if devices is not None else offer.units
            served.plugin.offer(with_files(units, terms, devices), terms, devices)
