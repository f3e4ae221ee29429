"""The container's termination message: kubelet copies the file into the pod's status.

The file is kubelet's own, mounted into the container; where it is missing, as outside of a pod, nothing is written.
"""

import os
from pathlib import Path
from typing import Final

from api.text import truncate

MAX_LENGTH: Final = 512
"""kubelet keeps 4096 bytes; the operand's message has this many characters."""


def write_termination_message(path: Path, text: str) -> bool:
    """Write the text on one line; return whether there was a file for it. Raises nothing."""
    line = truncate(" ".join(text.split()), MAX_LENGTH)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(line.encode())
    return True
