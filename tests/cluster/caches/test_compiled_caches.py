"""A cache as a compiler left it, packed by the user's command, extracted and mounted; on a card, used without compiling.

For the card: a Python with torch and triton, this one or that of $TRITON_PYTHON.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.csi.volume_source import CacheVolume
from agent.kernelcache.content.content_store import open_store
from agent.kernelcache.content.layer_limits import ExtractionLimits
from agent.kernelcache.content.mounts import OverlayMounter
from kernelcache.image_format import read_cache_image
from simulator.registry.triton_cache import write_triton_cache
from tests.cluster.environment.server_process import installed_command
from tests.support.cache_layers import LayerSource, SetClock

PROGRAM = """
import torch
import triton
import triton.language as tl


@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


x = torch.zeros(1000, device="cuda")
add_one[(4,)](x, 1000, BLOCK=256)
assert bool((x == 1).all())
"""


@contextmanager
def mounted(made: Path, folder: Path) -> Iterator[Path]:
    """Pack a directory, and mount the image's files as a pod gets them."""
    layout = folder / "layout"
    command = [*installed_command(), "cache", "pack", str(made), "--image", "registry.test/a:1"]
    subprocess.run([*command, "--output", str(layout)], check=True, capture_output=True)

    def blob(digest: str) -> bytes:
        return (layout / "blobs" / digest.replace(":", "/")).read_bytes()

    index = json.loads((layout / "index.json").read_bytes())
    digest = index["manifests"][0]["digest"]
    manifest = blob(digest)
    image = read_cache_image(manifest, blob(json.loads(manifest)["config"]["digest"]))
    store = open_store(folder / "store", SetClock())
    layer = LayerSource(blob(image.layer.digest))
    content = asyncio.run(store.add(digest, image.type, layer, limits=ExtractionLimits()))
    target = folder / "target"
    target.mkdir()
    mounter = OverlayMounter()
    volume = CacheVolume(
        content=store.files_of(digest),
        digest=digest,
        has_shared_objects=content.has_shared_objects,
    )
    mounter.mount(volume, target)
    try:
        yield target
    finally:
        mounter.unmount(target)
        store.close()


def files_in(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def python() -> str:
    program = os.environ.get("TRITON_PYTHON", sys.executable)
    if not Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has no NVIDIA driver")
    check = "import torch, triton; assert torch.cuda.is_available()"
    done = subprocess.run([program, "-c", check], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = done.stderr.strip().rpartition("\n")[2]
        pytest.skip(f"{program} has no torch and triton that see a card: {why}")
    return program


def test_what_a_compiler_left_is_what_a_pod_sees(tmp_path: Path):
    made = write_triton_cache(tmp_path / "made")
    with mounted(made, tmp_path) as seen:
        assert files_in(seen) == files_in(made)


def test_triton_uses_its_mounted_cache_without_compiling(python: str, tmp_path: Path):
    """A kernel that is not found there would have to be written there, which a read-only mount refuses."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")

    def run(cache: Path) -> None:
        environment = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
        subprocess.run([python, str(program)], env=environment, check=True)

    run(tmp_path / "made")
    with mounted(tmp_path / "made", tmp_path) as seen:
        run(seen)
        assert files_in(seen) == files_in(tmp_path / "made")
