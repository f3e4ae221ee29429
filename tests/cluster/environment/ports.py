"""Free TCP ports on loopback."""

import random
import socket
from pathlib import Path

_GIVEN: set[int] = set()
_LOWEST = 10_000


def free_port() -> int:
    """Return a port that nothing listens on and that this process was not given before.

    It lies below the kernel's range for outgoing connections: while a server is down (a restart
    under test), a client that keeps dialling a port in that range can be connected to itself and
    so take the port away.
    """
    range_start = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]
    for port in random.sample(range(_LOWEST, int(range_start)), k=200):
        if port in _GIVEN:
            continue
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        _GIVEN.add(port)
        return port
    raise AssertionError(f"no free port between {_LOWEST} and {range_start}")
