"""A kernel cache as Triton leaves it, made by hand, as files: what an image of a registry is packed from."""

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

KERNEL: Final = "5W7KJQDTJCL4UGPMKKCS7TEEPZKSWOY4774SZQ6674FWSXG5MNXQ"
LAUNCHER: Final = "Q4KTBUSJ2LEGOHKSPJA2BG4BDURWUGYX7YU6TXZ7DZBKCDBQVGZQ"
CUBIN: Final = f"{KERNEL}/add_kernel.cubin"
ARCHITECTURES: Final = (75, 80, 86, 89, 90, 100, 103, 120)
"""Of NVIDIA's devices from Turing to Blackwell."""


def write_example_cache(directory: "Path") -> "Path":
    """Write a small cache with a kernel for each architecture, so that it fits any device; return the directory."""
    for arch in ARCHITECTURES:
        kernel = base64.b32encode(hashlib.sha256(str(arch).encode()).digest()).decode().rstrip("=")
        write_triton_cache(directory, arch=arch, object_bytes=1_000, kernel=kernel)
    return directory


def write_triton_cache(
    directory: "Path", *, arch: int = 90, object_bytes: int = 100_000, kernel: str = KERNEL
) -> "Path":
    """Write one kernel and its launcher; return the directory."""
    description = {
        "hash": "9f2c",
        "target": {"backend": "cuda", "arch": arch, "warp_size": 32},
        "name": "add_kernel",
        "num_warps": 4,
        "num_stages": 3,
        "debug": False,
        "ptx_version": 86,
    }
    files = {
        f"{kernel}/__grp__add_kernel.json": b'{"child_paths": {}}',
        f"{kernel}/add_kernel.json": json.dumps(description).encode(),
        f"{kernel}/add_kernel.ttir": b"module {}",
        f"{kernel}/add_kernel.ptx": b".version 8.6",
        f"{kernel}/add_kernel.cubin": b"\x7fELF" + bytes(object_bytes),
        f"{LAUNCHER}/__triton_launcher.so": b"\x7fELF" + bytes(1000),
    }
    for path, content in files.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return directory
