"""How many files the process may have open, connections included.

Python leaves the soft limit as it finds it, and 1,024 is what many systems give to processes that do not
ask for more; the hard limit is what the operator means.
"""

import resource
from typing import Final

_ENOUGH: Final = 1 << 20
"""Where the hard limit is none: what a kernel gives to one process unless told otherwise."""


def raise_limit() -> None:
    """Raise the soft limit to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else hard
    if soft != wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """Return how many may be open at a time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENOUGH if soft == resource.RLIM_INFINITY else soft
