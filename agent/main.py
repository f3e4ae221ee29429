"""The process of `agent`: its roles, its tasks, and its shutdown."""

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NoReturn, final

import structlog

from agent.api_access import connect
from agent.api_cache import NodeObjects
from agent.context import AgentContext
from agent.errors import AgentUnusableError
from agent.probes import serving_probes
from agent.settings import AgentRole, AgentSettings
from kube.client import KubeClient
from kube.config.connection import BadConfigurationError
from telemetry.tasks import StoppedError, start_all, stop_signals

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from agent.device_metrics.source import DeviceMetrics
    from agent.roles.caches import CachesRole
    from agent.roles.inventory import InventoryRole
    from agent.roles.plugin import PluginRole
    from agent.roles.validator import ValidatorRole
    from api.clock import Clock

_log = structlog.get_logger()


@final
class Agent:
    """The roles of one process."""

    def __init__(self, dependencies: AgentContext) -> None:
        settings = dependencies.settings
        roles = settings.roles
        serves_all = AgentRole.DEVICE_PLUGIN in roles and settings.config is None
        self._dependencies = dependencies
        self._objects: NodeObjects | None = None
        if roles & {AgentRole.MIG, AgentRole.VALIDATOR} or serves_all:
            self._objects = NodeObjects(dependencies.client, dependencies.clock, node=settings.node)
        self._plugin: PluginRole | None = None
        # Each role imports its own libraries: NVML's module, and gRPC's server.
        if AgentRole.DEVICE_PLUGIN in roles:
            from agent.roles import plugin  # noqa: PLC0415

            self._plugin = plugin.PluginRole(dependencies, self._objects)
        self._caches: CachesRole | None = None
        if AgentRole.CACHES in roles:
            from agent.roles import caches  # noqa: PLC0415

            self._caches = caches.CachesRole(dependencies)
        self._inventory: InventoryRole | None = None
        if AgentRole.INVENTORY in roles:
            from agent.roles import inventory  # noqa: PLC0415

            self._inventory = inventory.InventoryRole(
                dependencies,
                self._objects,
                on_reading=self._caches.reconciler.observe_devices
                if self._caches is not None
                else lambda _: None,
            )
        self._validator: ValidatorRole | None = None
        if AgentRole.VALIDATOR in roles and self._objects is not None:
            from agent.roles import validator  # noqa: PLC0415

            self._validator = validator.ValidatorRole(dependencies, self._objects)

    @property
    def device_metrics(self) -> "DeviceMetrics | None":
        """The page of the devices' metrics; None without the role telemetry."""
        return self._inventory.device_metrics if self._inventory is not None else None

    @property
    def is_alive(self) -> bool:
        """Whether the process works; a restart would cure it where it does not."""
        return self._plugin is None or self._plugin.is_alive

    @property
    def missing(self) -> list[str]:
        """Conditions that the node's pods still wait for."""
        if self._validator is not None:
            return self._validator.missing
        missing = (
            []
            if self._dependencies.pod_informer.synced.is_set()
            else ["pods of the node: no list yet"]
        )
        # A driver of kernel caches that kubelet does not know is a problem of the node, not of its devices.
        return missing + (self._plugin.missing if self._plugin is not None else [])

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT.

        Raises:
            ExceptionGroup: a task failed, which none may.
        """
        tasks: dict[str, Coroutine[Any, Any, object]] = {
            "events": self._dependencies.events.run(),
        }
        if self._validator is None:  # It needs no pods, and has no right to watch them.
            tasks["pods"] = self._dependencies.pod_informer.run()
        if self._objects is not None:
            tasks |= {
                f"objects.{number}": item.run()
                for number, item in enumerate(self._objects.informers)
            }
        for role in (self._plugin, self._inventory, self._caches, self._validator):
            tasks |= role.tasks() if role is not None else {}
        try:
            async with asyncio.TaskGroup() as group:
                start_all(group, tasks)
                group.create_task(_until_signalled(), name="shutdown")
        except* StoppedError:
            _log.info("stopped")

    async def close(self) -> None:
        """Close kubelet's client and the driver; to be called after `run` has ended, from another task.

        A task whose group was cancelled stays cancelled in Python before 3.11.3, and there a bounded wait that runs out then
        ends as a cancellation.
        """
        if self._validator is not None:
            self._validator.close()
        await self._dependencies.kubelet.close()
        if self._inventory is not None:
            await self._inventory.close()


async def run_agent(settings: AgentSettings, clock: "Clock") -> None:
    """Run an agent until SIGTERM or SIGINT.

    Raises:
        AgentUnusableError: there is no usable configuration for the API server.
        ListenError: the port of the probes cannot be opened.
        ExceptionGroup: a task failed; the process should exit with a failure.
    """
    async with AsyncExitStack() as stack:
        try:
            connection = await connect(settings, clock)
        except BadConfigurationError as error:
            raise AgentUnusableError(str(error)) from error
        client = await stack.enter_async_context(
            KubeClient(connection, clock, user_agent="gpu-node-agent")
        )
        agent = Agent(AgentContext(settings, client, clock, connection=connection))
        stack.push_async_callback(agent.close)
        await stack.enter_async_context(
            serving_probes(agent, settings, clock, device_metrics=agent.device_metrics)
        )
        _log.info(
            "started", node=settings.node, roles=sorted(role.value for role in settings.roles)
        )
        # In a task of its own, see `close`.
        await asyncio.gather(agent.run())


async def _until_signalled() -> NoReturn:
    with stop_signals() as signalled:
        await signalled.wait()
    raise StoppedError
