"""The process of `gpu-control-plane console`: its parts, the order in which they start, and in which they stop.

Start: certificate → port open (live, not ready) → lists read → ready. Stop: streams get their last event, requests under way
their answers, then the port closes.
"""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import structlog

from console.data.console_cluster import ConsoleCluster
from console.data.read_scope import ReadScope
from console.edge.console_application import ConsoleApplication
from console.edge.console_port import ConsolePort
from console.edge.static_files import StaticFiles
from console.edge.token_login import ReviewedViewer, TokenLogin
from console.processes.first_lists import until_read
from console.processes.page_certificate import PageCertificate
from http_edge import open_files
from http_edge.listening_sockets import open_listeners
from http_edge.reviews.kube_reviews import may_list, review_token
from http_edge.reviews.review_cache import TokenRefusal
from kube.client import KubeClient
from kube.config.connection import BadConfigurationError, with_token
from kube.config.discovery import load_configuration
from kube.errors import KubeError
from kube.resources import GPU_DEVICES, GPU_POOLS, NODES, PODS
from telemetry.console_metrics import REVIEWS
from telemetry.tasks import StoppedError, start_all, stop_signals

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from api.clock import Clock
    from console.processes.console_settings import ConsoleSettings
    from http_edge.reviews.kube_reviews import TokenUser
    from kube.config.connection import Connection
    from telemetry.logs import LogLines

_ACCEPTED: Final = "accepted"
_FAILED: Final = "failed"
_REFUSED: Final = {
    TokenRefusal.UNAUTHENTICATED: "unauthenticated",
    TokenRefusal.FORBIDDEN: "forbidden",
}

for _outcome in (_ACCEPTED, _FAILED, *_REFUSED.values()):
    REVIEWS.labels(_outcome)


@final
class ConsoleReviews:
    """Asks the API server: one TokenReview, and a SubjectAccessReview for each right. Implements `ViewerReviews`."""

    def __init__(self, client: "KubeClient") -> None:
        self._client = client

    async def review(self, token: str) -> ReviewedViewer | TokenRefusal:
        try:
            found = await self._review(token)
        except KubeError:
            REVIEWS.labels(_FAILED).inc()
            raise
        REVIEWS.labels(_REFUSED[found] if isinstance(found, TokenRefusal) else _ACCEPTED).inc()
        return found

    async def may_list_pods(self, user: "TokenUser", namespace: str) -> bool:
        return await may_list(self._client, user, PODS, namespace=namespace)

    async def _review(self, token: str) -> ReviewedViewer | TokenRefusal:
        user = await review_token(self._client, token)
        if user is None:
            return TokenRefusal.UNAUTHENTICATED
        for resource in (GPU_POOLS, GPU_DEVICES):
            if not await may_list(self._client, user, resource):
                return TokenRefusal.FORBIDDEN
        return ReviewedViewer(
            user=user,
            nodes=await may_list(self._client, user, NODES),
            pods=await may_list(self._client, user, PODS),
        )


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
        decisions = None
        if settings.decisions:
            decisions = cluster.decisions(partial(client_of_viewer, configuration, clock))
        login = TokenLogin(ConsoleReviews(client), clock, hosts=settings.hosts, decisions=decisions)
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


def client_of_viewer(configuration: "Connection", clock: "Clock", token: str | None) -> KubeClient:
    """Return a client, to be entered, that has no other credentials than the viewer's token."""
    if token is None:
        raise AssertionError("a viewer in a cluster has a token")
    return KubeClient(with_token(configuration, token), clock, user_agent=USER_AGENT)


async def _log_ready(cluster: ConsoleCluster) -> None:
    await until_read(cluster, lambda unread: _log.info("reading", resources=unread))
    _log.info("ready")


async def _stop_on_signal(port: ConsolePort) -> NoReturn:
    """Wait for a signal, then close the port and end the task group."""
    with stop_signals() as signalled:
        await signalled.wait()
        await port.close()
    raise StoppedError
