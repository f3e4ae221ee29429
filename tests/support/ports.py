"""Free TCP ports on loopback, for several test processes at a time."""

import random
import socket
from pathlib import Path

_LOWEST = 10_000
_TAKEN: dict[int, int] = {}
"""Port -> descriptor of an abstract unix socket, which no other process can bind while this one lives."""


def free_port() -> int:
    """Return a port that nothing listens on and that no test process of this machine was given.

    It lies below the kernel's range for outgoing connections: while a server is down (a restart
    under test), a client that keeps dialling a port in that range can be connected to itself and
    so take the port away.
    """
    range_start = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]
    for port in random.sample(range(_LOWEST, int(range_start)), k=200):
        if port not in _TAKEN and _take(port) and _is_free(port):
            return port
    raise AssertionError(f"no free port between {_LOWEST} and {range_start}")


def _take(port: int) -> bool:
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0gpu-tests-port-{port}")
    except OSError:
        claim.close()
        return False
    _TAKEN[port] = claim.detach()
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
