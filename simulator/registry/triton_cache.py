"""A kernel cache as Triton leaves it, made by hand, as files: what an image of a registry is packed from."""

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

KERNEL: Final = "5W7KJQDTJCL4UGPMKKCS7TEEPZKSWOY4774SZQ6674FWSXG5MNXQ"
LAUNCHER: Final = "Q4KTBUSJ2LEGOHKSPJA2BG4BDURWUGYX7YU6TXZ7DZBKCDBQVGZQ"
CUBIN: Final = f"{KERNEL}/add_kernel.cubin"


def write_triton_cache(directory: "Path", *, arch: int = 90, object_bytes: int = 100_000) -> "Path":
    """Write one kernel and its launcher; return the directory."""
    kernel = {
        "hash": "9f2c",
        "target": {"backend": "cuda", "arch": arch, "warp_size": 32},
        "name": "add_kernel",
        "num_warps": 4,
        "num_stages": 3,
        "debug": False,
        "ptx_version": 86,
    }
    files = {
        f"{KERNEL}/__grp__add_kernel.json": b'{"child_paths": {}}',
        f"{KERNEL}/add_kernel.json": json.dumps(kernel).encode(),
        f"{KERNEL}/add_kernel.ttir": b"module {}",
        f"{KERNEL}/add_kernel.ptx": b".version 8.6",
        CUBIN: b"\x7fELF" + bytes(object_bytes),
        f"{LAUNCHER}/__triton_launcher.so": b"\x7fELF" + bytes(1000),
    }
    for path, content in files.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return directory
