"""Whether the plugins tell kubelet on which NUMA node a device is.

With a TopologyManager policy kubelet takes the devices of the NUMA nodes that it chooses, by what is free at that
moment as far as it knows: pods that are bound and not admitted yet count for nothing, and a device that was freed a
moment ago is free to kubelet before anybody else knows. So it may choose other NUMA nodes than those of the devices
that a pod was bound with; the pod gets other devices, or is rejected. Without NUMA nodes kubelet asks for a
preference among all free devices, and takes what the pod was bound with: the devices of a pod are aligned already, by
the same policy (`pool.placement.kubelet_hints`).

NUMA nodes serve a purpose only where kubelet aligns something else with the devices: CPUs (`cpuManagerPolicy: static`),
memory (`memoryManagerPolicy: Static`), or the devices of other plugins that have NUMA nodes, such as network cards.
There they are told, and kubelet has the last word. PodResources says which is the case, to each plugin, and to the
inventory, by which pods are bound with the devices that kubelet will choose (`pool.placement.kubelet_choice`).
"""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, final

import structlog

from agent.errors import KubeletUnavailableError
from api.names import RESOURCE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

READ_EVERY_S: Final = 10.0
"""Another plugin may register at any time, and a kubelet start with other policies."""

_log = structlog.get_logger()


class NumaResources(Protocol):
    """kubelet's PodResources API; `agent.kubelet.pod_resources.PodResources`."""

    async def numa_resources(self) -> "frozenset[str]":
        """Return what kubelet knows the NUMA nodes of: `cpu`, `memory`, and resources of device plugins.

        Raises:
            KubeletUnavailableError: no valid response in time.
        """


@final
class NumaHints:
    """What the last answer of kubelet says; nothing before the first one."""

    def __init__(
        self,
        kubelet: NumaResources,
        *,
        is_of_a_pool: "Callable[[str], bool]",
        on_change: "Callable[[], None]" = lambda: None,
    ) -> None:
        """`is_of_a_pool` says whether a resource without our prefix is one of a pool."""
        self._kubelet = kubelet
        self._is_of_a_pool = is_of_a_pool
        self.aligned: tuple[str, ...] = ()
        """The resources that kubelet aligns with the devices, in order."""
        self._on_change = on_change

    @property
    def are_useful(self) -> bool:
        return bool(self.aligned)

    async def run(self) -> NoReturn:
        """Read until cancelled."""
        while True:
            await self.read()
            await asyncio.sleep(READ_EVERY_S)

    async def read(self) -> None:
        """Read once; a kubelet that does not answer changes nothing."""
        try:
            found = await self._kubelet.numa_resources()
        except KubeletUnavailableError as error:
            # The calls that depend on kubelet report it.
            _log.info("kubelet did not say what it aligns", error=str(error))
            return
        others = tuple(
            item
            for item in sorted(found)
            if not (item.startswith(RESOURCE_PREFIX) or self._is_of_a_pool(item))
        )
        if others != self.aligned:
            self.aligned = others
            _log.info(
                "NUMA nodes are told to kubelet", reported=self.are_useful, aligned_with=others
            )
            self._on_change()
