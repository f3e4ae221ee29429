"""A plugin's socket, and kubelet's knowledge of it.

Serve first, then register, because kubelet calls back while it registers. A kubelet that starts deletes
every socket of the directory and admits waiting pods a second later, so both sockets are looked at several
times a second, and what is new is answered at once. kubelet may also drop a plugin whose socket is alive:
then no ListAndWatch stream is open, and registering again brings it back.
"""

import contextlib
from typing import TYPE_CHECKING, Any, Final, final

import grpc
import structlog

from agent.errors import NotRegistered
from api import deviceplugin as wire
from kube.errors import cut

if TYPE_CHECKING:
    from pathlib import Path

    from agent.plugin import DevicePlugin
    from api.clock import Clock

REGISTER_WITHIN_S: Final = 12.0
"""kubelet itself gives up after 10 s; it must not look as if we did before that."""
STREAM_WITHIN_S: Final = 3.0
"""After registering; kubelet opens it in milliseconds."""
FIRST_RETRY_S: Final = 0.2
MAX_RETRY_S: Final = 10.0

_log = structlog.get_logger()

_Identity = tuple[int, int, int]


@final
class ServedPlugin:
    """Keeps one plugin served and registered; `tend` is to be called again and again."""

    def __init__(self, plugin: "DevicePlugin", directory: "Path", clock: "Clock") -> None:
        self.plugin = plugin
        self.endpoint = plugin.resource.replace("/", "_") + ".sock"
        self._directory = directory
        self._socket = directory / self.endpoint
        self._kubelet = directory / wire.KUBELET_SOCKET
        self._clock = clock
        self._server: grpc.aio.Server | None = None
        self._served_as: _Identity | None = None
        self._registered_with: _Identity | None = None
        self._registered_at = 0.0
        self._refused_by: _Identity | None = None
        self._retry_at = 0.0
        self._retry_s = FIRST_RETRY_S

    @property
    def is_registered(self) -> bool:
        """Say whether the present kubelet knows the plugin."""
        return (
            self._registered_with is not None
            and self._registered_with == _identity(self._kubelet)
            and self.plugin.streams > 0
        )

    async def tend(self) -> None:
        """Serve where the socket is not ours any more; register where kubelet does not know us.

        A refusal is logged and tried again, more and more seldom until kubelet is another.
        """
        socket = _identity(self._socket)
        if socket is None or socket != self._served_as:
            await self._serve()
        kubelet = _identity(self._kubelet)
        now = self._clock.monotonic()
        if kubelet is None or self._is_known_to(kubelet, now):
            return
        if kubelet == self._refused_by and now < self._retry_at:
            return
        try:
            await self._register()
        except NotRegistered as error:
            self._note_refusal(kubelet, now, str(error))
            return
        # The socket that we looked at before we asked: if kubelet changed meanwhile, we ask again.
        self._registered_with, self._registered_at = kubelet, self._clock.monotonic()
        self._refused_by, self._retry_s = None, FIRST_RETRY_S
        _log.info("registered", resource=self.plugin.resource, endpoint=self.endpoint)

    async def close(self) -> None:
        """Stop serving; kubelet marks the units as unhealthy, and running pods keep them."""
        if self._server is not None:
            await self._server.stop(0)
        self._server = self._served_as = self._registered_with = None

    def _is_known_to(self, kubelet: _Identity, now: float) -> bool:
        if kubelet != self._registered_with:
            return False
        return self.plugin.streams > 0 or now - self._registered_at < STREAM_WITHIN_S

    async def _serve(self) -> None:
        await self.close()
        # A process that was killed leaves its socket behind, and binding to it would fail.
        with contextlib.suppress(FileNotFoundError):
            self._socket.unlink()
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self.plugin.handlers(),))
        server.add_insecure_port(f"unix://{self._socket}")
        await server.start()
        self._server = server
        self._served_as = _identity(self._socket)

    async def _register(self) -> None:
        request = wire.Registration(endpoint=self.endpoint, resource=self.plugin.resource)
        try:
            async with grpc.aio.insecure_channel(f"unix://{self._kubelet}") as channel:
                call: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
                    f"/{wire.REGISTRATION_SERVICE}/{wire.REGISTER}",
                    request_serializer=wire.encode_registration,
                    response_deserializer=wire.decode_empty,
                )
                await call(request, timeout=REGISTER_WITHIN_S)
        except grpc.aio.AioRpcError as error:
            raise NotRegistered(cut(f"{error.code().name}: {error.details()}")) from error

    def _note_refusal(self, kubelet: _Identity, now: float, text: str) -> None:
        if self._refused_by != kubelet:
            self._retry_s = FIRST_RETRY_S
        self._refused_by = kubelet
        self._retry_at = now + self._retry_s
        _log.warning(
            "not registered",
            resource=self.plugin.resource,
            error=text,
            retry_in_s=self._retry_s,
        )
        self._retry_s = min(MAX_RETRY_S, 2 * self._retry_s)


def _identity(path: "Path") -> _Identity | None:
    """Return what tells a socket from another of its name; inodes are used again, times are not."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_ctime_ns)
