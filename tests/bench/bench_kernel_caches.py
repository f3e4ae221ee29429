"""Extraction of a kernel cache's layer into the node's content store, beside `tar xzf` of the same layer; and restarts.

Correct: every file of the content is the layer's, byte by byte, before the clock counts. Each is a process of its own,
ours `tests.bench.cache_process`; they take turns on one file system. Ours is done when all is on the disk.
"""

import gzip
import hashlib
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.report import ROOT, Result, at_most, checked
from tests.component.agent.caches.cache_node import TEAM, a_cache_node
from tests.component.agent.caches.test_cache_restart import (
    MOUNTED,
    add_all,
    all_shown,
    mount_some,
    store_contents,
)
from tests.support.cache_layers import PREFIX
from tests.support.polling import until_async

if TYPE_CHECKING:
    from tests.bench.sizes import Sizes

FILES_A_KERNEL = 8
WORDS = 300
SEED = 16


async def measure(sizes: "Sizes") -> list[Result]:
    """Extract in pairs."""
    with tempfile.TemporaryDirectory(prefix="gkm", dir=ROOT / "build") as name:
        extracted = _in_pairs(Path(name), sizes)
    with tempfile.TemporaryDirectory(prefix="gkm") as name:
        return [extracted, await _restarted(Path(name), sizes)]


async def _restarted(directory: Path, sizes: "Sizes") -> Result:
    """Start the roles on what an earlier process left, until a pod's volume is served and all uses are right."""
    used = sizes.node_caches * 3 // 10
    took_s: list[float] = []
    async with a_cache_node(directory) as node:
        await add_all(node, store_contents(node, sizes.node_caches))
        async with node.running():
            await mount_some(node, used)
            await until_async(partial(all_shown, node, sizes.node_caches, used))
        uid = await node.add_pod("late", MOUNTED)
        for _ in range(sizes.node_restarts):
            started = time.perf_counter()
            async with node.running():
                await node.mounted(uid, MOUNTED, pod=f"{TEAM}/late")
                uses = node.role.uses.uses({})
                took_s.append(time.perf_counter() - started)
                pods = {"late", *(f"pod-{number}" for number in range(used))}
                assert {one.pod_name for one in uses} == pods
                checked("uses after a restart")
                node.unpublish(uid)
    return Result(
        subject="kernel_caches",
        case=f"roles caches and csi started beside {sizes.node_caches:,} caches, {used} of them mounted, until a volume is served",
        samples=sizes.node_restarts,
        p50_ms=statistics.median(took_s) * 1e3,
        aims=(at_most("p50_ms", 2_000),),
    )


def _in_pairs(directory: Path, sizes: "Sizes") -> Result:
    layer = directory / "layer.tar.gz"
    expected = _write_layer(layer, sizes)
    runs: list[dict[str, Any]] = []
    tar_s: list[float] = []
    for number in range(sizes.cache_extractions):
        # Freed memory and blocks are dear to the next writer on some machines: each is the first as often.
        turns = [
            partial(_ours, layer, directory, expected, runs),
            partial(_tar, layer, directory, tar_s),
        ]
        for turn in turns if number % 2 else turns[::-1]:
            turn()
    ours_s = statistics.median(one["wall_s"] for one in runs)
    mib = sizes.cache_files * sizes.cache_file_bytes / 2**20
    return Result(
        subject="kernel_caches",
        case=f"a layer of {mib:,.0f} MiB in {sizes.cache_files:,} files, beside tar xzf",
        samples=sizes.cache_extractions,
        p50_ms=ours_s * 1e3,
        base_p50_ms=statistics.median(tar_s) * 1e3,
        ratio=statistics.median(
            one["wall_s"] / beside for one, beside in zip(runs, tar_s, strict=True)
        ),
        cpu_s=statistics.median(one["cpu_s"] for one in runs),
        peak_mib=max(one["peak_mib"] for one in runs),
        aims=(at_most("ratio", 1.5), at_most("peak_mib", 32)),
    )


def _write_layer(layer: Path, sizes: "Sizes") -> dict[str, str]:
    """Write texts and binaries as a compiler does, and return the digest of each file by its name."""
    chance = random.Random(SEED)
    words = [f"%r{number}" for number in range(WORDS)]
    digests: dict[str, str] = {}
    with (
        gzip.open(layer, "wb", compresslevel=6) as file,
        tarfile.open(fileobj=file, mode="w|") as tar,
    ):
        for number in range(sizes.cache_files):
            size = sizes.cache_file_bytes
            is_text = number % FILES_A_KERNEL < FILES_A_KERNEL - 2
            text = " ".join(chance.choices(words, k=size // 4)).encode()
            data = (text if is_text else chance.randbytes(size // 2) + bytes(size))[:size]
            data += bytes(size - len(data))
            name = f"{number // FILES_A_KERNEL:064X}/kernel.{number % FILES_A_KERNEL}"
            info = tarfile.TarInfo(PREFIX + name)
            info.size = size
            tar.addfile(info, io.BytesIO(data))
            digests[name] = hashlib.sha256(data).hexdigest()
    return digests


def _ours(
    layer: Path, directory: Path, expected: dict[str, str], runs: list[dict[str, Any]]
) -> None:
    os.sync()
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.cache_process", str(layer), str(directory / "store")],
        stdout=subprocess.PIPE,
        check=True,
    )
    runs.append(json.loads(done.stdout))
    assert _files_in(Path(runs[-1]["files"])) == expected
    checked("extracted cache")
    subprocess.run(["rm", "-rf", str(directory / "store")], check=True)


def _tar(layer: Path, directory: Path, tar_s: list[float]) -> None:
    place = directory / "tar"
    place.mkdir()
    os.sync()
    started = time.perf_counter()
    subprocess.run(["tar", "xzf", str(layer), "-C", str(place)], check=True)
    tar_s.append(time.perf_counter() - started)
    shutil.rmtree(place)


def _files_in(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }
