"""NVML's library: found on the node, and loaded into this process.

The agent's image has no driver: the library is the node's own, of the version of its kernel module, found under the
root that is mounted for it. `pynvml` searches by name only and keeps one library for a process, so it is given one,
and given another after the node's driver was replaced: the file's name has the version. A library is never unloaded,
since a call that hangs may be inside.
"""

import ctypes
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import pynvml

from agent.driver.libraries import DRIVER_CONTAINER, library_directories, real_path
from agent.errors import DriverUnavailableError
from telemetry.conditions import AgentDegraded

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME: Final = "libnvidia-ml.so.1"

_ROOTS: Final = ("", DRIVER_CONTAINER)
_LOADING: Final = threading.Lock()


@final
class _LoadedLibrary:
    """The library as `pynvml` knows it, which keeps every function that it was once given."""

    def __init__(self) -> None:
        self.path = ""
        self.functions: ctypes.CDLL | None = None

    def load(self, path: str) -> None:
        self.functions = ctypes.CDLL(path)
        self.path = path

    def __getattr__(self, name: str) -> "_Function":
        getattr(self.functions, name)  # AttributeError: `pynvml` asks again for it.
        return _Function(self, name)


@final
class _Function:
    """A function of the library that is loaded when it is called."""

    def __init__(self, library: _LoadedLibrary, name: str) -> None:
        self._library = library
        self._name = name
        self.restype: type = ctypes.c_int

    def __call__(self, *arguments: object) -> object:
        function = getattr(self._library.functions, self._name, None)
        if function is None:
            return pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        function.restype = self.restype
        return function(*arguments)


_LOADED: Final = _LoadedLibrary()


def find_libraries(driver_root: Path, name: str = NAME, first: str = "") -> "Iterator[Path]":
    """Yield the libraries under a root, the likeliest first; links are followed within that root."""
    for root in _ROOTS:
        for folder in library_directories(first):
            found = real_path(driver_root / root, driver_root / root / folder / name)
            if found is not None and found.is_file():
                yield found


def load_library(library: Path | None, driver_root: Path, first: str = "") -> str:
    """Load NVML's library for `pynvml`, and return its path.

    A loaded library is kept while it is still the one that is found.

    Raises:
        DriverUnavailableError: there is none (DriverMissing).
    """
    with _LOADING:
        return _load(library, driver_root, first)


def _load(library: Path | None, driver_root: Path, first: str) -> str:
    refused = []
    for path in _candidates(library, driver_root, first):
        if path == _LOADED.path:
            return path
        try:
            _LOADED.load(path)
        except OSError as error:
            refused.append(str(error))
            continue
        pynvml.nvmlLib = _LOADED
        return path
    raise DriverUnavailableError(
        AgentDegraded.DRIVER_MISSING, _explain(library, driver_root, refused)
    )


def _candidates(library: Path | None, driver_root: Path, first: str) -> "Iterator[str]":
    if library is not None:
        yield str(library.resolve())
        return
    yield from map(str, find_libraries(driver_root, first=first))
    if driver_root == Path("/"):
        # By ldconfig's cache. Only for /: a library loaded from another root has the same name.
        yield NAME


def _explain(library: Path | None, driver_root: Path, refused: list[str]) -> str:
    if library is not None:
        return f"NVML library {library} cannot be loaded: {refused[-1]}"
    advice = "install NVIDIA's driver on the node, or name the directory of its libraries (setting node_agent.driver_libraries)"
    if found := [reason for reason in refused if not reason.startswith(f"{NAME}:")]:
        return f"no {NAME} under {driver_root} can be loaded ({found[0]}): {advice}"
    return f"there is no {NAME} under {driver_root}: {advice}"
