"""Which socket it is: a process that restarts puts another one in the place of its own."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SocketIdentity = tuple[int, int, int]


def socket_identity(path: "Path") -> SocketIdentity | None:
    """Return what tells a socket from another of its name; inodes are used again, times are not.

    None where there is none, or where it cannot be looked at.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_ctime_ns)
