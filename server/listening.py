"""The port: opened, and closed in good order. Which application answers on it is `server.app`'s."""

import logging
from typing import TYPE_CHECKING, Final, Self, final

from aiohttp import web
from aiohttp.http import HttpProcessingError

from kube.errors import cut

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

    from server.settings import Listen

KEEP_ALIVE_S: Final = 300.0
"""The API server and kube-scheduler close idle connections after 90 s. A server that closes first may
do so while a request is on its way, which costs a failed pod creation."""
FINISH_WITHIN_S: Final = 10.0
"""How long requests under way may take on shutdown: a bind, 4 s, and the read after it, 4 s."""


class CannotListen(Exception):  # noqa: N818  # it is named for what is wrong
    """The port cannot be opened; the text says which and why."""


@final
class Port:
    """The one port of the process; an async context manager that opens and closes it."""

    def __init__(
        self, app: web.Application, listen: "Listen", context: "ssl.SSLContext | None"
    ) -> None:
        self._listen = listen
        self._context = context
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_logger(),
            keepalive_timeout=KEEP_ALIVE_S,
            shutdown_timeout=FINISH_WITHIN_S,
        )

    async def __aenter__(self) -> Self:
        """Open it.

        Raises:
            CannotListen: the address is in use, or is none of this machine's.
        """
        host, port = self._listen.host, self._listen.port
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=self._context).start()
        except OSError as error:
            await self.close()
            raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}") from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        """Close it."""
        await self.close()

    async def close(self) -> None:
        """Stop accepting, let requests under way finish in time, close connections. Idempotent."""
        await self._runner.cleanup()


def _logger() -> logging.Logger:
    logger = logging.getLogger("server.http")
    logger.addFilter(_in_one_line)
    return logger


def _in_one_line(record: logging.LogRecord) -> bool:
    """Let a peer's malformed HTTP be one warning; aiohttp tells it as an error with a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError | web.RequestPayloadError):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info = None
        record.msg, record.args = "malformed HTTP request: %s", (cut(str(error)),)
    return True
