"""The licenses of what is in the archive: PyInstaller's lists say which file came from where.

A file is of a Python distribution, of the interpreter, or of a Debian package; one of none of them fails the build, as
does a distribution without a license's text.
"""

import ast
import functools
import shutil
import sys
import sysconfig
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final

from image.errors import ImageBuildError
from image.running import call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import Distribution

    Texts = dict[str, Path]
    """Path in the archive -> file."""

_LISTS: Final = ("PYZ-00.toc", "COLLECT-00.toc")
_NAMES: Final = ("LICENSE", "LICENCE", "COPYING", "NOTICE")
_LOADER: Final = "pyinstaller"
"""Its program starts the interpreter."""


def copy_licenses(lists: Path, out: Path, *, own: Path) -> None:
    """Copy the texts into a directory for each origin.

    Args:
        lists: directory of PyInstaller's lists of files.
        out: the directory for them.
        own: what is below it has our license, or is made of files that the lists name.

    Raises:
        ImageBuildError: the license of a file is not known.
    """
    texts = _of_distribution(distribution(_LOADER))
    for source in _sources(lists):
        if source.is_relative_to(own):
            continue
        if source.is_relative_to(sysconfig.get_path("purelib")):
            texts |= _of_distribution(_distributions()[source])
        elif source.is_relative_to(sys.base_prefix):
            texts |= _of_interpreter()
        else:
            texts |= _of_library(source)
    for name, file in texts.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, out / name)


def _sources(lists: Path) -> "Iterator[Path]":
    for name in _LISTS:
        entries = ast.literal_eval((lists / name).read_text(encoding="utf-8"))
        # It stands last in one list, and alone in the other; a module without a file has `-`.
        yield from (Path(source) for _, source, _ in entries[-1] if source != "-")


@functools.cache
def _distributions() -> "dict[Path, Distribution]":
    """Return the distribution of each installed file."""
    return {
        Path(str(found.locate_file(path))): found
        for found in distributions()
        for path in found.files or ()
    }


def _of_distribution(found: "Distribution") -> "Texts":
    described = [path for path in found.files or () if path.parts[0].endswith(".dist-info")]
    texts = {
        f"{found.name}-{found.version}/{'/'.join(path.parts[1:])}": Path(
            str(found.locate_file(path))
        )
        for path in described
        if path.name.upper().startswith(_NAMES) or "licenses" in path.parts
    }
    if not texts:
        raise ImageBuildError(f"{found.name} {found.version} has no text of its license")
    return texts


def _of_interpreter() -> "Texts":
    text = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    return {f"python-{sysconfig.get_python_version()}/{text.name}": text}


def _of_library(library: Path) -> "Texts":
    path = library.resolve()
    # The package may name it without /usr.
    pattern = f"*/{path.parent.name}/{path.name}"
    cure = "The archive is built on Debian, whose packages have the licenses of its libraries."
    package = call(["dpkg-query", "--search", pattern], cure=cure).partition(":")[0]
    return {f"{package}/copyright": Path(f"/usr/share/doc/{package}/copyright")}
