"""The middle layer: the wheels that the project needs at run time, as requirements.lock pins them.

The lock file also has the wheels for development. Each of its entries names the packages that require
it (`# via`), which separates the two. A missing entry fails the installation: with digests required,
nothing is resolved. What no process reads is taken out of the wheels: stubs, C and Cython sources,
tests, and the sources of generated modules, whose bytecode is there.
"""

import importlib.util
import os
import re
import sys
import tomllib
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING, Final

from image.errors import ImageBuildError
from image.running import call, say

if TYPE_CHECKING:
    from email.message import Message

_BEGINNING: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==", re.MULTILINE)
_VIA: Final = re.compile(r"^    # (?:via)?[ ]*(\S+)", re.MULTILINE)
_SPECIFIER: Final = re.compile(r"[^A-Za-z0-9._-]")
_TRACES: Final = re.compile(
    r"bin(/|$)|\.lock$|[^/]+\.dist-info/(RECORD|INSTALLER|REQUESTED|direct_url\.json|uv_cache\.json)$"
)
"""Leftovers of an installation: scripts and lists that name the building interpreter."""
_UNWANTED: Final = re.compile(
    r"(.*/)?__pycache__(/|$)"
    r"|[^/]+-stubs(/|$)"
    r"|(.*/)?(tests?|testdata)(/|$)"
    r"|(.*/)?(test_[^/]*|[^/]*_(test|benchmark)|_testbase|pytest_plugin)\.py$"
    r"|(.*/)?_testcapi\.[^/]*\.so$"
    r"|.*\.(pyi|pyx|pxd|pxi|c|cc|h|md|typed)$"
    # Files that a wheel puts beside its packages by mistake.
    r"|(example\.py|[^/]*\.toml)$"
)
"""Files of packages; what describes them (`.dist-info`), with the licences, stays."""
GENERATED: Final = ("kubernetes_asyncio/client/api", "kubernetes_asyncio/client/models")
"""Packages of some 20 MB of generated sources, of which the bytecode is enough."""
_PLATFORMS: Final = {"amd64": "x86_64-manylinux_2_36", "arm64": "aarch64-manylinux_2_36"}
"""uv's names; the number is of Debian 12's C library."""


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
    selected = {normal(_SPECIFIER.split(item)[0]) for item in direct}
    if unlocked := sorted(selected - entries.keys()):
        raise ImageBuildError(f"{', '.join(unlocked)} is not in requirements.lock: run make lock")
    frontier = set(selected)
    while frontier:
        frontier = {name for name, parents in needed_by.items() if parents & frontier} - selected
        selected |= frontier
    return "".join(entries[name] for name in sorted(selected))


def _entries(lock: str) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the text of each entry, and the packages that require it."""
    starts = list(_BEGINNING.finditer(lock))
    ends = [item.start() for item in starts[1:]] + [len(lock)]
    entries: dict[str, str] = {}
    needed_by: dict[str, set[str]] = {}
    for start, end in zip(starts, ends, strict=True):
        name = normal(start[1])
        text = lock[start.start() : end]
        entries[name] = text
        needed_by[name] = {normal(found) for found in _VIA.findall(text)}
    return entries, needed_by


def normal(name: str) -> str:
    """Return the name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def install(requirements: Path, into: Path, *, uv: Path, python: str, architecture: str) -> None:
    """Install the wheels into a directory, for the image's Python and architecture, by digest.

    Wheels are neither resolved nor built, and what is not needed of them is removed.

    Raises:
        ImageBuildError: a wheel is not available, or has another digest.
    """
    count = len(_BEGINNING.findall(requirements.read_text(encoding="utf-8")))
    say(f"wheels for {architecture}: {count}")
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
            "--python-platform",
            _PLATFORMS[architecture],
            "--target",
            str(into),
            "--requirement",
            str(requirements),
        ],
        environ=environ,
        cure="make install brings uv; is there a way to the package index?",
    )
    trim(into)


def trim(directory: Path) -> None:
    """Remove from an installation what is no part of the image."""
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif not is_selected(path.relative_to(directory).as_posix()):
            path.unlink()


def drop_generated(directory: Path) -> None:
    """Put the bytecode of generated modules in the place of their sources.

    Python imports such a file as it does a source; the bytecode must be there.
    """
    for package in GENERATED:
        for source in sorted((directory / package).rglob("*.py")):
            compiled = Path(importlib.util.cache_from_source(str(source)))
            compiled.replace(source.with_suffix(".pyc"))
            source.unlink()
        for cache in sorted((directory / package).rglob("__pycache__")):
            cache.rmdir()


def installed(directory: Path) -> "dict[Path, Message]":
    """Return the metadata of each wheel in a directory by their own directory, in its order."""
    files = sorted(directory.glob("*.dist-info/METADATA"))
    return {
        file.parent: HeaderParser().parsestr(file.read_text(encoding="utf-8")) for file in files
    }


def is_selected(path: str) -> bool:
    """Return whether an installed file is part of the image; the path is relative to the target."""
    if _TRACES.match(path):
        return False
    return ".dist-info/" in path or _UNWANTED.match(path) is None
