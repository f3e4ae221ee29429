"""A gRPC server on a unix socket that is kept there.

A socket is bound beside its path and renamed to it, so that the path is never without one: a killed process leaves its
socket behind, and an older process would take a path without a socket for its own again. A socket that disappears is
served again. Of two processes with one path the newer has the socket: the older does not touch it, not even when it
ends, and serves its open connections.
"""

import secrets
import socket as sockets
from enum import Enum, auto
from typing import TYPE_CHECKING, final

import grpc

from agent.files import FileIdentity, file_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


class SocketState(Enum):
    """What `ServedSocket.ensure` found or did."""

    KEPT = auto()
    OPENED = auto()
    """Served again: the connections of an earlier server are closed."""
    TAKEN = auto()
    """Another live process has the path."""


@final
class ServedSocket:
    """Serves the handlers at one path; `ensure` is called from time to time."""

    def __init__(
        self,
        path: "Path",
        handlers: "Sequence[grpc.GenericRpcHandler]",
        *,
        before_stop: "Callable[[], None]" = lambda: None,
    ) -> None:
        """Serve nothing yet; `before_stop` is called before a server stops, such as to end streams."""
        self.path = path
        self._handlers = tuple(handlers)
        self._before_stop = before_stop
        self._server: grpc.aio.Server | None = None
        self._served_as: FileIdentity | None = None

    async def ensure(self) -> SocketState:
        """Serve where nothing is served, or the socket is gone or dead.

        Raises:
            OSError, RuntimeError: the socket cannot be bound (grpc raises the latter).
        """
        found = file_identity(self.path)
        if self._server is not None and found is not None:
            if found == self._served_as:
                return SocketState.KEPT
            if _is_alive(self.path):
                return SocketState.TAKEN
        await self._serve()
        return SocketState.OPENED

    async def stop(self, grace_s: float) -> None:
        """Stop serving, and remove the socket; open calls get that time to end."""
        server, self._server = self._server, None
        served_as, self._served_as = self._served_as, None
        if server is not None:
            self._before_stop()
            await server.stop(grace_s)
            if file_identity(self.path) == served_as:
                self.path.unlink(missing_ok=True)

    async def _serve(self) -> None:
        # An open connection is that of a peer that is gone.
        await self.stop(0)
        # kubelet's watch of plugins passes over names that begin with a dot.
        bound = self.path.with_name(f".{secrets.token_hex(4)}")
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(self._handlers)
        server.add_insecure_port(f"unix://{bound}")
        await server.start()
        bound.rename(self.path)
        self._server = server
        self._served_as = file_identity(self.path)


def _is_alive(path: "Path") -> bool:
    """Return whether a process listens at a socket; does not block."""
    with sockets.socket(sockets.AF_UNIX) as probe:
        probe.setblocking(False)  # noqa: FBT003  # the standard library's own signature
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True
