"""The command `device-plugin`: its settings, its tasks, and how it stops."""

import asyncio
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog
from aiohttp import web

from agent.config import ConfigFile
from agent.errors import UnusableAgent
from agent.plugin import DEFAULT_CDI_KIND
from agent.probes import build_probes
from agent.serving import ServedPools
from agent.sources import ClusterSource, FileSource
from api.poolconfig import PLUGINS_DIRECTORY, HandOut
from kube.client import KubeClient
from manifests.pool_workloads import PROBES_PORT

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from api.clock import Clock

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What the command line says."""

    node: str
    config: Path | None = None
    """The file of one pool; None serves all pools of the node, as the API server has them."""
    plugins_directory: Path = Path(PLUGINS_DIRECTORY)
    hand_out: HandOut = HandOut.CDI
    cdi_kind: str = DEFAULT_CDI_KIND
    host: str = "0.0.0.0"  # noqa: S104  # the pod's own network; probes and metrics only
    port: int = PROBES_PORT
    kubeconfig: Path | None = None


class _Stopped(Exception):  # noqa: N818  # it is named for what happened
    """The process was asked to stop."""


async def run_device_plugin(settings: AgentSettings, clock: "Clock") -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        UnusableAgent: there is no usable way to the API server, and no file.
        OSError: the port of the probes cannot be opened.
        ExceptionGroup: a task failed; the process should exit with a failure.
    """
    served = ServedPools(
        settings.plugins_directory, clock, hand_out=settings.hand_out, cdi_kind=settings.cdi_kind
    )
    runner = web.AppRunner(build_probes(served), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.port).start()
        if settings.config is not None:
            file = ConfigFile(settings.config)
            await _serve(served, FileSource(file, settings.node, served).run())
            return
        # The Kubernetes library is 65 MiB, on every node and for every pool; a file needs none of it.
        from kube.configuration import BadConfiguration, load_configuration  # noqa: PLC0415

        kubeconfig = str(settings.kubeconfig) if settings.kubeconfig else None
        try:
            configuration = await load_configuration(clock, kubeconfig=kubeconfig)
        except BadConfiguration as error:
            raise UnusableAgent(str(error)) from error
        async with KubeClient(configuration, clock, user_agent="gpu-node-agent") as client:
            source = ClusterSource(client, clock, node=settings.node, taker=served)
            await _serve(served, source.run())
    finally:
        await runner.cleanup()


async def _serve(served: ServedPools, source: "Coroutine[object, object, NoReturn]") -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(source, name="source")
            group.create_task(served.run(), name="plugins")
            group.create_task(_until_told(), name="shutdown")
    except* _Stopped:
        _log.info("stopped")


async def _until_told() -> NoReturn:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOPPING:
        loop.add_signal_handler(number, asked.set)
    try:
        await asked.wait()
    finally:
        for number in _STOPPING:
            loop.remove_signal_handler(number)
    raise _Stopped
