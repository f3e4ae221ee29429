"""The process of `gpu-control-plane console`: its parts, the order in which they start, and in which they stop.

Start: certificate → port open (live, not ready) → lists read → ready. Stop: streams get their last event, requests under way
their answers, then the port closes.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, NoReturn

import structlog

from console.data.console_cluster import ConsoleCluster
from console.data.read_scope import ReadScope
from console.edge.console_application import ConsoleApplication
from console.edge.console_port import ConsolePort
from console.edge.static_files import StaticFiles
from console.edge.token_login import TokenLogin
from console.processes.first_lists import until_read
from console.processes.page_certificate import PageCertificate
from console.processes.viewer_reviews import ConsoleReviews
from http_edge import open_files
from http_edge.listening_sockets import open_listeners
from kube.client import KubeClient
from kube.config.connection import BadConfigurationError
from kube.config.discovery import load_configuration
from telemetry.tasks import StoppedError, start_all, stop_signals

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from api.clock import Clock
    from console.processes.console_settings import ConsoleSettings
    from telemetry.logs import LogLines

USER_AGENT: Final = "gpu-console"
_ORIGIN: Final = "API server"

_log = structlog.get_logger()


async def run_cluster_console(
    settings: "ConsoleSettings", clock: "Clock", logs: "LogLines | None" = None
) -> None:
    """Serve the page until SIGTERM or SIGINT.

    Raises:
        BadConfigurationError: the API server's address or credentials are missing or unusable.
        UnusableCertificateError: the certificate cannot be served.
        PageMissingError: this installation lacks the page.
        ListenError: the port cannot be opened.
        ExceptionGroup: a task ended that must not; the process should exit with a failure.
    """
    open_files.raise_limit()
    files = StaticFiles.of_package()
    certificate = None
    if settings.certificate is not None:
        certificate = PageCertificate(settings.certificate)
        certificate.load()
    configuration = await load_configuration(
        clock, kubeconfig=settings.kubeconfig, context=settings.context
    )
    client = KubeClient(configuration, clock, user_agent=USER_AGENT)
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(client)
        except OSError as error:
            raise BadConfigurationError(f"a certificate for the API server: {error}") from error
        cluster = ConsoleCluster(
            client,
            clock,
            scope=ReadScope.whole(system_namespace=settings.namespace),
            origin=_ORIGIN,
        )
        listen = settings.listen
        listeners = await open_listeners(listen.host, listen.port)
        context = certificate.context if certificate is not None else None
        port = await stack.enter_async_context(ConsolePort(listeners, context))
        login = TokenLogin(ConsoleReviews(client), clock, hosts=settings.hosts)
        port.serve(ConsoleApplication(cluster, login, files=files, clock=clock, has_probes=True))
        _log.info("listening", host=listen.host, port=port.number, tls=certificate is not None)
        tasks: dict[str, Coroutine[Any, Any, object]] = {"cluster": cluster.run()}
        if certificate is not None:
            tasks["certificate"] = certificate.run()
        if logs is not None:
            tasks["logs"] = logs.flush_regularly()
        try:
            async with asyncio.TaskGroup() as group:
                start_all(group, tasks)
                group.create_task(_log_ready(cluster), name="ready")
                group.create_task(_stop_on_signal(port), name="shutdown")
        except* StoppedError:
            _log.info("stopped")


async def _log_ready(cluster: ConsoleCluster) -> None:
    await until_read(cluster, lambda unread: _log.info("reading", resources=unread))
    _log.info("ready")


async def _stop_on_signal(port: ConsolePort) -> NoReturn:
    """Wait for a signal, then close the port and end the task group."""
    with stop_signals() as signalled:
        await signalled.wait()
        await port.close()
    raise StoppedError
