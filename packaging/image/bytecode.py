"""Bytecode, compiled by the image's own Python, and reproducible.

The files are of the kind "unchecked hash": they contain no time, and Python uses them without
reading the source. The seed of hashes is fixed, and a process of its own compiles each directory,
file after file, because the order of hashes and shared constants could differ otherwise.
"""

import os
import platform
from typing import TYPE_CHECKING

from image.running import call

if TYPE_CHECKING:
    from pathlib import Path


def compile_tree(root: "Path", directory: "Path", *, python: str, at: str) -> None:
    """Compile everything below a directory.

    Args:
        root: of the image, with Python in it.
        directory: where the sources are.
        python: name of the interpreter.
        at: what tracebacks call the directory: its absolute path in the image.

    Raises:
        ImageBuildError: a file of it cannot be compiled.
    """
    libraries = root / "usr/lib" / f"{platform.machine()}-linux-gnu"
    # The image's own loader: the machine's may be of another version than the image's libc.
    (loader,) = libraries.glob("ld-linux-*.so.*")
    environ = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONHOME": str(root / "usr"),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    options = ["-q", "-j", "1", "--invalidation-mode", "unchecked-hash"]
    call(
        [
            str(loader),
            "--library-path",
            str(libraries),
            str(root / "usr/bin" / python),
            "-s",
            "-m",
            "compileall",
            *options,
            "-s",
            str(directory),
            "-p",
            at,
            str(directory),
        ],
        environ=environ,
    )
