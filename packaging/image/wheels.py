"""The middle layer: the wheels that the project needs at run time, as requirements.lock pins them.

The lock file also has the wheels for development. Each of its entries names the packages that require
it (`# via`), which separates the two. A missing entry fails the installation: with digests required,
nothing is resolved.

python -m image.wheels pyproject.toml requirements.lock

prints the entries for run time, for the Dockerfile.
"""

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Final

from image.errors import ImageBuildError
from image.running import call, say

_BEGINNING: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==", re.MULTILINE)
_VIA: Final = re.compile(r"^    # (?:via)?[ ]*(\S+)", re.MULTILINE)
_SPECIFIER: Final = re.compile(r"[^A-Za-z0-9._-]")
_TRACES: Final = re.compile(
    r"bin(/|$)|\.lock$|[^/]+\.dist-info/(RECORD|INSTALLER|REQUESTED|uv_cache\.json)$"
)
"""Leftovers of an installation: scripts and lists that name the building interpreter."""


def runtime_requirements(lock: str, project: str) -> str:
    """Return the entries of a lock file that the project needs at run time, unchanged.

    Args:
        lock: requirements.lock, as `uv pip compile` writes it.
        project: pyproject.toml.

    Raises:
        ImageBuildError: a dependency of the project is not locked.
    """
    entries, needed_by = _entries(lock)
    direct = tomllib.loads(project)["project"]["dependencies"]
    wanted = {_normal(_SPECIFIER.split(one)[0]) for one in direct}
    if unlocked := sorted(wanted - entries.keys()):
        raise ImageBuildError(f"{', '.join(unlocked)} is not in requirements.lock: run make lock")
    frontier = set(wanted)
    while frontier:
        frontier = {name for name, parents in needed_by.items() if parents & frontier} - wanted
        wanted |= frontier
    return "".join(entries[name] for name in sorted(wanted))


def _entries(lock: str) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the text of each entry, and the packages that require it."""
    starts = list(_BEGINNING.finditer(lock))
    ends = [one.start() for one in starts[1:]] + [len(lock)]
    entries: dict[str, str] = {}
    needed_by: dict[str, set[str]] = {}
    for start, end in zip(starts, ends, strict=True):
        name = _normal(start[1])
        text = lock[start.start() : end]
        entries[name] = text
        needed_by[name] = {_normal(one) for one in _VIA.findall(text)}
    return entries, needed_by


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def install(requirements: Path, into: Path, *, uv: Path, python: str) -> None:
    """Install the wheels into a directory, for the image's Python, by digest.

    Wheels are neither resolved nor built.

    Raises:
        ImageBuildError: a wheel is not available, or has another digest.
    """
    say(f"wheels: {len(_BEGINNING.findall(requirements.read_text(encoding='utf-8')))}")
    options = ["--require-hashes", "--only-binary", ":all:", "--no-compile-bytecode", "--quiet"]
    version = python.removeprefix("python")
    environ = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    call(
        [
            str(uv),
            "pip",
            "install",
            *options,
            "--python",
            sys.executable,
            "--python-version",
            version,
            "--target",
            str(into),
            "--requirement",
            str(requirements),
        ],
        environ=environ,
        cure="make install brings uv; is there a way to the package index?",
    )


def is_wanted(path: str) -> bool:
    """Return whether an installed file is part of the image; the path is relative to the target."""
    return _TRACES.match(path) is None


if __name__ == "__main__":
    _project, _lock = (Path(name).read_text(encoding="utf-8") for name in sys.argv[1:])
    sys.stdout.write(runtime_requirements(_lock, _project))
