"""The end of a process with the one that started it, however that ends: `python -m cli.parent_process PARENT MODULE [...]`."""

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
"""linux/prctl.h; it holds beyond execve."""


def end_with_parent(parent: int) -> None:
    """Have the kernel send this process SIGTERM when its parent ends; end at once where it has ended.

    Args:
        parent: its number, as the parent knows it.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    import runpy

    _, number, module, *sys.argv[1:] = sys.argv
    end_with_parent(int(number))
    runpy.run_module(module, run_name="__main__", alter_sys=True)
