"""A plugin's socket and its registration with kubelet.

The plugin serves first and registers then, because kubelet calls back during Register. A starting kubelet
deletes every socket of the directory and admits waiting pods a second later, so both sockets are checked
several times a second, and a change is handled at once.

kubelet may also drop a plugin whose socket is alive: where two plugins of one resource overlap, the end of the
older one drops the newer. Then no ListAndWatch stream is open, and registering again brings it back. Of two
that overlap the newer has the socket; the older does not touch it and serves its open connections.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, final

import grpc
import structlog

from agent.errors import RegistrationError
from agent.files import FileIdentity, file_identity
from agent.served_socket import ServedSocket, SocketState
from api.kubelet.deviceplugin import KUBELET_SOCKET, REGISTER, REGISTRATION_SERVICE, VERSION
from api.kubelet.proto.deviceplugin_pb2 import DevicePluginOptions, RegisterRequest
from kube.backoff import Backoff
from kube.errors import one_line
from telemetry.agent_metrics import PLUGIN_REGISTERED
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from pathlib import Path

    from agent.plugin.service import DevicePluginService
    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock

REGISTER_WITHIN_S: Final = 12.0
"""kubelet itself gives up after 10 s, which is the error to report."""
STREAM_WITHIN_S: Final = 3.0
"""Seconds after registering; kubelet opens it in milliseconds."""
FIRST_RETRY_S: Final = 0.05
"""A kubelet that has just opened its socket may still reset connections."""
MAX_RETRY_S: Final = 10.0
CHECK_EVERY_S: Final = 0.1
"""Seconds between two checks during a slow Register: another kubelet may replace the socket."""
DRAIN_WITHIN_S: Final = 1.0
"""The time for open calls to end when the plugin stops."""

_OWN_CONNECTION: Final = (("grpc.use_local_subchannel_pool", 1),)
# Channels of one target share a connection and its reconnect backoff.

_log = structlog.get_logger()


@final
class ServedPlugin:
    """Keeps one plugin served and registered; `reconcile` is called several times a second."""

    def __init__(
        self,
        plugin: "DevicePluginService",
        directory: "Path",
        clock: "Clock",
        *,
        problems: "ProblemRegistry",
    ) -> None:
        self.plugin = plugin
        self.endpoint = plugin.resource.replace("/", "_") + ".sock"
        self._socket = directory / self.endpoint
        self._kubelet = directory / KUBELET_SOCKET
        self._clock = clock
        self._problems = problems
        self._server = ServedSocket(
            self._socket, [plugin.handlers()], before_stop=self._end_registration
        )
        self._registered_with: FileIdentity | None = None
        self._registered_at = 0.0
        self._streams_before = 0
        self._refused_by: FileIdentity | None = None
        self._retry_at = 0.0
        self._backoff = Backoff(base_s=FIRST_RETRY_S, cap_s=MAX_RETRY_S, jitter=0)

    @property
    def is_registered(self) -> bool:
        """Return whether the running kubelet has the plugin, and streams from it."""
        return (
            self._registered_with is not None
            and self._registered_with == file_identity(self._kubelet)
            and self.plugin.streams > 0
        )

    async def reconcile(self) -> None:
        """Serve where the plugin's socket was replaced; register where kubelet does not have the plugin.

        A failure is reported and retried with exponential backoff, which a new kubelet resets.
        """
        kubelet = file_identity(self._kubelet)
        now = self._clock.monotonic()
        if self._is_backing_off(kubelet, now):
            return
        try:
            problem = await self._reconcile(kubelet, now)
        except RegistrationError as error:
            self._back_off(kubelet, now, str(error))
            problem = str(error)
        except (OSError, RuntimeError) as error:
            # grpc raises RuntimeError where it cannot bind.
            TASK_FAILURES.labels("plugin.serve").inc()
            problem = f"{self._socket} cannot be served: {one_line(str(error))}"
            self._back_off(kubelet, now, problem)
        PLUGIN_REGISTERED.labels(self.plugin.resource).set(self.is_registered)
        if problem:
            text = f"{self.plugin.resource}: {problem}"
            self._problems.set(self._source, AgentDegraded.NOT_REGISTERED, text)
        else:
            self._problems.clear(self._source)

    async def _reconcile(self, kubelet: FileIdentity | None, now: float) -> str:
        """Return a problem that needs no retry of this plugin; empty where there is none.

        Raises:
            RegistrationError: kubelet refused.
            OSError, RuntimeError: the socket cannot be bound.
        """
        if await self._server.ensure() is SocketState.TAKEN:
            # Open connections are still served. Registering would make kubelet dial the other process.
            return f"another process serves {self._socket}"
        if kubelet is None:
            return f"there is no kubelet at {self._kubelet}"
        if not self._is_registered_with(kubelet, now):
            await self._register(kubelet)
        self._refused_by, self._retry_at = None, 0.0
        self._backoff.succeed()
        return ""

    async def close(self) -> None:
        """Stop serving; kubelet marks the units as unhealthy, and running pods keep them.

        Streams end first, so that kubelet makes no more calls; open calls get `DRAIN_WITHIN_S` to end.
        """
        await self._server.stop(DRAIN_WITHIN_S)

    @property
    def _source(self) -> str:
        return f"plugin {self.plugin.resource}"

    def _is_backing_off(self, kubelet: FileIdentity | None, now: float) -> bool:
        return self._retry_at > now and kubelet == self._refused_by

    def _is_registered_with(self, kubelet: FileIdentity, now: float) -> bool:
        if kubelet != self._registered_with:
            return False
        if self.plugin.streams > 0:
            return True
        was_opened = self.plugin.streams_opened > self._streams_before
        return not was_opened and now - self._registered_at < STREAM_WITHIN_S

    def _end_registration(self) -> None:
        self._registered_with = None
        self.plugin.end_streams()

    async def _register(self, kubelet: FileIdentity) -> None:
        """Register with the kubelet of this socket; give up once the socket is replaced."""
        request = RegisterRequest(
            version=VERSION,
            endpoint=self.endpoint,
            resource_name=self.plugin.resource,
            options=DevicePluginOptions(),
        )
        self._streams_before = self.plugin.streams_opened
        async with grpc.aio.insecure_channel(
            f"unix://{self._kubelet}", options=_OWN_CONNECTION
        ) as channel:
            registering: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
                f"/{REGISTRATION_SERVICE}/{REGISTER}",
                request_serializer=RegisterRequest.SerializeToString,
            )
            call = registering(request, timeout=REGISTER_WITHIN_S)
            try:
                await self._wait_while_present(kubelet, call)
                await call
            except grpc.aio.AioRpcError as error:
                raise RegistrationError(
                    one_line(f"{error.code().name}: {error.details()}")
                ) from error
        # The socket as it was before the call: if kubelet changed meanwhile, the plugin registers again.
        self._registered_with, self._registered_at = kubelet, self._clock.monotonic()
        _log.info("registered", resource=self.plugin.resource, endpoint=self.endpoint)

    async def _wait_while_present(
        self, kubelet: FileIdentity, call: "grpc.aio.UnaryUnaryCall[Any, Any]"
    ) -> None:
        ended = asyncio.Event()
        call.add_done_callback(lambda _: ended.set())
        while not ended.is_set():
            if file_identity(self._kubelet) != kubelet:
                call.cancel()
                raise RegistrationError("kubelet restarted during Register")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), CHECK_EVERY_S)

    def _back_off(self, kubelet: FileIdentity | None, now: float, text: str) -> None:
        if self._refused_by != kubelet:
            self._backoff.succeed()
        self._refused_by = kubelet
        retry_s = self._backoff.fail()
        self._retry_at = now + retry_s
        _log.warning(
            "not registered",
            resource=self.plugin.resource,
            error=text,
            retry_in_s=retry_s,
        )
