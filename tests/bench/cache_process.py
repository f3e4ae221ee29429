"""A process that extracts one layer into a content store, and says what it took.

python -m tests.bench.cache_process LAYER ROOT
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import uvloop

from agent.kernelcache.content_store import open_store
from agent.kernelcache.layer_limits import ExtractionLimits
from api.image_reference import Digest
from kernelcache.image_format import CacheType
from server.system_clock import SystemClock
from tests.bench.report import rss_mib

CHUNK_BYTES = 64 * 1024
DIGEST = Digest("sha256:" + "a" * 64)


async def chunks_of(layer: Path) -> AsyncGenerator[bytes, None]:
    with layer.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def most_resident_mib() -> float:
    """Return the peak of this program; that of getrusage has the parent's in it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (peak,) = (one for one in lines if one.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024


async def main(layer: Path, root: Path) -> None:
    store = open_store(root, SystemClock())
    before_mib = rss_mib(os.getpid())
    started, used = time.perf_counter(), time.process_time()
    await store.add(
        DIGEST,
        CacheType.TRITON,
        lambda: contextlib.aclosing(chunks_of(layer)),
        limits=ExtractionLimits(),
    )
    told = {
        "wall_s": time.perf_counter() - started,
        "cpu_s": time.process_time() - used,
        "peak_mib": most_resident_mib() - before_mib,
        "files": str(store.files_of(DIGEST)),
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
