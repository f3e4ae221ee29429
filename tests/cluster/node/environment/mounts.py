"""How the mounts of the machine propagate."""

import contextlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def shared_root(busybox: Path) -> "Iterator[None]":
    """Make the root a shared mount, as systemd does: the node agent follows mounts of the node."""
    was_shared = _is_root_shared()
    subprocess.run([busybox, "mount", "--make-rshared", "/"], check=True)
    yield
    if not was_shared:
        subprocess.run([busybox, "mount", "--make-rprivate", "/"], check=True)


def _is_root_shared() -> bool:
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    (root,) = [line for line in mounts if line.split()[4] == "/"]
    return "shared:" in root
