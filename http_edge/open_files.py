"""Limit of open files, connections included.

Python keeps the inherited soft limit, which is 1,024 on many systems; the hard limit is the operator's choice.
"""

import resource
from typing import Final

_ENOUGH: Final = 1 << 20
"""Without a hard limit: a kernel's default for one process."""


def raise_limit() -> None:
    """Raise the soft limit to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft_limit = _ENOUGH if hard == resource.RLIM_INFINITY else hard
    if soft != soft_limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard))


def limit() -> int:
    """Return how many files may be open at a time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENOUGH if soft == resource.RLIM_INFINITY else soft
