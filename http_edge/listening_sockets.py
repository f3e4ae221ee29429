"""Listening sockets of a port."""

import asyncio
import os
import socket
from typing import Final

_BACKLOG: Final = 1024
"""Connections that wait to be accepted, as when all API servers connect at once; the system may allow fewer."""


class ListenError(Exception):
    """The port cannot be opened; the text says which and why."""


async def open_listeners(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen and do not block, one for each address of the host; port 0 is a free one.

    Raises:
        ListenError: the address is in use, or is none of this machine's.
    """
    loop = asyncio.get_running_loop()
    listeners: list[socket.socket] = []
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((item[0], item[4]) for item in found):
            listeners.append(socket.create_server(address[:2], family=family, backlog=_BACKLOG))
    except BaseException as error:
        for listener in listeners:
            listener.close()
        if isinstance(error, OSError):
            raise ListenError(f"cannot listen on {host}:{port}: {_reason(error)}") from error
        raise
    for listener in listeners:
        listener.settimeout(0)
    return listeners


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or error.errno is None:
        return str(error.strerror)
    # Without the address, which `create_server` says once more.
    return os.strerror(error.errno)
