"""`kubectl gpu` on the demo's cluster, as a user runs it: the plugin in a process of its own.

The plugin reads through `kubectl proxy`. Here `kubectl` is a script that leads the proxy's socket to a relay in this
process, which adds the administrator's token and passes everything on to the API server.
"""

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self, final
from urllib.parse import urlsplit

from demo.child_programs import output_of

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_SCRIPT: Final = """\
#!/bin/sh
for argument; do
  case $argument in --unix-socket=*) ln -s {socket} "${{argument#*=}}" ;; esac
done
echo 'Starting to serve'
exec sleep 3600
"""
_CHUNK: Final = 1 << 16
_HEAD_END: Final = b"\r\n\r\n"


@final
class KubectlStandIn:
    """An async context manager; inside it the plugin can be run."""

    def __init__(self, folder: "Path", url: str, token: str) -> None:
        """Take a folder for socket and script, and the API server with a token that it knows."""
        self._folder = folder
        address = urlsplit(url)
        self._host, self._port = address.hostname or "", address.port or 0
        self._credentials = f"Authorization: Bearer {token}\r\n".encode()
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        self._folder.mkdir()
        socket = self._folder / "api"
        script = self._folder / "kubectl"
        script.write_text(_SCRIPT.format(socket=socket), encoding="utf-8")
        script.chmod(0o700)
        self._server = await asyncio.start_unix_server(self._relay, socket)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def gpu(self, *arguments: str) -> str:
        """Return what `kubectl gpu ARGUMENTS` prints.

        Raises:
            OSError: its exit code is not 0.
        """
        path = f"{self._folder}:{os.environ.get('PATH', '')}"
        return await output_of("kubectl_gpu", *arguments, PATH=path, PYTHONIOENCODING="utf-8")

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one request of HTTP/1.0 on, and its answer back."""
        try:
            head = await reader.readuntil(_HEAD_END)
            line, remaining = head.split(b"\r\n", 1)
            answers, requests = await asyncio.open_connection(self._host, self._port)
            try:
                requests.write(line + b"\r\n" + self._credentials + remaining)
                while chunk := await answers.read(_CHUNK):
                    writer.write(chunk)
                    await writer.drain()
            finally:
                requests.close()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the plugin sees that the answer is cut
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
