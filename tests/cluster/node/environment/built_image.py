"""Our image, built as `make image` builds it."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.environment import binaries

if TYPE_CHECKING:
    from collections.abc import Callable

TAR = binaries.ROOT / "build" / "image" / "gpu-control-plane.tar"


def build(progress: "Callable[[str], None]") -> tuple[Path, str]:
    """Return the tar of the image as this working tree has it, and the image's name."""
    command = [sys.executable, "-m", "image.build", str(TAR)]
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=binaries.ROOT / "packaging",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            progress(line.rstrip())
    assert process.returncode == 0, f"the image is not built:\n{''.join(lines)}"
    name = next(
        word for line in reversed(lines) for word in line.split() if ":" in word and "/" in word
    )
    return TAR, name
