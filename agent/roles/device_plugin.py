"""The role device-plugin: where the units come from, and who serves them."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, final

from agent.plugin.config_sources import ClusterSource, FileSource
from agent.plugin.devices_file import NodeFile
from agent.plugin.held_units import HeldUnits
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
"""An API server that is away must not keep pods from their devices: kubelet's word has to do then."""


@final
class PluginRole:
    """Serves the pool of a file, or all pools of the node."""

    def __init__(self, dependencies: "AgentContext", objects: "NodeObjects | None") -> None:
        """Take what is shared; `objects` where no file says what to serve."""
        settings = dependencies.settings
        self._pods_synced = dependencies.pod_informer.synced
        preferences = PreferredAllocator(
            dependencies.pods,
            dependencies.kubelet,
            holdings=HeldUnits(
                dependencies.pods, PodsFile(settings.run_directory, dependencies.clock)
            ),
            teller=dependencies.events,
            problems=dependencies.problems,
        )
        self._served = PluginServers(
            settings.plugins_directory,
            dependencies.clock,
            hand_out=settings.hand_out,
            cdi_kind=settings.cdi_kind,
            devices=NodeFile(settings.run_directory),
            preferences=preferences,
            problems=dependencies.problems,
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
            raise ValueError("neither a list of cards, nor the objects of all pools")
        self._problems_file: ProblemsFileWriter | None = None
        # An agent that has the node's condition needs no file to tell itself.
        if settings.pool and AgentRole.INVENTORY not in settings.roles:
            directory = settings.run_directory / PROBLEMS_DIRECTORY
            self._problems_file = ProblemsFileWriter(
                directory, dependencies.problems, pool=settings.pool
            )

    @property
    def is_alive(self) -> bool:
        """Say whether every plugin was tended lately."""
        return self._served.is_alive

    @property
    def missing(self) -> list[str]:
        """Return what is missing before pods can be given devices."""
        return self._served.missing

    def tasks(self) -> "dict[str, Coroutine[Any, Any, object]]":
        """Return the tasks by name; each runs until cancelled."""
        tasks: dict[str, Coroutine[Any, Any, object]] = {
            "plugin.source": self._follow(),
            "plugins": self._served.run(),
        }
        if self._problems_file is not None:
            tasks["plugin.problems"] = self._problems_file.run()
        return tasks

    async def _follow(self) -> None:
        """Offer nothing before the node's pods are known: kubelet may be waiting with some of them."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PODS_WITHIN_S):
                await self._pods_synced.wait()
        await self._source.run()
