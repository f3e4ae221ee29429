"""The driver's user-space files on the node: libraries and programs for containers with a device.

They belong to the kernel's driver, of exactly its version, so that no image can bring them. A container has them
in `/usr/local/nvidia/{lib64,bin}`, which NVIDIA's CUDA images have in LD_LIBRARY_PATH and PATH, and where GKE
mounts them. Their place on a node depends on the installer: a distribution, NVIDIA's installer, NVIDIA's driver
container (a root of its own in /run/nvidia/driver), or GKE.

The agent may have the node's root mounted elsewhere, as in /host. Links are followed inside that root: an
absolute one, as Debian's alternatives are, would else lead into the agent's own image.
"""

import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, final

from api.nodefiles.node_devices_file import NodeMount

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARIES: Final = "/usr/local/nvidia/lib64"
PROGRAMS: Final = "/usr/local/nvidia/bin"

DRIVER_CONTAINER: Final = "run/nvidia/driver"
"""The root of NVIDIA's driver container under the node's root."""
LIBRARY_DIRECTORIES: Final = (
    # Debian and Ubuntu, Red Hat, SUSE, and Debian without its alternatives.
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    # Container-Optimized OS, and images with the paths of GKE's containers.
    "home/kubernetes/bin/nvidia/lib64",
    "var/lib/nvidia/lib64",
    "usr/local/nvidia/lib64",
    # Cloud images and Flatcar's extension, Talos, NixOS, WSL2, and Bottlerocket.
    "opt/nvidia/lib64",
    "usr/local/glibc/usr/lib",
    "run/opengl-driver/lib",
    "usr/lib/wsl/lib",
    "x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
    "aarch64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
    # On Red Hat's, the 32-bit ones are here: it comes last.
    "usr/lib",
)
"""Directories that may have the driver's libraries, under the node's root or the driver container's; the likeliest first."""
_PROGRAM_DIRECTORIES: Final = (
    "usr/bin",
    "usr/sbin",
    "bin",
    "home/kubernetes/bin/nvidia/bin",
    "var/lib/nvidia/bin",
    "usr/local/nvidia/bin",
    "opt/nvidia/bin",
    "usr/local/bin",
    "run/current-system/sw/bin",
    "usr/lib/wsl/lib",
)
_HOOK_DIRECTORIES: Final = ("usr/bin", "usr/local/nvidia/toolkit", "usr/local/bin")
_MARKER_LIBRARIES: Final = ("libcuda.so.1", "libnvidia-ml.so.1")
"""A directory with one of these has the driver's libraries."""
_STEMS: Final = frozenset(
    {
        "libcuda",
        "libcudadebugger",
        "libnvcuvid",
        "libnvoptix",
        "libnvidia-allocator",
        "libnvidia-cfg",
        "libnvidia-encode",
        "libnvidia-fbc",
        "libnvidia-glcore",
        "libnvidia-gpucomp",
        "libnvidia-ml",
        "libnvidia-ngx",
        "libnvidia-nscq",
        "libnvidia-nvvm",
        "libnvidia-opencl",
        "libnvidia-opticalflow",
        "libnvidia-pkcs11",
        "libnvidia-pkcs11-openssl3",
        "libnvidia-ptxjitcompiler",
        "libnvidia-rtcore",
        "libnvidia-sandboxutils",
        "libnvidia-tileiras",
        "libnvidia-tls",
    }
)
_PROGRAM_NAMES: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_SOCKETS: Final = ("run/nvidia-persistenced/socket",)
_HOOK: Final = "nvidia-cdi-hook"
_MAX_LINKS: Final = 40
"""The kernel's limit."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFiles:
    """The files that were found; paths are the node's."""

    mounts: tuple[NodeMount, ...] = ()
    """Ordered by path in the container; no path twice."""
    hook: str | None = None
    """NVIDIA's hook program, which updates the linker's cache in a container."""

    @property
    def has_libraries(self) -> bool:
        return any(mount.container_path.startswith(LIBRARIES) for mount in self.mounts)


def host_of(driver_root: Path) -> Path:
    """Return the node's root: the driver container's root is three directories below it."""
    is_container = driver_root.parts[-3:] == PurePosixPath(DRIVER_CONTAINER).parts
    return driver_root.parents[2] if is_container else driver_root


def library_directories(first: str = "") -> tuple[str, ...]:
    """Return the directories that may have the driver's libraries, the one that an operator names before the others."""
    return (first.lstrip("/"), *LIBRARY_DIRECTORIES) if first else LIBRARY_DIRECTORIES


def find_driver_files(driver_root: Path, first: str = "") -> DriverFiles:
    """Find the driver's files, in the root itself and in the driver container's under it.

    Args:
        driver_root: the mounted root of the node, or of the driver container, such as `/` or `/host`.
        first: directory under the root that is searched first; empty for none.
    """
    host = host_of(driver_root)
    for root in (driver_root, driver_root / DRIVER_CONTAINER):
        directory = _directory_of_libraries(root, library_directories(first))
        if directory is not None:
            break
    else:
        return DriverFiles(hook=_find_hook(host))
    mounts: dict[str, str] = {}
    for name, real in _libraries(root, directory):
        at = _on_node(real, host)
        # Programs load a library by its link's name, and some libraries of the driver by its own.
        mounts.setdefault(f"{LIBRARIES}/{name}", at)
        mounts.setdefault(f"{LIBRARIES}/{real.name}", at)
    for name in _PROGRAM_NAMES:
        real_program = _first(root, _PROGRAM_DIRECTORIES, name)
        if real_program is not None:
            mounts[f"{PROGRAMS}/{name}"] = _on_node(real_program, host)
    for name in _SOCKETS:
        real_socket = real_path(root, root / name)
        if real_socket is not None and stat.S_ISSOCK(real_socket.stat().st_mode):
            mounts[f"/{name}"] = _on_node(real_socket, host)
    return DriverFiles(
        mounts=tuple(
            NodeMount(host_path=mounts[path], container_path=path) for path in sorted(mounts)
        ),
        hook=_find_hook(host),
    )


def find_program(driver_root: Path, name: str) -> Path | None:
    """Return a program of the driver, in the root itself or in the driver container's under it."""
    for root in (driver_root, driver_root / DRIVER_CONTAINER):
        found = _first(root, _PROGRAM_DIRECTORIES, name)
        if found is not None:
            return found
    return None


def driver_state(driver_root: Path, first: str = "") -> tuple[tuple[str, int], ...]:
    """Return a value that changes with the driver's files: the times of all their directories.

    Some twenty system calls, where the search reads thousands of names.
    """
    roots = (driver_root, driver_root / DRIVER_CONTAINER)
    names = {*library_directories(first), *_PROGRAM_DIRECTORIES, *_HOOK_DIRECTORIES}
    names |= {str(PurePosixPath(item).parent) for item in _SOCKETS}
    found = []
    for path in sorted(root / name for root in roots for name in names):
        try:
            found.append((str(path), path.stat().st_mtime_ns))
        except OSError:
            continue
    return tuple(found)


def _directory_of_libraries(root: Path, names: tuple[str, ...]) -> Path | None:
    for name in names:
        if any(real_path(root, root / name / mark) is not None for mark in _MARKER_LIBRARIES):
            return root / name
    return None


def _libraries(root: Path, directory: Path) -> "Iterator[tuple[str, Path]]":
    """Yield the driver's libraries by name, with the file at the end of each link."""
    inside = _real_directory(root, directory)
    if inside is None:
        return
    for path in sorted(inside.iterdir()):
        stem, dot, version = path.name.partition(".so")
        if stem not in _STEMS or not dot or (version and not version.startswith(".")):
            continue
        real = real_path(root, path)
        if real is not None and stat.S_ISREG(real.stat().st_mode):
            yield path.name, real


def _find_hook(host: Path) -> str | None:
    found = _first(host, _HOOK_DIRECTORIES, _HOOK)
    return None if found is None else _on_node(found, host)


def _first(root: Path, directories: tuple[str, ...], name: str) -> Path | None:
    for directory in directories:
        real = real_path(root, root / directory / name)
        if real is not None and stat.S_ISREG(real.stat().st_mode):
            return real
    return None


def _on_node(path: Path, host: Path) -> str:
    return str(PurePosixPath("/") / path.relative_to(host))


def real_path(root: Path, path: Path) -> Path | None:
    """Return the path without links, followed as if `root` were the root; None for a dangling one."""
    try:
        real = _followed(root, path)
        return real if real.exists() else None
    except OSError:
        return None


def _real_directory(root: Path, path: Path) -> Path | None:
    real = real_path(root, path)
    return real if real is not None and real.is_dir() else None


def _followed(root: Path, path: Path) -> Path:
    waiting = list(reversed(path.relative_to(root).parts))
    at, links = root, 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            at = at if at == root else at.parent
            continue
        step = at / part
        if not step.is_symlink():
            at = step
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(f"too many links at {step}")
        target = step.readlink()
        if target.is_absolute():
            at = root
        waiting += reversed([item for item in target.parts if item != target.anchor])
    return at
