"""Entry of a server process: it connects, opens its port, and runs until a signal."""

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, NoReturn

import structlog

from http_edge import open_files
from http_edge.limits import Limits
from http_edge.listener import Port
from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.connection import BadConfigurationError
from kube.config.discovery import load_configuration
from server.cluster_version import check_cluster_version
from server.configuration.config_store import prepare_config
from server.process import ControlPlane
from server.shutdown import drain
from telemetry.tasks import StoppedError, start_all, stop_signals

if TYPE_CHECKING:
    from reconciler.controller_spec import ProcessClock
    from server.configuration.config_source import ConfigSource
    from server.settings import Settings
    from telemetry.logs import LogLines

FLUSH_EVENTS_S: Final = 2.0

_log = structlog.get_logger()


async def connected(settings: "Settings", clock: "ProcessClock | None" = None) -> KubeClient:
    """Return a client of the API server that the settings name, to be entered."""
    clock = clock or SystemClock()
    kubeconfig = str(settings.kubeconfig) if settings.kubeconfig else None
    configuration = await load_configuration(clock, kubeconfig=kubeconfig, context=settings.context)
    return KubeClient(configuration, clock, timeout_s=settings.api_timeout_s)


async def serve(
    settings: "Settings",
    logs: "LogLines | None" = None,
    clock: "ProcessClock | None" = None,
    *,
    source: "ConfigSource | None" = None,
) -> None:
    """Run the server until SIGTERM or SIGINT.

    Args:
        settings: of the process; with a source, those before any object is read.
        source: for a server whose settings are those of a GPUControlPlaneConfig.
        logs: flushed regularly if given.
        clock: the machine's if omitted.

    Raises:
        BadConfigurationError: the API server's address or credentials are missing or unusable, or it is too old.
        ListenError: the port cannot be opened.
        ExceptionGroup: a task ended that must not; the process should exit with a failure.
    """
    clock = clock or SystemClock()
    open_files.raise_limit()
    client = await connected(settings, clock)
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(client)
        except OSError as error:
            raise BadConfigurationError(f"a certificate for the API server: {error}") from error
        await check_cluster_version(client)
        prepared = None
        if source is not None:
            prepared = await prepare_config(client, source)
            settings = prepared.state.settings
        plane = ControlPlane(settings, client, clock, prepared=prepared)
        port = await stack.enter_async_context(
            Port(
                plane.build_routes(),
                settings.listen,
                plane.certificates.context,
                clock=clock,
                limits=Limits().within_open_files(),
            )
        )
        _log.info("listening", host=settings.listen.host, port=settings.listen.port)
        try:
            await _run(plane, port, logs)
        except* StoppedError:
            _log.info("stopped")


async def _run(plane: ControlPlane, port: Port, logs: "LogLines | None") -> None:
    tasks = plane.tasks()
    if logs is not None:
        tasks["logs"] = logs.flush_regularly()
    async with asyncio.TaskGroup() as group:
        start_all(group, tasks)
        group.create_task(_stop_on_signal(plane, port), name="shutdown")


async def _stop_on_signal(plane: ControlPlane, port: Port) -> NoReturn:
    """Wait for a signal, then drain and end the task group."""
    with stop_signals() as signalled:
        await signalled.wait()
        port.send_away()
        await drain(plane)
        await port.close()
        await plane.recorder.flush(FLUSH_EVENTS_S)
    raise StoppedError
