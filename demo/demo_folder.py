"""The folder of a demo, with a path so short that those of its nodes' sockets are allowed."""

import tempfile
from typing import Final

_LONGEST: Final = 18
"""A socket's path has at most 107 bytes; those of our nodes have up to 89 below the directory."""


def demo_folder() -> "tempfile.TemporaryDirectory[str]":
    """Return a new folder: under TMPDIR, or under /tmp where that is too long."""
    parent = tempfile.gettempdir()
    if len(parent.encode()) > _LONGEST:
        parent = "/tmp"  # noqa: S108  # the folder is private
    return tempfile.TemporaryDirectory(prefix="gpu-demo-", dir=parent)
