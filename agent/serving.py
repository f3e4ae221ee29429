"""All plugins of one process: one for each resource that is offered, or was."""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, final

from agent.plugin import DEFAULT_CDI_KIND, DevicePlugin
from agent.registering import ServedPlugin

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agent.offers import Offer
    from api.clock import Clock
    from api.poolconfig import HandOut

TEND_EVERY_S: Final = 0.2
"""A kubelet that restarts leaves 0.9 s to register again, or waiting pods fail."""
ALIVE_WITHIN_S: Final = 60.0
"""A kubelet that hangs keeps a registration for 12 s, one after the other where there are several."""


@final
class ServedPools:
    """Serves what is offered."""

    def __init__(
        self,
        directory: "Path",
        clock: "Clock",
        *,
        hand_out: "HandOut",
        cdi_kind: str = DEFAULT_CDI_KIND,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._hand_out = hand_out
        self._cdi_kind = cdi_kind
        self._served: dict[str, ServedPlugin] = {}
        # resource -> its plugin
        self._has_offers = False
        self._tended_at = clock.monotonic()

    def offer(self, offers: "Iterable[Offer]") -> None:
        """Offer exactly this from now on.

        A resource that is not offered any more goes on being served, without units: kubelet would
        keep counting those of a plugin that went away.
        """
        self._has_offers = True
        units_by_resource = {one.resource: one.units for one in offers}
        for resource in units_by_resource.keys() - self._served.keys():
            plugin = DevicePlugin(resource, hand_out=self._hand_out, cdi_kind=self._cdi_kind)
            self._served[resource] = ServedPlugin(plugin, self._directory, self._clock)
        for resource, served in self._served.items():
            served.plugin.offer(units_by_resource.get(resource, ()))

    @property
    def missing(self) -> list[str]:
        """Return what is missing before pods can be given devices; nothing where all is well."""
        if not self._has_offers:
            return ["no list of cards was read yet"]
        return [
            f"{resource} is not registered with kubelet"
            for resource, served in sorted(self._served.items())
            if not served.is_registered
        ]

    @property
    def is_alive(self) -> bool:
        """Say whether the plugins were tended lately."""
        return self._clock.monotonic() - self._tended_at < ALIVE_WITHIN_S

    async def run(self) -> NoReturn:
        """Tend the plugins until cancelled, and stop them then."""
        try:
            while True:
                await self.tend()
                await asyncio.sleep(TEND_EVERY_S)
        finally:
            for served in self._served.values():
                await served.close()

    async def tend(self) -> None:
        """Look at every plugin once; one that waits for kubelet keeps no other waiting."""
        async with asyncio.TaskGroup() as group:
            for resource, served in self._served.items():
                group.create_task(served.tend(), name=f"tend {resource}")
        self._tended_at = self._clock.monotonic()
