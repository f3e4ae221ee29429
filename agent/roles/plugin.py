"""The role device-plugin: the source of units and the plugins that serve them."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, final

from agent.plugin.config_sources import ClusterSource, FileSource
from agent.plugin.devices_file import DevicesFile
from agent.plugin.held_units import HeldUnits
from agent.plugin.numa_hints import NumaHints
from agent.plugin.pods_file import PodsFile
from agent.plugin.pool_config import ConfigFile
from agent.plugin.preferred_allocation import PreferredAllocator
from agent.plugin.servers import PluginServers
from agent.problems.file_writer import ProblemsFileWriter
from agent.settings import AgentRole
from api.nodefiles.pluginproblems import PROBLEMS_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from agent.api_cache import NodeObjects
    from agent.context import AgentContext

PODS_WITHIN_S: Final = 10.0
"""An unreachable API server must not keep pods from their devices: PodResources has to do then."""


@final
class PluginRole:
    """Serves the pool of a file, or all pools of the node."""

    def __init__(self, dependencies: "AgentContext", objects: "NodeObjects | None") -> None:
        """Wire the role; `objects` is needed where no pool file is configured."""
        settings = dependencies.settings
        self._pods_synced = dependencies.pod_informer.synced
        allocator = PreferredAllocator(
            dependencies.pods,
            dependencies.kubelet,
            held_units=HeldUnits(
                dependencies.pods, PodsFile(settings.run_directory, dependencies.clock)
            ),
            events=dependencies.events,
            problems=dependencies.problems,
        )
        self._numa_hints = NumaHints(
            dependencies.kubelet, is_of_a_pool=lambda item: item in self._served.resources
        )
        self._served = PluginServers(
            settings.plugins_directory,
            dependencies.clock,
            hand_out=settings.hand_out,
            cdi_kind=settings.cdi_kind,
            devices=DevicesFile(settings.run_directory),
            allocator=allocator,
            problems=dependencies.problems,
            reports_numa_nodes=lambda: self._numa_hints.are_useful,
        )
        self._source: FileSource | ClusterSource
        if settings.config is not None:
            self._source = FileSource(
                ConfigFile(settings.config),
                settings.node,
                self._served,
                problems=dependencies.problems,
            )
        elif objects is not None:
            self._source = ClusterSource(objects, self._served)
        else:
            raise ValueError("neither a pool file nor the objects of all pools")
        self._problems_file: ProblemsFileWriter | None = None
        # The inventory role writes the condition AgentDegraded itself and needs no file.
        if settings.pool and AgentRole.INVENTORY not in settings.roles:
            directory = settings.run_directory / PROBLEMS_DIRECTORY
            self._problems_file = ProblemsFileWriter(
                directory, dependencies.problems, pool=settings.pool
            )

    @property
    def is_alive(self) -> bool:
        return self._served.is_alive

    @property
    def missing(self) -> list[str]:
        """Return what is missing before pods can get devices."""
        return self._served.missing

    def tasks(self) -> "dict[str, Coroutine[Any, Any, object]]":
        """Return the tasks by name; each runs until cancelled."""
        tasks: dict[str, Coroutine[Any, Any, object]] = {
            "plugin.source": self._follow(),
            "plugins": self._served.run(),
            "plugin.numa": self._numa_hints.run(),
        }
        if self._problems_file is not None:
            tasks["plugin.problems"] = self._problems_file.run()
        return tasks

    async def _follow(self) -> None:
        """Advertise nothing before the node's pods are known: kubelet may be waiting to admit some of them."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PODS_WITHIN_S):
                await self._pods_synced.wait()
        # kubelet may have pods to align with CPUs as soon as it has the devices.
        await self._numa_hints.read()
        await self._source.run()
